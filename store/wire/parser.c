/* The server's parser of requests. The parser goes through the field letters of the operation
 * ("kv", "kn", "K", …), and stores how many bytes it has parsed, and the offsets of keys and
 * values. So a request may arrive in pieces of any size, the buffer may move between two pieces,
 * and no byte is parsed twice. */
#include "store/wire/parser.h"

#include "store/wire/number.h"

#include <errno.h>
#include <stdlib.h>

static int fail(struct store_parser *p, int code, const char *reason) {
    p->reason = reason;
    return code;
}

void store_parser_next(struct store_parser *p) {
    p->pos = 0;
    if (p->items != NULL) {
        free(p->items);
        p->items = NULL;
    }
    p->item_count = p->item_cap = 0;
}

void store_parser_done(struct store_parser *p) {
    free(p->items);
    p->items = NULL;
}

static int parse_opcode(struct store_parser *p, uint8_t code) {
    int op = store_op_find(p->dialect, code);
    if (op < 0 || op == STORE_OP_VALIDATE) return fail(p, -EPROTO, "unknown operation");
    p->op = op;
    p->field = store_op_fields((enum store_op) op);
    p->pos = 1;
    p->in_field = false;
    p->span_count = 0;
    p->items_left = 0;
    return 1;
}

static int add_item(struct store_parser *p, struct store_span span) {
    if (p->item_count == p->item_cap) {
        size_t cap = p->item_cap == 0 ? 8 : p->item_cap * 2;
        struct store_span *items = realloc(p->items, cap * sizeof(*items));
        if (items == NULL) return fail(p, -ENOMEM, "out of memory");
        p->items = items;
        p->item_cap = cap;
    }
    p->items[p->item_count++] = span;
    return 1;
}

/* Parses a key or value: a length and that many bytes. Returns 1 and sets *out; 0 if more bytes are
 * needed; or a negative errno. */
static int parse_span(struct store_parser *p, const uint8_t *data, size_t len, bool is_key,
                      struct store_span *out) {
    if (!p->in_field) {
        if (len - p->pos < 8) return 0;
        uint64_t n = store_load_u64(data + p->pos);
        if (n > (is_key ? p->limits->key_max : p->limits->value_max))
            return fail(p, -EMSGSIZE, is_key ? "key too long" : "value too long");
        p->pos += 8;
        p->field_len = (size_t) n;
        p->in_field = true;
        if (p->pos + p->field_len > p->limits->request_max) {
            return fail(p, -EMSGSIZE, "request too long");
        }
    }
    if (len - p->pos < p->field_len) return 0;
    *out = (struct store_span){(uint32_t) p->pos, (uint32_t) p->field_len};
    p->pos += p->field_len;
    p->in_field = false;
    return 1;
}

/* Parses a list: a count, then the elements. Returns 1 if the list is complete, 0 if more bytes are
 * needed, or a negative errno. p->items_left is 1 plus the number of elements that are not parsed
 * yet; it is 0 before the count is parsed. */
static int parse_list(struct store_parser *p, const uint8_t *data, size_t len, bool pairs) {
    if (p->items_left == 0) {
        if (len - p->pos < 8) return 0;
        uint64_t n = store_load_u64(data + p->pos);
        if (n > p->limits->list_max) return fail(p, -EMSGSIZE, "list too long");
        p->pos += 8;
        p->items_left = (size_t) n * (pairs ? 2 : 1) + 1;
    }
    while (p->items_left > 1) {
        struct store_span span;
        bool is_key = !pairs || p->item_count % 2 == 0;
        int rc = parse_span(p, data, len, is_key, &span);
        if (rc > 0) rc = add_item(p, span);
        if (rc <= 0) return rc;
        p->items_left--;
    }
    p->items_left = 0;
    return 1;
}

static int parse_field(struct store_parser *p, const uint8_t *data, size_t len) {
    switch (*p->field) {
    case 'k':
    case 'v': {
        int rc = parse_span(p, data, len, *p->field == 'k', &p->spans[p->span_count]);
        if (rc > 0) p->span_count++;
        return rc;
    }
    case 'n':
        if (len - p->pos < 8) return 0;
        p->number = (int64_t) store_load_u64(data + p->pos);
        p->pos += 8;
        return 1;
    case 'm':
        if (len - p->pos < 4) return 0;
        p->number = (int64_t) store_load_u32(data + p->pos);
        p->pos += 4;
        return 1;
    default: return parse_list(p, data, len, *p->field == 'P');
    }
}

static struct store_bytes bytes_of(const uint8_t *data, struct store_span span) {
    return (struct store_bytes){data + span.offset, span.len};
}

static void fill(const struct store_parser *p, const uint8_t *data, struct store_request *out) {
    out->op = (enum store_op) p->op;
    out->block = NULL;
    out->number = p->number;
    out->base = data;
    out->items = p->items;
    out->item_count = p->item_count;
    out->size = p->pos;
    out->key = (struct store_bytes){0};
    if (p->span_count > 0) out->key = bytes_of(data, p->spans[0]);
    if (p->span_count > 1) out->value = bytes_of(data, p->spans[p->span_count - 1]);
    if (p->span_count > 2) out->expected = bytes_of(data, p->spans[1]);
}

int store_parse(struct store_parser *p, const void *data, size_t len, struct store_request *out) {
    const uint8_t *bytes = data;
    if (p->pos == 0) {
        if (len == 0) return 0;
        int rc = parse_opcode(p, bytes[0]);
        if (rc < 0) return rc;
    }
    for (; *p->field != '\0'; p->field++) {
        int rc = parse_field(p, bytes, len);
        if (rc <= 0) return rc;
    }
    fill(p, bytes, out);
    return 1;
}

size_t store_parser_block(const struct store_parser *p, size_t *head) {
    if (p->pos == 0 || !p->in_field || p->field_len < STORE_BLOCK_MIN) return 0;
    if (p->field[0] != 'v' || p->field[1] != '\0') return 0;
    *head = p->pos;
    return p->field_len;
}

void store_parser_complete(struct store_parser *p, const void *data, struct store_bytes value,
                           struct store_request *out) {
    p->pos += p->field_len;
    p->in_field = false;
    p->spans[p->span_count++] = (struct store_span){0, 0};
    fill(p, data, out);
    out->value = value;
}
