/* A client's encoder: writes requests as bytes. */
#ifndef STORE_WIRE_ENCODER_H
#define STORE_WIRE_ENCODER_H

#include "base/buffer.h"
#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

/* Where and how requests are encoded. Each function below appends one request to `out` and returns
 * 0. On error it appends nothing and returns -ENOMEM, or -ENOTSUP if the dialect lacks the
 * operation. `prefix` is put in front of every key: "/" for keys that users write, "" for other
 * keys such as "init/". */
struct store_encoder {
    struct cr_buffer *out;
    enum store_dialect dialect;
    struct store_bytes prefix;
};

int store_encode_validate(struct cr_buffer *out);
int store_encode_ping(struct cr_buffer *out, uint32_t nonce);

/* Encodes a request without fields: NUM_KEYS, LIST_KEYS, CANCEL_WAIT. */
int store_encode_plain(const struct store_encoder *e, enum store_op op);
/* Encodes a request with one key: GET, DELETE, QUEUE_POP, QUEUE_LEN, WATCH. */
int store_encode_key(const struct store_encoder *e, enum store_op op, struct store_bytes key);
/* Encodes a request with a key and a number: ADD, BARRIER. */
int store_encode_number(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                        int64_t number);
/* Encodes a request with a key and a value: SET, APPEND, QUEUE_PUSH. Appends everything but the
 * bytes of the value. The caller sends the value after the encoded bytes, so that a big value need
 * not be copied. */
int store_encode_value_head(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                            size_t value_len);
int store_encode_compare_set(const struct store_encoder *e, struct store_bytes key,
                             struct store_bytes expected, struct store_bytes desired);
/* Encodes a request with a list of keys: CHECK, WAIT, MULTI_GET. */
int store_encode_keys(const struct store_encoder *e, enum store_op op,
                      const struct store_bytes *keys, size_t key_count);
/* MULTI_SET of keys[i] to values[i]. */
int store_encode_pairs(const struct store_encoder *e, const struct store_bytes *keys,
                       const struct store_bytes *values, size_t pair_count);

/* Returns the name of the part of a request that exceeds a limit of crun's server ("a key", "the
 * list", …), and sets *limit to this limit. Returns NULL if no limit is exceeded. A client calls
 * this function before it sends a request, because a server closes the connection without a message
 * if a limit is exceeded. */
const char *store_request_excess(const struct store_bytes *keys, size_t key_count,
                                 const struct store_bytes *values, size_t value_count,
                                 size_t *limit);

#endif
