/* The asynchronous client with the face of a store, so that whatever is done to stores can be done to
 * it: each call runs the loop until its callback came. */
#ifndef TESTS_ASYNC_STORE_H
#define TESTS_ASYNC_STORE_H

#include "store/store.h"

/* Connects. *protocol is what was found; borrowed. */
int async_store_open(const char *host, uint16_t port, enum store_protocol protocol,
                     int64_t timeout_ms, struct store **out, const char **found,
                     struct cr_error *err);

/* As store_client_add_raw(). */
int async_store_add_raw(struct store *s, struct store_bytes raw_key, int64_t delta,
                        int64_t timeout_ms, int64_t *total, struct cr_error *err);

#endif
