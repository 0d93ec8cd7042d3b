/* Passes connections of nodes from the store's thread to the agent's loop.
 *
 * Nodes connect to a port of the store's server. If the first 4 bytes of a connection are those of
 * RDZV_MAGIC, the connection is no client of the store: the server's thread calls on_handoff(),
 * which puts the connection into a queue and wakes the loop with an async handle. */
#include "rendezvous/host/host_internal.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* Queues a connection that the store's server hands over. Runs on the store's thread. */
static void on_handoff(void *arg, const struct store_handoff *from) {
    struct coordinator_host *host = arg;
    struct handoff *h = malloc(sizeof(*h) + from->len);
    if (h == NULL) {
        (void) close(from->fd);
        store_server_given_back(host->store);
        return;
    }
    *h = (struct handoff){.fd = from->fd, .len = from->len};
    memcpy(h->data, from->data, from->len);
    uv_mutex_lock(&host->lock);
    STAILQ_INSERT_TAIL(&host->handoffs, h, entry);
    if (host->listens) (void) uv_async_send(&host->wake);
    uv_mutex_unlock(&host->lock);
}

static struct handoff *take_handoff(struct coordinator_host *host) {
    uv_mutex_lock(&host->lock);
    struct handoff *h = STAILQ_FIRST(&host->handoffs);
    if (h != NULL) STAILQ_REMOVE_HEAD(&host->handoffs, entry);
    uv_mutex_unlock(&host->lock);
    return h;
}

static void on_wake(uv_async_t *wake) {
    struct coordinator_host *host = wake->data;
    for (struct handoff *h; (h = take_handoff(host)) != NULL; free(h)) {
        if (host->closing_handles) (void) close(h->fd);
        else host_add_remote(host, h->fd, h->data, h->len);
    }
    host_end_event(host);
}

int host_accept_handoffs(struct coordinator_host *host, struct cr_error *err) {
    int rc = store_server_register_magic(host->store, RDZV_MAGIC, on_handoff, host);
    return rc < 0 ? cr_fail(err, rc, "cannot listen for nodes: %s", strerror(-rc)) : 0;
}

int host_start_listening(struct coordinator_host *host, struct cr_error *err) {
    int rc = uv_async_init(host->loop, &host->wake, on_wake);
    if (rc < 0) return cr_fail(err, rc, "cannot listen for nodes: %s", uv_strerror(rc));
    host->wake.data = host;
    host->open_handles++;
    uv_mutex_lock(&host->lock);
    host->listens = true;
    if (!STAILQ_EMPTY(&host->handoffs)) (void) uv_async_send(&host->wake);
    uv_mutex_unlock(&host->lock);
    return 0;
}

void host_free_handoffs(struct coordinator_host *host) {
    for (struct handoff *h; (h = take_handoff(host)) != NULL; free(h)) (void) close(h->fd);
}
