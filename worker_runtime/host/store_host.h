/* The module lib/crunrt/store_host.so: it hosts a store in this process, for a rank 0 without an
 * agent and for crunrt_spawn(). It is a module because the server needs libuv and a thread, and the
 * library needs neither. It exports one table, `crunrt_store_host`. */
#ifndef RUNTIME_STORE_HOST_H
#define RUNTIME_STORE_HOST_H

#include "base/error.h"

#include <stdint.h>

#define STORE_HOST_ABI    1
#define STORE_HOST_SYMBOL "crunrt_store_host"

struct store_host {
    uint32_t abi; /* STORE_HOST_ABI */
    /* Hosts a store on all interfaces. `port` 0 takes any free port; *bound_port is the port taken.
     * 0 or a negative errno with a text (-EADDRINUSE, …). */
    int (*open)(uint16_t port, void **state, uint16_t *bound_port, struct cr_error *err);
    /* Closes every connection, ends the server's thread and frees. */
    void (*close)(void *state);
};

#endif
