/* What store.c and store_more.c share: a call takes the turn on the root and builds raw keys. */
#ifndef CRUNRT_STORE_INTERNAL_H
#define CRUNRT_STORE_INTERNAL_H

#include "worker_runtime/report/report.h"
#include "worker_runtime/store/store.h"

/* The store that owns the connection, locked; unlock its `lock`. */
struct crunrt_store *rt_store_lock(struct crunrt_store *store);

/* The raw key, in `text`, which the caller frees. */
int rt_store_key(const struct crunrt_store *store, const char *key, char **text,
                 struct store_bytes *out);

/* 0, or -EINVAL if there should be bytes and are none. */
int rt_check_value(const char *key, const void *value, size_t len);

struct rt_key_list {
    struct store_bytes *keys;
    size_t count;
};

int rt_key_list_init(struct rt_key_list *list, const struct crunrt_store *store,
                     const char *const *keys, size_t key_count);
void rt_key_list_done(struct rt_key_list *list);

#endif
