/* The module lib/crunrt/store_host.so, which hosts a store in this process. It is used by a rank 0
 * that has no agent, and by crunrt_spawn(). It is a separate module because the server needs libuv
 * and a thread, which the library itself must not need. It exports one table, `crunrt_store_host`.
 */
#ifndef RUNTIME_STORE_HOST_H
#define RUNTIME_STORE_HOST_H

#include "base/error.h"

#include <stdint.h>

#define STORE_HOST_ABI    1
#define STORE_HOST_SYMBOL "crunrt_store_host"

struct store_host {
    uint32_t abi; /* version of this struct, STORE_HOST_ABI */
    /* Hosts a store on all interfaces. `port` 0 means any free port; *bound_port is set to the port
     * in use. Returns 0 or a negative errno, and sets err (-EADDRINUSE, …). */
    int (*open)(uint16_t port, void **state, uint16_t *bound_port, struct cr_error *err);
    /* Closes every connection, ends the server's thread and frees `state`. */
    void (*close)(void *state);
};

#endif
