/* The module lib/crunrt/store_host.so, which hosts a store in this process. Rank 0 uses it if no
 * agent hosts the store, and crunrt_spawn() uses it. It is a module of its own, because the store's
 * server needs libuv, and the library must not need libuv. The module exports one table,
 * `crunrt_store_host`. */
#ifndef RUNTIME_STORE_HOST_H
#define RUNTIME_STORE_HOST_H

#include "base/error.h"

#include <stdint.h>

#define STORE_HOST_ABI    1
#define STORE_HOST_SYMBOL "crunrt_store_host"

struct store_host {
    uint32_t abi; /* version of this struct, STORE_HOST_ABI */
    /* Hosts a store at `port` of all network interfaces, or at any free port if `port` is 0. Sets
     * *bound_port to the port that is used, and *state to the value that close() needs. Returns 0;
     * or a negative errno, for example -EADDRINUSE, and sets err. */
    int (*open)(uint16_t port, void **state, uint16_t *bound_port, struct cr_error *err);
    /* Closes every connection, ends the server's thread and frees `state`. */
    void (*close)(void *state);
};

#endif
