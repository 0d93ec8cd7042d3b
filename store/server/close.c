/* Closes connections.
 *
 * To close one client costs three system calls, about 12 us. When a space is cleared, thousands of
 * connections end at the same moment. Therefore they are only dismissed: a dismissed connection
 * leaves its space at once, and an idle handle of the loop closes and frees FREED_PER_TURN of the
 * dismissed connections in each turn. While a space of 8,000 clients is cleared, the longest GET of
 * a client of another space takes 6 to 7 ms; without dismissing, it takes 96 to 106 ms
 * (docs/benchmarks.md, "What one client notices of another").
 *
 * If only one connection ends, it is closed at once. Its struct is freed later by the idle handle,
 * too, because functions further up the stack may still have a pointer to the struct. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

#include <sys/socket.h>
#include <unistd.h>

#define FREED_PER_TURN 64

/* A connection whose buffers hold at most this many bytes is never closed because of the memory
 * limit: it is too small to be the reason that memory is short. */
#define HELD_FREE ((size_t) 64 << 10)

/* Reads and discards input before closing, because the kernel resets a connection whose socket is
 * closed with unread input, and torch 1.13.1 aborts when its connection is reset. The number of
 * reads is limited, because the client may send without end. */
void store_close_softly(int fd) {
    for (int i = 0; i < 16 && recv(fd, NULL, INT32_MAX, MSG_TRUNC | MSG_DONTWAIT) > 0; i++) {
    }
    (void) shutdown(fd, SHUT_WR);
    (void) close(fd);
}

/* ---- freeing connections that have left their space ---- */

/* Removes the descriptor from the epoll instance and closes it. Closing alone is not enough: the
 * kernel drops a socket from an epoll instance only when the last descriptor of the socket is
 * closed, and a child process between fork and exec has a copy of each descriptor. epoll_wait()
 * could then return events that point to the freed connection. */
static void close_dismissed(const struct store_server *server, int fd) {
    (void) epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    store_close_softly(fd);
}

static void free_left(struct store_server *server, size_t max) {
    while (!LIST_EMPTY(&server->left) && max-- > 0) {
        struct store_connection *c = LIST_FIRST(&server->left);
        LIST_REMOVE(c, next);
        if (c->dismissed) close_dismissed(server, c->fd);
        store_parser_done(&c->parser);
        cr_buffer_done(&c->rx);
        free(c);
    }
}

void store_connections_free(struct store_server *server) { free_left(server, SIZE_MAX); }

static void on_freeing(uv_idle_t *idle) {
    struct store_server *server = CR_CONTAINER_OF(idle, struct store_server, freeing);
    free_left(server, FREED_PER_TURN);
    if (LIST_EMPTY(&server->left)) (void) uv_idle_stop(idle);
    struct store_space *s;
    LIST_FOREACH (s, &server->spaces, next) server->on_descriptor_free(s);
}

static void free_later(struct store_connection *c) {
    struct store_server *server = c->space->server;
    LIST_INSERT_HEAD(&server->left, c, next);
    (void) uv_idle_start(&server->freeing, on_freeing);
}

/* ---- leaving the space ---- */

static void leave_space(struct store_connection *c) {
    struct store_space *space = c->space;
    c->closing = true;
    store_keyspace_leave(&space->keys, &c->session);
    space->keys.memory -= c->charged;
    store_value_unref(c->block);
    c->block = NULL;
    LIST_REMOVE(c, next);
    space->connection_count--;
    space->server->connection_count--;
    store_limit_spoke(c);
    if (c->admin) space->admin_count--;
}

/* Removes the descriptor from the epoll instance, and the connection's events from the batch that
 * is being served. A descriptor that is passed to the callback of a magic number stays open; if it
 * stayed in the epoll instance, epoll_wait() would return events that point to the freed
 * connection. */
static void stop_watching(struct store_connection *c) {
    struct store_server *server = c->space->server;
    (void) epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    for (int i = server->ready_at; i < server->ready_count; i++) {
        if (server->ready[i].data.ptr == c) server->ready[i].data.ptr = NULL;
    }
}

void store_connection_release(struct store_connection *c) {
    leave_space(c);
    stop_watching(c);
    free_later(c);
    c->space->server->on_descriptor_free(c->space);
}

void store_connection_dismiss(struct store_connection *c) {
    leave_space(c);
    c->dismissed = true;
    free_later(c);
}

void store_connection_close(struct store_connection *c, const char *reason) {
    if (c->closing) return;
    if (reason != NULL) {
        store_server_log(c->space->server, &c->peer, reason);
        /* sends as many of the replies to earlier requests as the socket takes */
        (void) store_send_pending(c);
    }
    store_connection_release(c);
    store_close_softly(c->fd);
}

/* ---- store_connection_charge(): counting a connection's memory ---- */

/* Returns how many bytes the connection's buffers use for incomplete requests and unread replies.
 * The values of keys are not counted here: the key space counts them. */
static size_t held_by(const struct store_connection *c) {
    const struct store_output *out = &c->session.out;
    return c->rx.cap + c->parser.item_cap * sizeof(*c->parser.items) +
           (out->pending > 0 ? out->bytes.cap : 0) + (c->block == NULL ? 0 : c->block->len) +
           (c->session.listing == NULL ? 0 : c->session.listing->bytes.cap);
}

void store_connection_charge(struct store_connection *c) {
    struct store_keyspace *keys = &c->space->keys;
    size_t held = held_by(c);
    if (held == c->charged) return;
    keys->memory += held - c->charged;
    bool grew = held > c->charged;
    c->charged = held;
    if (grew && held > HELD_FREE && !store_keyspace_affords(keys, 0))
        store_connection_close(c, "memory limit of the store reached");
}
