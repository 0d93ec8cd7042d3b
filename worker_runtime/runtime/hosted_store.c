/* Opens and closes the store that this process hosts. It loads the module store_host, and calls the
 * functions of its table, struct store_host. */
#include "worker_runtime/runtime/hosted_store.h"

#include "worker_runtime/modules/modules.h"

#include <errno.h>
#include <stddef.h>

int hosted_store_open(struct hosted_store *h, uint16_t port, uint16_t *bound_port,
                      struct cr_error *err) {
    void *table = NULL;
    int rc = module_load("store_host", STORE_HOST_SYMBOL, &table, err);
    if (rc < 0) return rc;
    h->module = table;
    if (h->module->abi != STORE_HOST_ABI) {
        return cr_fail(err, -ENOENT,
                       "load the module 'store_host': it is of version %u and this library of %d; "
                       "install both from one build",
                       h->module->abi, STORE_HOST_ABI);
    }
    return h->module->open(port, &h->state, bound_port, err);
}

void hosted_store_close(struct hosted_store *h) {
    if (h->state != NULL) h->module->close(h->state);
    h->state = NULL;
}
