/* A store that this process hosts. Its server is in the module store_host and not in the library,
 * because the server needs libuv, which the library does not link. */
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
 * *bound_port to the port in use. Returns 0. On failure sets err and returns a negative errno:
 * -ENOENT if the module cannot be loaded, -EADDRINUSE if the port is in use, … */
int hosted_store_open(struct hosted_store *h, uint16_t port, uint16_t *bound_port,
                      struct cr_error *err);
void hosted_store_close(struct hosted_store *h);

#endif
