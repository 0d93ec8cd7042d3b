/* Requests out, for the clients. */
#ifndef STORE_WIRE_ENCODER_H
#define STORE_WIRE_ENCODER_H

#include "base/buffer.h"
#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

/* Each function below appends one whole request, or changes nothing and returns -ENOMEM, or
 * -ENOTSUP if the dialect lacks the operation. `prefix` goes in front of every key: "/" for the
 * keys that users name, "" for raw keys such as "init/". */
struct store_encoder {
    struct cr_buffer *out;
    enum store_dialect dialect;
    struct store_bytes prefix;
};

int store_encode_validate(struct cr_buffer *out);
int store_encode_ping(struct cr_buffer *out, uint32_t nonce);

/* NUM_KEYS, LIST_KEYS, CANCEL_WAIT. */
int store_encode_plain(const struct store_encoder *e, enum store_op op);
/* GET, DELETE, QUEUE_POP, QUEUE_LEN, WATCH. */
int store_encode_key(const struct store_encoder *e, enum store_op op, struct store_bytes key);
/* ADD, BARRIER. */
int store_encode_number(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                        int64_t number);
/* SET, APPEND, QUEUE_PUSH: everything but the bytes of the value, which the caller sends next, so
 * that a big value need not be copied. */
int store_encode_value_head(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                            size_t value_len);
int store_encode_compare_set(const struct store_encoder *e, struct store_bytes key,
                             struct store_bytes expected, struct store_bytes desired);
/* CHECK, WAIT, MULTI_GET. */
int store_encode_keys(const struct store_encoder *e, enum store_op op,
                      const struct store_bytes *keys, size_t key_count);
/* MULTI_SET. */
int store_encode_pairs(const struct store_encoder *e, const struct store_bytes *keys,
                       const struct store_bytes *values, size_t pair_count);

/* Returns which part of a request is over a limit of our server ("a key", "the list", …), and the
 * limit in *limit; NULL if none is. A client asks before it sends, because a server closes the
 * connection of a client that exceeds a limit, without saying why. */
const char *store_request_excess(const struct store_bytes *keys, size_t key_count,
                                 const struct store_bytes *values, size_t value_count,
                                 size_t *limit);

#endif
