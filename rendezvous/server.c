/* Hosts coordinators and stores for jobs of other nodes: the server half of server.h. */
#include "rendezvous/server.h"

#include "rendezvous/host/host.h"
#include "rendezvous/way/way.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct rendezvous_server {
    struct coordinator_host *host;
    void (*on_close)(void *arg);
    void *arg;
};

static bool is_all_interfaces(const char *host) {
    return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

int rendezvous_serve(uv_loop_t *loop, const struct cr_endpoint *listen, int64_t close_timeout_ms,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err) {
    struct backend_addresses found = {.first = ""};
    int rc = is_all_interfaces(listen->host) ? 0 : backend_look_up(listen->host, &found, err);
    if (rc < 0) return rc;
    struct rendezvous_server *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "start the coordinator: out of memory");
    /* If store_addr is "", workers use the address at which their node reached this host. */
    struct coordinator_host_options o = {
        .store_host = found.first, .store_addr = found.first, .listen_host = found.first,
        .listen_port = listen->port, .jobs_come_later = true, .close_timeout_ms = close_timeout_ms};
    rc = coordinator_host_open(loop, &o, &s->host, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *port = coordinator_host_port(s->host);
    *out = s;
    return 0;
}

static void on_host_closed(void *arg) {
    struct rendezvous_server *s = arg;
    void (*on_close)(void *) = s->on_close;
    void *user = s->arg;
    free(s);
    on_close(user);
}

void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg) {
    server->on_close = on_close;
    server->arg = arg;
    coordinator_host_close(server->host, why, on_host_closed, server);
}
