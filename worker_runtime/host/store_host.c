/* The module store_host: runs a store's server, with one key space, in this process. */
#include "store/store.h"
#include "worker_runtime/host/store_host.h"

#include <errno.h>
#include <stdlib.h>

struct host {
    struct store_server *server;
    struct store_space *space;
};

static void host_close(void *state) {
    struct host *h = state;
    store_space_close(h->space);
    store_server_stop(h->server);
    free(h);
}

static int host_open(uint16_t port, void **state, uint16_t *bound_port, struct cr_error *err) {
    struct host *h = calloc(1, sizeof(*h));
    if (h == NULL) return cr_fail(err, -ENOMEM, "host the store: out of memory");
    int rc = store_server_start(NULL, &h->server, err);
    if (rc == 0) rc = store_server_open(h->server, NULL, port, &h->space, bound_port, err);
    if (rc < 0) {
        host_close(h);
        return rc;
    }
    *state = h;
    return 0;
}

__attribute__((visibility("default"))) const struct store_host crunrt_store_host;
const struct store_host crunrt_store_host = {STORE_HOST_ABI, host_open, host_close};
