/* Sends the output of a connection. Then chooses the events for which the connection waits:
 * readable, writable, both or none; or closes the connection. */
#include "store/server/server_internal.h"

/* largest output memory in bytes that return_output() keeps for the next connection */
#define SPARE_MAX ((size_t) 1 << 20)

/* Sets the epoll events of the connection. A stalled client waits for EPOLLOUT even if all its
 * output is sent: on EPOLLOUT the loop carries out the requests that are left in c->rx. */
static void watch_events(struct store_connection *c) {
    uint32_t events = 0;
    if (!c->stalled && !c->half_closed) events |= EPOLLIN;
    if (c->session.out.pending > 0 || c->stalled) events |= EPOLLOUT;
    if (events == c->events) return;
    c->events = events;
    struct epoll_event watch = {.events = events, .data.ptr = c};
    (void) epoll_ctl(c->space->server->epoll_fd, EPOLL_CTL_MOD, c->fd, &watch);
}

void store_lend_output(struct store_connection *c) {
    struct store_server *server = c->space->server;
    if (c->session.out.bytes.data != NULL) return;
    c->session.out.bytes = server->out;
    server->out = (struct cr_buffer){0};
}

static void return_output(struct store_connection *c) {
    struct store_server *server = c->space->server;
    struct store_output *out = &c->session.out;
    if (out->pending > 0) return;
    if (server->out.data == NULL && out->bytes.cap <= SPARE_MAX) {
        server->out = out->bytes;
        out->bytes = (struct cr_buffer){0};
    }
    store_output_done(out);
}

void store_flush(struct store_connection *c) {
    size_t max = c->space->server->options.client_buffer_max + STORE_OUTPUT_PAUSE;
    if (c->session.lost != NULL || store_send_pending(c) < 0) {
        store_connection_close(c, c->session.lost);
        return;
    }
    if (c->session.out.pending > max) {
        store_connection_close(c, "it does not read its replies");
        return;
    }
    if (c->half_closed && c->session.out.pending == 0) {
        store_connection_close(c, NULL);
        return;
    }
    return_output(c);
    watch_events(c);
    store_connection_charge(c);
}
