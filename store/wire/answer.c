/* A client's parser of replies. A reply is a head (byte, number, nonce or count) and then items,
 * each of which is a length and bytes. step() parses one length or the bytes of one item. a->bytes
 * holds the received bytes, of which the first a->pos are parsed.
 *
 * A single value is returned without a copy: when its length has been parsed, all bytes before the
 * value are dropped from a->bytes, so that the memory of a->bytes holds only the value and can be
 * given to the caller. The items of a list point into a->bytes. The NUL byte behind an item
 * overwrites the length of the next item, which is no longer needed because all items have been
 * parsed. */
#include "store/wire/answer.h"

#include "store/wire/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* number of bytes to receive at a time before the length of a value is known; values are usually
 * shorter */
#define READ_AHEAD ((size_t) 4 << 10)
#define LIST_AHEAD ((size_t) 256 << 10) /* bytes to receive at a time for a list */
/* The buffer of a big value doubles when it is full, but grows by at least this many bytes. */
#define GROW_MIN   ((size_t) 1 << 20)

void store_answer_done(struct store_answer *a) {
    cr_buffer_done(&a->bytes);
    free(a->items);
    *a = (struct store_answer){0};
}

static size_t head_size(enum store_reply shape) {
    switch (shape) {
    case STORE_REPLY_BYTE: return 1;
    case STORE_REPLY_NONCE: return 4;
    case STORE_REPLY_NUMBER:
    case STORE_REPLY_POP:
    case STORE_REPLY_KEYS: return 8;
    case STORE_REPLY_NONE:
    case STORE_REPLY_VALUE:
    case STORE_REPLY_VALUES: break;
    }
    return 0;
}

void store_answer_begin(struct store_answer *a, enum store_reply shape, size_t item_count) {
    store_answer_done(a);
    a->shape = shape;
    a->head = head_size(shape);
    a->item_count = shape == STORE_REPLY_VALUES ? item_count : shape == STORE_REPLY_VALUE;
}

/* ---- receiving ---- */

static bool has_items(const struct store_answer *a) {
    return a->shape == STORE_REPLY_VALUE || a->shape == STORE_REPLY_VALUES ||
           a->shape == STORE_REPLY_POP || a->shape == STORE_REPLY_KEYS;
}

/* Returns the largest number of bytes to receive next */
static size_t wanted(const struct store_answer *a) {
    size_t have = a->bytes.len - a->pos;
    if (!has_items(a)) return a->head - a->bytes.len;
    if (!a->in_item) return a->item_count > 1 ? LIST_AHEAD : READ_AHEAD;
    size_t missing = a->item_len - have;
    size_t step = a->bytes.len > GROW_MIN ? a->bytes.len : GROW_MIN;
    if (missing > step) return step;
    return a->item_count > 1 && missing < LIST_AHEAD ? LIST_AHEAD : missing;
}

void *store_answer_room(struct store_answer *a, size_t *room) {
    size_t n = wanted(a);
    /* + 1 for the NUL byte after the last item */
    if (cr_buffer_reserve(&a->bytes, n + 1) < 0) return NULL;
    *room = n;
    return a->bytes.data + a->bytes.len;
}

static int fail(struct store_answer *a, int code, const char *reason) {
    a->reason = reason;
    return code;
}

static int read_head(struct store_answer *a, const uint8_t *at) {
    switch (a->shape) {
    case STORE_REPLY_BYTE: a->byte = *at; break;
    case STORE_REPLY_NONCE: a->number = store_load_u32(at); break;
    case STORE_REPLY_NUMBER: a->number = (int64_t) store_load_u64(at); break;
    case STORE_REPLY_POP:
        a->number = (int64_t) store_load_u64(at);
        if (a->number < 0) return fail(a, -EPROTO, "negative queue length");
        a->item_count = a->number > 0;
        break;
    case STORE_REPLY_KEYS:
        a->number = (int64_t) store_load_u64(at);
        if (a->number < 0) return fail(a, -EPROTO, "negative key count");
        if ((uint64_t) a->number > STORE_REPLY_MAX / 8) return fail(a, -EMSGSIZE, "reply too long");
        a->item_count = (size_t) a->number;
        break;
    case STORE_REPLY_NONE:
    case STORE_REPLY_VALUE:
    case STORE_REPLY_VALUES: break;
    }
    return 0;
}

static int add_item(struct store_answer *a) {
    if (a->item_seen == a->item_cap) {
        size_t cap = a->item_cap == 0 ? 16 : a->item_cap * 2;
        struct store_bytes *items = realloc(a->items, cap * sizeof(*items));
        if (items == NULL) return fail(a, -ENOMEM, "out of memory");
        a->items = items;
        a->item_cap = cap;
    }
    a->items[a->item_seen++] = (struct store_bytes){(const void *) a->pos, a->item_len};
    return 0;
}

static int read_length(struct store_answer *a) {
    uint64_t n = store_load_u64(a->bytes.data + a->pos);
    a->pos += 8;
    if (n > STORE_REPLY_MAX || a->pos + n > STORE_REPLY_MAX + 8) {
        return fail(a, -EMSGSIZE, "reply too long");
    }
    a->item_len = (size_t) n;
    a->in_item = true;
    if (a->shape == STORE_REPLY_VALUE || a->shape == STORE_REPLY_POP) {
        cr_buffer_consume(&a->bytes, a->pos);
        a->pos = 0;
    }
    return 0;
}

/* Parses one length, or the bytes of one item. Returns 1 if it has parsed one of them, 0 if more
 * bytes are needed, or a negative errno. */
static int step(struct store_answer *a) {
    size_t have = a->bytes.len - a->pos;
    if (!a->in_item) {
        if (have < 8) return 0;
        int rc = read_length(a);
        return rc < 0 ? rc : 1;
    }
    if (have < a->item_len) return 0;
    int rc = add_item(a);
    a->pos += a->item_len;
    a->in_item = false;
    return rc < 0 ? rc : 1;
}

int store_answer_put(struct store_answer *a, size_t n) {
    a->bytes.len += n;
    if (a->head > 0) {
        if (a->bytes.len < a->head) return 0;
        int rc = read_head(a, (const uint8_t *) a->bytes.data);
        if (rc < 0) return rc;
        a->pos = a->head;
        a->head = 0;
    }
    while (a->item_seen < a->item_count) {
        int rc = step(a);
        if (rc <= 0) return rc;
    }
    if (a->pos < a->bytes.len) return fail(a, -EPROTO, "more bytes than the reply has");
    return 1;
}

/* ---- taking values out of a complete reply ---- */

int store_answer_take_value(struct store_answer *a, void **value, size_t *len) {
    if (cr_buffer_reserve(&a->bytes, 1) < 0) return -ENOMEM;
    a->bytes.data[a->bytes.len] = '\0';
    *value = a->bytes.data;
    *len = a->bytes.len;
    a->bytes = (struct cr_buffer){0};
    return 0;
}

void store_answer_take_list(struct store_answer *a, struct store_list *out) {
    for (size_t i = 0; i < a->item_seen; i++) {
        size_t offset = (size_t) a->items[i].data;
        a->items[i].data = a->bytes.data + offset;
        a->bytes.data[offset + a->items[i].len] = '\0';
    }
    *out = (struct store_list){a->items, a->item_seen, a->bytes.data};
    a->items = NULL;
    a->bytes = (struct cr_buffer){0};
}

void store_list_keep_users(struct store_list *list) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *raw = list->items[i].data;
        if (list->items[i].len == 0 || raw[0] != '/') continue;
        list->items[kept++] = (struct store_bytes){raw + 1, list->items[i].len - 1};
    }
    list->count = kept;
}
