/* A store that this process hosts. The store's server is in the module store_host, because it needs
 * libuv, with which the library is not linked. */
#ifndef RUNTIME_HOSTED_STORE_H
#define RUNTIME_HOSTED_STORE_H

#include "base/error.h"
#include "worker_runtime/host/store_host.h"

/* The store that this process hosts. All fields are zero if it hosts no store. */
struct hosted_store {
    const struct store_host *module;
    void *state;
};

/* Loads the module store_host and opens a store at `port`, or at any free port if `port` is 0. Sets
 * *bound_port to the port that is used. Returns 0; or a negative errno, and sets err: for example
 * -ENOENT if the module cannot be loaded, or -EADDRINUSE if the port is in use. */
int hosted_store_open(struct hosted_store *h, uint16_t port, uint16_t *bound_port,
                      struct cr_error *err);
void hosted_store_close(struct hosted_store *h);

#endif
