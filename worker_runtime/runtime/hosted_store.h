/* A store that this process hosts, through the module store_host. */
#ifndef RUNTIME_HOSTED_STORE_H
#define RUNTIME_HOSTED_STORE_H

#include "base/error.h"
#include "worker_runtime/host/store_host.h"

/* All zeros: this process hosts no store. */
struct hosted_store {
    const struct store_host *module;
    void *state;
};

/* Loads the module and opens a store at `port` (0: any free port); *bound_port is the port taken.
 * 0 or a negative errno with a text (-ENOENT: no usable module; -EADDRINUSE, …). */
int hosted_store_open(struct hosted_store *h, uint16_t port, uint16_t *bound_port,
                      struct cr_error *err);
void hosted_store_close(struct hosted_store *h);

#endif
