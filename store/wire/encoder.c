/* A client's encoder of requests. Each function reserves memory for the whole request before it
 * writes, so that it changes nothing if memory is short. */
#include "store/wire/encoder.h"

#include "store/wire/number.h"

#include <errno.h>

/* Reserves memory for the opcode and `extra` bytes, and writes the opcode. Returns the address at
 * which the next byte is to be written; or NULL, and sets *rc to a negative errno. */
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

/* ---- limits ---- */

/* REQUEST_OVERHEAD: how many bytes of a request at most do not belong to a key or value (an opcode,
 * and a count or number). ITEM_OVERHEAD: how many bytes a key or value takes at most in addition to
 * its own bytes (a length, and for a key torch's '/'). */
#define REQUEST_OVERHEAD ((size_t) 9)
#define ITEM_OVERHEAD    ((size_t) 9)

const char *store_request_excess(const struct store_bytes *keys, size_t key_count,
                                 const struct store_bytes *values, size_t value_count,
                                 size_t *limit) {
    const char *excess = NULL;
    size_t size = REQUEST_OVERHEAD;
    for (size_t i = 0; i < key_count; i++) {
        size += ITEM_OVERHEAD + keys[i].len;
        if (keys[i].len > STORE_KEY_MAX) excess = "a key", *limit = STORE_KEY_MAX;
    }
    if (key_count > STORE_LIST_MAX) excess = "the list", *limit = STORE_LIST_MAX;
    for (size_t i = 0; i < value_count; i++) {
        size += ITEM_OVERHEAD + values[i].len;
        if (values[i].len > STORE_VALUE_MAX) excess = "the value", *limit = STORE_VALUE_MAX;
    }
    if (excess != NULL || size <= STORE_CLIENT_BUFFER_MAX) return excess;
    *limit = STORE_CLIENT_BUFFER_MAX;
    return "the request";
}
