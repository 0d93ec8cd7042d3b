/* Each function of this header implements one operation of a store by other operations of the same
 * store, as torch's base class Store does. The TCP client calls such a function if the server lacks
 * the operation. The file store uses all of these functions except store_fallback_append(). */
#ifndef STORE_CLIENT_FALLBACK_H
#define STORE_CLIENT_FALLBACK_H

#include "store/client/client.h"

int store_fallback_append(struct store *s, struct store_bytes key, struct store_bytes value,
                          int64_t timeout_ms, struct cr_error *err);
int store_fallback_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct store_list *values, struct cr_error *err);
int store_fallback_multi_set(struct store *s, const struct store_bytes *keys,
                             const struct store_bytes *values, size_t pair_count,
                             int64_t timeout_ms, struct cr_error *err);
int store_fallback_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                           int64_t timeout_ms, struct cr_error *err);

#endif
