/* The server of crun-agent, the first half of server.h: it hosts coordinators and stores for jobs
 * whose nodes run in other processes. query.c has the other half, an operator's questions and
 * orders. */
#include "rendezvous/server.h"

#include "rendezvous/dial/dial.h"
#include "rendezvous/host/host.h"
#include "rendezvous/secure/secure.h"
#include "rendezvous/way/way.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct rendezvous_server {
    struct coordinator_host *host;
    struct secure_ring *ring; /* the secrets; NULL = none */
    void (*on_close)(void *arg);
    void *arg;
};

int rendezvous_serve(uv_loop_t *loop, const struct rendezvous_server_options *options,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err) {
    char bind[RDZV_ADDR_MAX];
    int rc = addr_choose_listen(options->listen.host, bind, err);
    if (rc < 0) return rc;
    struct rendezvous_server *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "start the coordinator: out of memory");
    /* "" as store_addr means that workers use the address at which their node reached this host */
    const char *store = addr_is_any(bind) ? "" : bind;
    struct coordinator_host_options o = {
        .store_host = bind, .store_addr = store, .listen_host = bind,
        .listen_port = options->listen.port, .ports = options->ports,
        .store_guard = &options->store_guard, .jobs_come_later = true,
        .close_timeout_ms = options->close_timeout_ms};
    rc = secure_ring_find(options->auth, options->token_file, &s->ring, err);
    o.ring = s->ring;
    o.says_open = options->auth != RENDEZVOUS_AUTH_OFF && !addr_is_loopback(bind);
    if (rc == 0) rc = coordinator_host_open(loop, &o, &s->host, err);
    if (rc < 0) {
        secure_ring_close(s->ring);
        free(s);
        return rc;
    }
    *port = coordinator_host_port(s->host);
    *out = s;
    return 0;
}

void rendezvous_server_watch_ranks(struct rendezvous_server *server) {
    coordinator_host_watch_ranks(server->host);
}

void rendezvous_server_visit(const struct rendezvous_server *server,
                             const struct rendezvous_status_events *events, void *arg) {
    coordinator_host_visit(server->host, events, arg);
}

static void on_host_closed(void *arg) {
    struct rendezvous_server *s = arg;
    void (*on_close)(void *) = s->on_close;
    void *user = s->arg;
    secure_ring_close(s->ring);
    free(s);
    on_close(user);
}

void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg) {
    server->on_close = on_close;
    server->arg = arg;
    /* without this call, coordinator_host_close() would wait until all jobs of the host are over */
    coordinator_host_abandon(server->host, why);
    coordinator_host_close(server->host, why, on_host_closed, server);
}
