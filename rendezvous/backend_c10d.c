/* c10d: the endpoint names the coordinator's host. A single node hosts itself, on loopback, with a
 * port of the kernel's choice for each round. */
#include "rendezvous/backend.h"

#include <errno.h>
#include <stdio.h>

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err) {
    if (o->max_nodes > 1) {
        return cr_fail(err, -ENOTSUP, "more than one node is not supported yet by backend c10d");
    }
    out->hosting = 1;
    (void) snprintf(out->own_addr, sizeof(out->own_addr), "127.0.0.1");
    (void) snprintf(out->store_host, sizeof(out->store_host), "127.0.0.1");
    (void) snprintf(out->store_addr, sizeof(out->store_addr), "127.0.0.1");
    return 0;
}
