/* The wire: one table of operations, from which numbering, parsing and names all follow.
 *
 * The parser walks the field letters of the operation ("kv", "kn", "K"…). It remembers how far it
 * understood the request (pos) and what it found as offsets, so that a request may arrive in any
 * pieces, and the buffer may move between them, without a byte being looked at twice. */
#include "store/wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

static const struct {
    const char *name;
    int8_t code[2]; /* modern, legacy */
    const char *fields;
    enum store_reply reply;
} ops[STORE_OP_COUNT] = {
#define X(name, text, modern, legacy, fields, reply)                                   \
    [STORE_OP_##name] = {text, {modern, legacy}, fields, STORE_REPLY_##reply},
    STORE_OPS(X)
#undef X
};

#define CODE_MAX 18 /* the highest opcode of any dialect */

/* Opcode to operation, the table above turned round: 0 is none, else operation + 1. Operations that
 * a dialect lacks land behind the codes, each in a slot of its own. */
#define AT(op, code) [(code) < 0 ? CODE_MAX + 1 + STORE_OP_##op : (code)] = STORE_OP_##op + 1,
static const uint8_t op_of[2][CODE_MAX + 1 + STORE_OP_COUNT] = {
#define X(name, text, modern, legacy, fields, reply) AT(name, modern)
    {STORE_OPS(X)},
#undef X
#define X(name, text, modern, legacy, fields, reply) AT(name, legacy)
    {STORE_OPS(X)},
#undef X
};

const char *store_op_name(enum store_op op) { return ops[op].name; }
enum store_reply store_op_reply(enum store_op op) { return ops[op].reply; }
const char *store_op_fields(enum store_op op) { return ops[op].fields; }

int store_op_code(enum store_dialect dialect, enum store_op op) {
    if (dialect < STORE_DIALECT_MODERN || dialect > STORE_DIALECT_LEGACY) return -1;
    return ops[op].code[dialect - STORE_DIALECT_MODERN];
}

int store_op_find(enum store_dialect dialect, uint8_t code) {
    if (code > CODE_MAX) return -1;
    if (dialect < STORE_DIALECT_MODERN || dialect > STORE_DIALECT_LEGACY) return -1;
    return (int) op_of[dialect - STORE_DIALECT_MODERN][code] - 1;
}

/* ---- the first bytes ---- */

int store_detect(const void *data, size_t len, enum store_dialect *dialect, size_t *consumed) {
    const uint8_t *b = data;
    if (len == 0) return 0;
    *consumed = 0;
    if (b[0] == 0) {
        /* VALIDATE, or a legacy SET: that one always has at least 17 bytes, so waiting is safe. */
        if (len < STORE_VALIDATE_LEN) return 0;
        if (store_load_u32(b + 1) == STORE_VALIDATE_MAGIC) {
            *dialect = STORE_DIALECT_MODERN;
            *consumed = STORE_VALIDATE_LEN;
        } else {
            *dialect = STORE_DIALECT_LEGACY;
        }
        return 1;
    }
    if (b[0] <= STORE_LEGACY_FIRST_MAX) {
        *dialect = STORE_DIALECT_LEGACY;
        return 1;
    }
    if (len < STORE_MAGIC_LEN) return 0;
    if (memcmp(b, STORE_ADMIN_MAGIC, STORE_MAGIC_LEN) == 0) {
        *dialect = STORE_DIALECT_ADMIN;
        *consumed = STORE_MAGIC_LEN;
    } else {
        *dialect = STORE_DIALECT_FOREIGN;
    }
    return 1;
}

/* ---- the parser ---- */

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
    p->field = ops[op].fields;
    p->pos = 1;
    p->in_field = 0;
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

/* One length and its bytes: a span. 1 = got it, 0 = more bytes needed. */
static int parse_span(struct store_parser *p, const uint8_t *data, size_t len, int is_key,
                      struct store_span *out) {
    if (!p->in_field) {
        if (len - p->pos < 8) return 0;
        uint64_t n = store_load_u64(data + p->pos);
        if (n > (is_key ? p->limits->key_max : p->limits->value_max)) {
            return fail(p, -EMSGSIZE, is_key ? "key too long" : "value too long");
        }
        p->pos += 8;
        p->field_len = (size_t) n;
        p->in_field = 1;
        if (p->pos + p->field_len > p->limits->request_max) {
            return fail(p, -EMSGSIZE, "request too long");
        }
    }
    if (len - p->pos < p->field_len) return 0;
    *out = (struct store_span){(uint32_t) p->pos, (uint32_t) p->field_len};
    p->pos += p->field_len;
    p->in_field = 0;
    return 1;
}

/* A list: the count, then its elements. in_field alone cannot say whether the count was read, since
 * it is cleared between elements: items_left does, counting one more than is still to come. */
static int parse_list(struct store_parser *p, const uint8_t *data, size_t len, int pairs) {
    if (p->items_left == 0) {
        if (len - p->pos < 8) return 0;
        uint64_t n = store_load_u64(data + p->pos);
        if (n > p->limits->list_max) return fail(p, -EMSGSIZE, "list too long");
        p->pos += 8;
        p->items_left = (size_t) n * (pairs ? 2 : 1) + 1;
    }
    while (p->items_left > 1) {
        struct store_span span;
        int is_key = !pairs || p->item_count % 2 == 0;
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

void store_parser_finish(struct store_parser *p, const void *data, struct store_value *block,
                         struct store_request *out) {
    p->pos += p->field_len;
    p->in_field = 0;
    p->spans[p->span_count++] = (struct store_span){0, 0};
    fill(p, data, out);
    out->value = (struct store_bytes){block->data, block->len};
    out->block = block;
}

/* ---- the encoders ---- */

/* Room for the opcode and `extra` bytes, and the opcode in it: NULL on failure, with *rc. */
static uint8_t *begin(struct cr_buffer *out, enum store_dialect dialect, enum store_op op,
                      size_t extra, int *rc) {
    int code = store_op_code(dialect, op);
    *rc = code < 0 ? -ENOTSUP : cr_buffer_reserve(out, 1 + extra);
    if (*rc < 0) return NULL;
    uint8_t *at = (uint8_t *) out->data + out->len;
    *at++ = (uint8_t) code;
    return at;
}

static int end(struct cr_buffer *out, const uint8_t *at) {
    out->len = (size_t) (at - (const uint8_t *) out->data);
    return 0;
}

static uint8_t *put_u64(uint8_t *at, uint64_t v) {
    store_put_u64(at, v);
    return at + 8;
}

static uint8_t *put_raw(uint8_t *at, struct store_bytes b) {
    if (b.len > 0) memcpy(at, b.data, b.len);
    return at + b.len;
}

static uint8_t *put_bytes(uint8_t *at, struct store_bytes b) {
    return put_raw(put_u64(at, b.len), b);
}

static uint8_t *put_key(const struct store_encoder *e, uint8_t *at, struct store_bytes key) {
    at = put_u64(at, e->prefix.len + key.len);
    return put_raw(put_raw(at, e->prefix), key);
}

static size_t key_size(const struct store_encoder *e, struct store_bytes key) {
    return 8 + e->prefix.len + key.len;
}

int store_encode_validate(struct cr_buffer *out) {
    return cr_buffer_append(out, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
}

int store_encode_ping(struct cr_buffer *out, uint32_t nonce) {
    int rc;
    uint8_t *at = begin(out, STORE_DIALECT_MODERN, STORE_OP_PING, 4, &rc);
    if (at == NULL) return rc;
    store_put_u32(at, nonce);
    return end(out, at + 4);
}

int store_encode_plain(const struct store_encoder *e, enum store_op op) {
    int rc;
    uint8_t *at = begin(e->out, e->dialect, op, 0, &rc);
    return at == NULL ? rc : end(e->out, at);
}

int store_encode_key(const struct store_encoder *e, enum store_op op, struct store_bytes key) {
    int rc;
    uint8_t *at = begin(e->out, e->dialect, op, key_size(e, key), &rc);
    return at == NULL ? rc : end(e->out, put_key(e, at, key));
}

int store_encode_number(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                        int64_t number) {
    int rc;
    uint8_t *at = begin(e->out, e->dialect, op, key_size(e, key) + 8, &rc);
    return at == NULL ? rc : end(e->out, put_u64(put_key(e, at, key), (uint64_t) number));
}

int store_encode_value_head(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                            size_t value_len) {
    int rc;
    uint8_t *at = begin(e->out, e->dialect, op, key_size(e, key) + 8, &rc);
    return at == NULL ? rc : end(e->out, put_u64(put_key(e, at, key), value_len));
}

int store_encode_compare_set(const struct store_encoder *e, struct store_bytes key,
                             struct store_bytes expected, struct store_bytes desired) {
    int rc;
    size_t size = key_size(e, key) + 16 + expected.len + desired.len;
    uint8_t *at = begin(e->out, e->dialect, STORE_OP_COMPARE_SET, size, &rc);
    if (at == NULL) return rc;
    return end(e->out, put_bytes(put_bytes(put_key(e, at, key), expected), desired));
}

int store_encode_keys(const struct store_encoder *e, enum store_op op,
                      const struct store_bytes *keys, size_t key_count) {
    int rc;
    size_t size = 8;
    for (size_t i = 0; i < key_count; i++) size += key_size(e, keys[i]);
    uint8_t *at = begin(e->out, e->dialect, op, size, &rc);
    if (at == NULL) return rc;
    at = put_u64(at, key_count);
    for (size_t i = 0; i < key_count; i++) at = put_key(e, at, keys[i]);
    return end(e->out, at);
}

int store_encode_pairs(const struct store_encoder *e, const struct store_bytes *keys,
                       const struct store_bytes *values, size_t pair_count) {
    int rc;
    size_t size = 8;
    for (size_t i = 0; i < pair_count; i++) size += key_size(e, keys[i]) + 8 + values[i].len;
    uint8_t *at = begin(e->out, e->dialect, STORE_OP_MULTI_SET, size, &rc);
    if (at == NULL) return rc;
    at = put_u64(at, pair_count);
    for (size_t i = 0; i < pair_count; i++) at = put_bytes(put_key(e, at, keys[i]), values[i]);
    return end(e->out, at);
}

const char *store_request_excess(const struct store_bytes *keys, size_t key_count,
                                 const struct store_bytes *values, size_t value_count,
                                 size_t *limit) {
    const char *excess = NULL;
    size_t size = STORE_REQUEST_OVERHEAD;
    for (size_t i = 0; i < key_count; i++) {
        size += STORE_ITEM_OVERHEAD + keys[i].len;
        if (keys[i].len > STORE_KEY_MAX) excess = "a key", *limit = STORE_KEY_MAX;
    }
    if (key_count > STORE_LIST_MAX) excess = "the list", *limit = STORE_LIST_MAX;
    for (size_t i = 0; i < value_count; i++) {
        size += STORE_ITEM_OVERHEAD + values[i].len;
        if (values[i].len > STORE_VALUE_MAX) excess = "the value", *limit = STORE_VALUE_MAX;
    }
    if (excess != NULL || size <= STORE_CLIENT_BUFFER_MAX) return excess;
    *limit = STORE_CLIENT_BUFFER_MAX;
    return "the request";
}
