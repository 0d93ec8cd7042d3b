/* What the module lib/crunrt/store_host.so exports as `crunrt_store_host`: a store in this process,
 * for rank 0 when no agent hosts one. A module of its own because the server needs libuv and a
 * thread. */
#ifndef STORE_HOST_INTERNAL_H
#define STORE_HOST_INTERNAL_H

#include "base/error.h"

#include <stdint.h>

#define STORE_HOST_ABI    1
#define STORE_HOST_SYMBOL "crunrt_store_host"

struct store_host {
    uint32_t abi; /* STORE_HOST_ABI */
    /* Listens on all interfaces; port 0: any free one. 0, -EADDRINUSE, … */
    int (*open)(uint16_t port, void **state, uint16_t *bound_port, struct cr_error *err);
    void (*close)(void *state); /* closes every connection; joins the thread */
};

#endif
