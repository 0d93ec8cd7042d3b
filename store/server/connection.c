/* One client's connection: opening it, and what happens when its descriptor is ready.
 *
 *     readable ─► read ─► serve: parse, apply, parse, apply… ─► flush its replies
 *                                    │                          └► flush the clients that it woke
 *                                    └ an incomplete request: kept in rx; a big value: in its block
 *
 * The replies to all requests of one read are sent by one system call.
 *
 * All connections are in one epoll instance, which the loop polls as a single handle, for the
 * following reason. With thousands of clients, a connection's struct is no longer in the cache when
 * the connection becomes ready. epoll_wait() returns a batch of events, which names the connections
 * to serve next. So while this file serves one connection, it prefetches the struct of a later one.
 * With one libuv handle per client the batch would not be known. At 2,048 connections the server
 * reaches 0.97 of the speed of a bare echo server, and 0.93 without the shared epoll instance and
 * the prefetching (docs/benchmarks.md, "The store"). */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define BIG_PEEK  ((size_t) 4 << 10)   /* number of bytes that the first recv() of a request reads
                                        * at most, if the request's value is probably big */
/* largest part of a request, in bytes, that is copied from c->rx to server->rx before the next
 * recv() */
#define SMALL_RX  ((size_t) 16 << 10)

/* Number of connections that a space accepts beyond client_max, for administrators, so that
 * 'crun-store stat' works while the space is full. Connections beyond these are refused. */
#define ADMIN_SPARE 8

/* ---- opening ---- */

static bool is_full(const struct store_space *space) {
    size_t max = space->server->options.client_max;
    return max > 0 && space->connection_count >= max + ADMIN_SPARE;
}

static bool has_all_clients(const struct store_space *space) {
    size_t max = space->server->options.client_max;
    return max > 0 && space->connection_count - space->admin_count >= max;
}

/* Adds the connection to the epoll instance. Returns 0, or -ENOMEM if epoll_ctl() fails: it fails
 * only if memory in the kernel is short. */
static int watch(struct store_connection *c) {
    c->events = EPOLLIN;
    struct epoll_event event = {.events = c->events, .data.ptr = c};
    int rc = epoll_ctl(c->space->server->epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
    return rc < 0 ? -ENOMEM : 0;
}

static struct store_connection *new_connection(struct store_space *space, int fd,
                                               const union store_peer *peer) {
    struct store_connection *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    c->space = space;
    c->fd = fd;
    c->peer = *peer;
    c->parser.limits = &space->server->limits;
    c->session.lists_in_pieces = true;
    c->spare = has_all_clients(space);
    if (watch(c) == 0) return c;
    free(c);
    return NULL;
}

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer) {
    bool near = store_space_is_near(space, fd, peer);
    bool full = is_full(space) || !store_limit_has_room(space->server, near);
    struct store_connection *c = full ? NULL : new_connection(space, fd, peer);
    if (c == NULL) {
        store_server_log(space->server, peer, full ? "too many clients" : "out of memory");
        store_close_softly(fd);
        return;
    }
    LIST_INSERT_HEAD(&space->connections, c, next);
    space->connection_count++;
    space->server->connection_count++;
    c->near = near;
    c->stranger = space->restricted && !near;
    store_limit_opened(c);
    /* a stranger is served only if its first bytes are a registered magic number; if none is
     * registered, it is refused at once */
    if (c->stranger && space->server->magic_count == 0) store_connection_refuse(c);
}

/* ---- reading ---- */

/* Call this when the client has closed its sending side. The function drops the client's wait and
 * watches, and sends the remaining replies. */
static void half_close(struct store_connection *c) {
    struct store_output out = c->session.out;
    c->half_closed = true;
    c->session.out = (struct store_output){0};
    store_keyspace_leave(&c->space->keys, &c->session);
    c->session.out = out;
    store_flush(c);
}

/* Call this with the result `n` of recv(). Returns true if bytes were received, and adds their
 * number to space->bytes_in. Otherwise returns false, and does what is needed: at the end of the
 * input it half-closes the connection; after an error it closes the connection. After EAGAIN,
 * EWOULDBLOCK and EINTR it does nothing, because the loop reports the connection again when it is
 * readable. */
static bool received(struct store_connection *c, ssize_t n) {
    if (n > 0) {
        c->space->bytes_in += (uint64_t) n;
        return true;
    }
    if (n == 0) {
        half_close(c);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        store_connection_close(c, NULL);
    }
    return false;
}

static void keep(struct store_connection *c, const uint8_t *data, size_t len) {
    c->rx.len = 0;
    if (cr_buffer_append(&c->rx, data, len) < 0) store_connection_close(c, "out of memory");
    if (len == 0) cr_buffer_done(&c->rx);
}

/* Call this after requests of `c` were carried out. The function sends the replies to `c`, and the
 * output of the sessions that these requests have put on the ready list. */
static void flush_all(struct store_connection *c) {
    struct store_space *space = c->space;
    store_count_rate(space);
    if (!c->closing) store_flush(c);
    store_turn_flush_woken(space);
}

/* Reads and serves requests in the usual case: they fit into server->rx, the buffer that all
 * connections share. If the value of the client's previous request was big, the next value is
 * probably big, too. In this case the function reads only BIG_PEEK bytes, so that most of the value
 * is not received into server->rx, but later directly into its final memory. */
static void read_small(struct store_connection *c) {
    uint8_t *rx = c->space->server->rx;
    size_t before = c->rx.len;
    size_t room = c->sends_big ? BIG_PEEK : STORE_READ_SIZE - before;
    if (before > 0) memcpy(rx, c->rx.data, before);
    ssize_t n = recv(c->fd, rx + before, room, 0);
    if (!received(c, n)) return;
    store_lend_output(c);
    struct store_progress p = store_serve(c, rx, before + (size_t) n);
    if (!c->closing && (before > 0 || p.kept > 0)) keep(c, rx + p.used, p.kept);
    flush_all(c);
}

static void serve_kept(struct store_connection *c) {
    store_lend_output(c);
    struct store_progress p = store_serve(c, (const uint8_t *) c->rx.data, c->rx.len);
    if (!c->closing) {
        c->rx.len = p.used + p.kept;
        cr_buffer_consume(&c->rx, p.used);
        if (c->rx.len == 0) cr_buffer_done(&c->rx);
    }
    flush_all(c);
}

/* Reads more bytes of a long request whose beginning is in c->rx, and appends them to c->rx. */
static void read_large(struct store_connection *c) {
    if (cr_buffer_reserve(&c->rx, STORE_READ_SIZE) < 0) {
        store_connection_close(c, "out of memory");
        return;
    }
    ssize_t n = recv(c->fd, c->rx.data + c->rx.len, STORE_READ_SIZE, 0);
    if (!received(c, n)) return;
    c->rx.len += (size_t) n;
    serve_kept(c);
}

/* Doubles the room of c->block, but not beyond the size of the value. Returns 0 or -ENOMEM. */
static int grow_block(struct store_connection *c) {
    size_t cap = c->block->cap, left = c->block_len - cap;
    struct store_value *v = store_value_grow(c->block, left < cap ? c->block_len : 2 * cap);
    if (v == NULL) return -ENOMEM;
    c->block = v;
    return 0;
}

static void read_block(struct store_connection *c) {
    if (c->block->len == c->block->cap && grow_block(c) < 0) {
        store_connection_close(c, "out of memory");
        return;
    }
    struct store_value *v = c->block;
    ssize_t n = recv(c->fd, v->data + v->len, v->cap - v->len, 0);
    if (!received(c, n)) return;
    v->len += (uint32_t) n;
    store_connection_charge(c);
    if (c->closing || v->len < c->block_len) return;
    store_lend_output(c);
    store_serve_block(c);
    flush_all(c);
}

/* ---- events ---- */

static void on_writable(struct store_connection *c) {
    if (c->session.listing != NULL && store_turn_list_on(c)) return;
    store_flush(c);
    if (c->closing || !c->stalled || c->session.out.pending > STORE_OUTPUT_PAUSE / 2) return;
    c->stalled = false;
    serve_kept(c);
}

static void on_readable(struct store_connection *c) {
    if (c->block != NULL) {
        read_block(c);
    } else if (c->rx.len > SMALL_RX) {
        read_large(c);
    } else {
        read_small(c);
    }
}

static void on_event(struct store_connection *c, uint32_t events) {
    if (c->closing) return; /* an earlier event of this batch has dismissed the connection */
    c->space->server->turn_cost = 0;
    if (events & EPOLLERR) {
        store_connection_close(c, NULL);
        return;
    }
    if (events & EPOLLHUP) events |= EPOLLIN | EPOLLOUT; /* the next recv() or send() returns the
                                                          * reason */
    if (events & EPOLLOUT) on_writable(c);
    if (c->closing || !(events & EPOLLIN) || c->stalled || c->half_closed) return;
    on_readable(c);
}

static void prefetch(const struct store_connection *c) {
    if (c == NULL) return;
    for (size_t at = 0; at < sizeof(*c); at += 64) __builtin_prefetch((const char *) c + at);
}

static void on_clients(uv_poll_t *poll, int status, int events) {
    struct store_server *server = CR_CONTAINER_OF(poll, struct store_server, clients);
    (void) status, (void) events;
    server->ready_count = epoll_wait(server->epoll_fd, server->ready, STORE_READY_MAX, 0);
    for (server->ready_at = 0; server->ready_at < server->ready_count;) {
        struct epoll_event event = server->ready[server->ready_at++];
        if (server->ready_at + 1 < server->ready_count)
            prefetch(server->ready[server->ready_at + 1].data.ptr);
        if (event.data.ptr != NULL) on_event(event.data.ptr, event.events);
    }
    server->ready_count = server->ready_at = 0;
}

/* ---- the epoll instance of all connections ---- */

int store_clients_open(struct store_server *server) {
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0) return -errno;
    int rc = uv_poll_init(&server->loop, &server->clients, server->epoll_fd);
    if (rc < 0) {
        cr_close_fd(&server->epoll_fd);
        return rc;
    }
    (void) uv_idle_init(&server->loop, &server->freeing);
    (void) uv_poll_start(&server->clients, UV_READABLE, on_clients);
    return 0;
}

void store_clients_close(struct store_server *server) {
    uv_close((uv_handle_t *) &server->clients, NULL);
    uv_close((uv_handle_t *) &server->freeing, NULL);
}

void store_clients_free(struct store_server *server) {
    store_connections_free(server);
    cr_close_fd(&server->epoll_fd);
}
