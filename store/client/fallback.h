/* What a store without an operation of its own makes of it out of the others, as torch's base class
 * does: for old servers and for the file store. */
#ifndef STORE_CLIENT_FALLBACK_H
#define STORE_CLIENT_FALLBACK_H

#include "store/store.h"

int store_fallback_append(struct store *s, struct store_bytes key, struct store_bytes value,
                          int64_t timeout_ms, struct cr_error *err);
int store_fallback_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct store_list *values, struct cr_error *err);
int store_fallback_multi_set(struct store *s, const struct store_bytes *keys,
                             const struct store_bytes *values, size_t pair_count,
                             int64_t timeout_ms, struct cr_error *err);
int store_fallback_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                           int64_t timeout_ms, struct cr_error *err);

/* A list of copies, from (data, len) pairs that are added one at a time. */
struct store_list_builder {
    struct store_list list; /* data are offsets until the list is built */
    char *block;
    size_t block_len, block_cap, item_cap;
};

int store_list_add(struct store_list_builder *b, const void *data, size_t len); /* 0 or -ENOMEM */
struct store_list store_list_build(struct store_list_builder *b);
void store_list_drop(struct store_list_builder *b);

#endif
