/* One client: bytes in, requests through the key space, bytes out.
 *
 *     readable ─► read ─► serve: parse, apply, parse, apply… ─► flush own replies
 *                                    │                          └► flush those whom it woke
 *                                    └ half a request: kept in rx; a big value: its block
 *
 * All requests of one read are answered by one send. A client that does not read its replies is
 * not read from; one that goes away half-way is finished quietly. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SMALL_RX                                                                                   \
    ((size_t) 16 << 10) /* up to here a half request is moved in front of the next read */
#define IOVECS_MAX 64
#define SPARE_MAX  ((size_t) 1 << 20) /* lent output memory that grew over this is given back */

static void on_event(struct store_connection *c, uint32_t events);
static void on_more_woken(uv_idle_t *idle);

/* ---- life ---- */

/* A stalled client is woken by being writable even if everything has been sent meanwhile: requests
 * of it may wait in rx. */
static void watch_events(struct store_connection *c) {
    uint32_t events = 0;
    if (!c->stalled && !c->finished) events |= EPOLLIN;
    if (c->session.out.pending > 0 || c->stalled) events |= EPOLLOUT;
    if (events == c->events) return;
    c->events = events;
    struct epoll_event watch = {.events = events, .data.ptr = c};
    (void) epoll_ctl(c->space->server->epoll_fd, EPOLL_CTL_MOD, c->fd, &watch);
}

static void link_connection(struct store_space *space, struct store_connection *c) {
    c->next = space->connections;
    if (c->next != NULL) c->next->prev = c;
    space->connections = c;
    space->connection_count++;
}

static void unlink_connection(struct store_connection *c) {
    struct store_space *space = c->space;
    if (c->next != NULL) c->next->prev = c->prev;
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        space->connections = c->next;
    }
    space->connection_count--;
    if (c->admin) space->admin_count--;
}

/* Administrators have their places beyond the limit, and when those are taken, within. */
static bool is_full(const struct store_space *space) {
    size_t max = space->server->options.client_max;
    return max > 0 && space->connection_count >= max + STORE_ADMIN_SPARE;
}

static bool has_all_clients(const struct store_space *space) {
    size_t max = space->server->options.client_max;
    return max > 0 && space->connection_count - space->admin_count >= max;
}

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer) {
    bool full = is_full(space);
    struct store_connection *c = full ? NULL : calloc(1, sizeof(*c));
    if (c == NULL) {
        store_server_log(space->server, peer, full ? "too many clients" : "out of memory");
        store_close_softly(fd);
        return;
    }
    c->space = space;
    c->fd = fd;
    c->peer = *peer;
    c->parser.limits = &space->server->limits;
    c->session.lists_in_pieces = true;
    c->spare = has_all_clients(space);
    c->events = EPOLLIN;
    struct epoll_event watch = {.events = c->events, .data.ptr = c};
    if (epoll_ctl(space->server->epoll_fd, EPOLL_CTL_ADD, fd, &watch) < 0) {
        store_server_log(space->server, peer, "out of memory");
        store_close_softly(fd);
        free(c);
        return;
    }
    link_connection(space, c);
}

/* A RST is what 1.13.1 clients do not survive. */
void store_close_softly(int fd) {
    for (int i = 0; i < 16 && recv(fd, NULL, INT32_MAX, MSG_TRUNC | MSG_DONTWAIT) > 0; i++) {
    }
    (void) shutdown(fd, SHUT_WR);
    (void) close(fd);
}

/* Closing alone may leave it in the epoll: a child on its way to exec has it open, too. */
static void close_dismissed(const struct store_server *server, int fd) {
    (void) epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    store_close_softly(fd);
}

/* Of those that left, up to `count`. */
static void bury(struct store_server *server, size_t count) {
    struct store_connection *c;
    while ((c = server->closed) != NULL && count-- > 0) {
        server->closed = c->next;
        if (c->dismissed) close_dismissed(server, c->fd);
        store_parser_done(&c->parser);
        cr_buffer_done(&c->rx);
        free(c);
    }
}

static void on_burial(uv_idle_t *idle) {
    struct store_server *server = CR_CONTAINER_OF(idle, struct store_server, burial);
    bury(server, STORE_BURIALS_MAX);
    if (server->closed == NULL) (void) uv_idle_stop(idle);
    for (struct store_space *s = server->spaces; s != NULL; s = s->next) store_listener_resume(s);
}

static void bury_later(struct store_connection *c) {
    struct store_server *server = c->space->server;
    c->next = server->closed;
    server->closed = c;
    (void) uv_idle_start(&server->burial, on_burial);
}

/* Deleted by name: who is handed over goes on living. What this batch still says of it is void. */
static void stop_watching(struct store_connection *c) {
    struct store_server *server = c->space->server;
    (void) epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    for (int i = server->ready_at; i < server->ready_count; i++) {
        if (server->ready[i].data.ptr == c) server->ready[i].data.ptr = NULL;
    }
}

static void leave_space(struct store_connection *c) {
    struct store_space *space = c->space;
    c->closing = true;
    store_keyspace_leave(&space->keys, &c->session);
    space->keys.memory -= c->charged;
    store_value_unref(c->block);
    c->block = NULL;
    unlink_connection(c);
}

/* Takes it out of the space; what remains is memory, freed in one of the loop's next turns. */
static void leave(struct store_connection *c) {
    leave_space(c);
    stop_watching(c);
    bury_later(c);
    store_listener_resume(c->space);
}

/* Saying FIN is most of the work, and nobody but this client sees when it is done. */
void store_connection_dismiss(struct store_connection *c) {
    leave_space(c);
    c->dismissed = true;
    bury_later(c);
}

static int send_pending(struct store_connection *c);

void store_connection_close(struct store_connection *c, const char *reason) {
    if (c->closing) return;
    if (reason != NULL) {
        store_server_log(c->space->server, &c->peer, reason);
        (void) send_pending(c); /* answers that were earned; no second try */
    }
    leave(c);
    store_close_softly(c->fd);
}

/* Counts what the connection holds in the space's memory: what it sent by halves and does not
 * read; values are counted where they are kept. Over the limit it is closed, unless it is
 * hardly to blame. */
static void charge(struct store_connection *c) {
    struct store_keyspace *keys = &c->space->keys;
    const struct store_output *out = &c->session.out;
    size_t held = c->rx.cap + c->parser.item_cap * sizeof(*c->parser.items) +
                  (out->pending > 0 ? out->bytes.cap : 0) + (c->block == NULL ? 0 : c->block->len) +
                  (c->session.listing == NULL ? 0 : c->session.listing->bytes.cap);
    if (held == c->charged) return;
    keys->memory += held - c->charged;
    bool grew = held > c->charged;
    c->charged = held;
    if (grew && held > STORE_HELD_FREE && !store_keyspace_affords(keys, 0)) {
        store_connection_close(c, "memory limit of the store reached");
    }
}

/* ---- bytes out ---- */

static void borrow_output(struct store_connection *c) {
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

/* Bytes with big values in between: those are lent, everything up to the next one is copied. */
static ssize_t send_chunks(struct store_connection *c) {
    const struct store_output *out = &c->session.out;
    size_t offset;
    int lending = 1;
    struct store_value *v = store_output_front(out, &offset);
    if (v != NULL && store_value_lendable(v)) {
        ssize_t n = store_lend(c->space->server, c->fd, v, offset);
        if (n != 0) return n;
        lending = 0;
    }
    struct iovec iov[IOVECS_MAX];
    struct msghdr message = {.msg_iov = iov};
    message.msg_iovlen = (size_t) store_output_iov(out, iov, IOVECS_MAX, lending);
    size_t len = 0;
    for (size_t i = 0; i < message.msg_iovlen; i++) len += iov[i].iov_len;
    return sendmsg(c->fd, &message, MSG_NOSIGNAL | (len < out->pending ? MSG_MORE : 0));
}

/* Sends until nothing is left, the kernel has enough, or it is others' turn. 0, or negative
 * when the peer is gone. */
static int send_pending(struct store_connection *c) {
    struct store_output *out = &c->session.out;
    size_t before = out->pending;
    while (out->pending > 0 && before - out->pending < STORE_SEND_TURN) {
        const char *next = out->bytes.data + out->bytes_sent;
        ssize_t n =
            out->chunk_count > 0 ? send_chunks(c) : send(c->fd, next, out->pending, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
        c->space->bytes_out += (uint64_t) n;
        store_output_sent(out, (size_t) n);
    }
    return 0;
}

/* Sends what there is, and settles what the connection waits for next. */
static void flush(struct store_connection *c) {
    size_t max = c->space->server->options.client_buffer_max + STORE_OUTPUT_PAUSE;
    if (c->session.lost != NULL || send_pending(c) < 0) {
        store_connection_close(c, c->session.lost);
        return;
    }
    if (c->session.out.pending > max) {
        store_connection_close(c, "it does not read its replies");
        return;
    }
    if (c->finished && c->session.out.pending == 0) {
        store_connection_close(c, NULL);
        return;
    }
    return_output(c);
    watch_events(c);
    charge(c);
}

/* Ten thousand waiters may have been woken at once: some now, the others in the loop's next
 * turns, so that whoever asks something meanwhile is answered in between. */
static void flush_woken(struct store_space *space) {
    for (int i = 0; i < STORE_WAKES_MAX; i++) {
        struct store_session *s = store_keyspace_take_ready(&space->keys);
        if (s == NULL) return;
        flush(CR_CONTAINER_OF(s, struct store_connection, session));
    }
    if (!TAILQ_EMPTY(&space->keys.ready)) (void) uv_idle_start(&space->waking, on_more_woken);
}

static void on_more_woken(uv_idle_t *idle) {
    struct store_space *space = CR_CONTAINER_OF(idle, struct store_space, waking);
    flush_woken(space);
    if (TAILQ_EMPTY(&space->keys.ready)) (void) uv_idle_stop(idle);
}

/* ---- requests ---- */

static void count_rate(struct store_space *space) {
    uint64_t now = uv_now(&space->server->loop);
    if (now - space->rate_since_ms < 1000) return;
    space->rate = (double) (space->operations - space->rate_operations) * 1000.0 /
                  (double) (now - space->rate_since_ms);
    space->rate_since_ms = now;
    space->rate_operations = space->operations;
}

/* What a request costs others that its own length and its replies do not show. */
static size_t hidden_cost(const struct store_space *space, const struct store_request *request) {
    if (request->op == STORE_OP_LIST_KEYS) return STORE_COST_OF_NAME * space->keys.table.count;
    return STORE_COST_OF_NAME * request->item_count;
}

static void apply(struct store_connection *c, const struct store_request *request) {
    struct store_space *space = c->space;
    const char *reason = NULL;
    space->server->turn_cost += hidden_cost(space, request);
    int64_t now = (int64_t) uv_now(&space->server->loop);
    space->operations++;
    int rc = store_keyspace_apply(&space->keys, &c->session, request, now, &reason);
    if (rc < 0) store_connection_close(c, reason);
    if (rc == 0 && c->session.listing != NULL) c->stalled = true;
}

/* Hands the descriptor to the room whose magic it sent; the connection is no longer ours. */
static void hand_over(struct store_connection *c, const uint8_t *data, size_t len) {
    struct store_server *server = c->space->server;
    for (size_t i = 0; i < server->magic_count; i++) {
        const struct store_magic *m = &server->magics[i];
        if (memcmp(m->magic, data, STORE_MAGIC_LEN) != 0) continue;
        struct store_handoff handoff = {.space = c->space, .fd = c->fd, .data = data, .len = len};
        leave(c);
        m->fn(m->arg, &handoff);
        return;
    }
    store_connection_close(c, "it speaks no protocol of the store");
}

/* Who is it? Returns the bytes that are done with; the dialect stays NONE while nobody can say. */
static size_t greet(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t consumed = 0;
    enum store_dialect dialect = STORE_DIALECT_NONE;
    if (store_detect(data, len, &dialect, &consumed) == 0) return 0;
    c->parser.dialect = dialect;
    c->session.legacy = dialect == STORE_DIALECT_LEGACY;
    if (dialect == STORE_DIALECT_ADMIN) {
        c->admin = true;
        c->space->admin_count++;
    }
    if (dialect == STORE_DIALECT_FOREIGN) hand_over(c, data, len);
    if (c->spare && !c->admin && !c->closing) store_connection_close(c, "too many clients");
    return consumed;
}

static void serve_admin(struct store_connection *c, uint8_t request) {
    struct cr_buffer text = {0};
    struct store_output *out = &c->session.out;
    if (request != STORE_ADMIN_STAT) {
        store_connection_close(c, "unknown administration request");
        return;
    }
    count_rate(c->space);
    int rc = store_stat(c->space, &text);
    c->space->server->turn_cost += STORE_COST_OF_STAT + text.len;
    if (rc == 0) rc = store_output_u64(out, text.len);
    if (rc == 0) rc = store_output_bytes(out, text.data, text.len);
    cr_buffer_done(&text);
    if (rc < 0) store_connection_close(c, "out of memory");
}

/* The tail of a big value is missing: from now on its bytes go straight into its block.
 * Returns the bytes of the request that must be kept: those in front of the value. */
static size_t begin_block(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t head;
    size_t full = store_parser_block(&c->parser, &head);
    if (full == 0) return len;
    c->block = store_value_new(full);
    if (c->block == NULL) {
        store_connection_close(c, "out of memory");
        return 0;
    }
    c->block_len = full;
    c->sends_big = true;
    c->block->len = (uint32_t) (len - head);
    memcpy(c->block->data, data + head, len - head);
    return head;
}

/* Stops serving a client that lets its replies pile up, until it has read them, and one that
 * asked for so much that it is others' turn: as if it did not read, until the loop's next turn. */
static bool stall(struct store_connection *c) {
    struct store_server *server = c->space->server;
    size_t pending = c->session.out.pending;
    if (c->session.listing != NULL) return c->stalled = true;
    if (server->turn_cost > STORE_TURN_COST) return c->stalled = true;
    if (pending < STORE_OUTPUT_PAUSE) return false;
    if (send_pending(c) < 0) {
        store_connection_close(c, NULL);
        return true;
    }
    server->turn_cost += pending - c->session.out.pending;
    c->stalled = c->session.out.pending >= STORE_OUTPUT_PAUSE;
    return c->stalled;
}

struct progress {
    size_t used; /* bytes that are done with */
    size_t kept; /* bytes behind them to keep, when fewer than all */
};

/* Serves every whole request in data[0..len). */
static struct progress serve(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t at = 0;
    if (c->parser.dialect == STORE_DIALECT_NONE) at = greet(c, data, len);
    while (at < len && !c->closing) {
        if (c->parser.dialect == STORE_DIALECT_NONE || stall(c)) break;
        if (c->parser.dialect == STORE_DIALECT_ADMIN) {
            serve_admin(c, data[at++]);
            continue;
        }
        struct store_request request;
        int rc = store_parse(&c->parser, data + at, len - at, &request);
        if (rc == 0) return (struct progress){at, begin_block(c, data + at, len - at)};
        if (rc < 0) {
            store_connection_close(c, c->parser.reason);
            break;
        }
        at += request.size;
        c->sends_big = false;
        apply(c, &request);
        store_parser_next(&c->parser);
    }
    return (struct progress){at, len - at};
}

/* ---- bytes in ---- */

/* The peer will send no more. Its waits are over; its replies still go out. */
static void finish(struct store_connection *c) {
    struct store_output out = c->session.out;
    c->finished = true;
    c->session.out = (struct store_output){0};
    store_keyspace_leave(&c->space->keys, &c->session);
    c->session.out = out;
    flush(c);
}

/* What recv() said: true if there are bytes. */
static bool received(struct store_connection *c, ssize_t n) {
    if (n > 0) {
        c->space->bytes_in += (uint64_t) n;
        return true;
    }
    if (n == 0) {
        finish(c);
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

/* Replies, wake-ups, bookkeeping: after anything was served. */
static void settle(struct store_connection *c) {
    struct store_space *space = c->space;
    count_rate(space);
    if (!c->closing) flush(c);
    flush_woken(space);
}

/* The usual case: everything happens in the shared read buffer. A client whose last request was a
 * big value is read in a small bite first, so that what follows the next one's head is received
 * where it will stay, instead of being copied there. */
static void read_small(struct store_connection *c) {
    uint8_t *rx = c->space->server->rx;
    size_t before = c->rx.len;
    size_t room = c->sends_big ? STORE_BIG_PEEK : STORE_READ_SIZE - before;
    if (before > 0) memcpy(rx, c->rx.data, before);
    ssize_t n = recv(c->fd, rx + before, room, 0);
    if (!received(c, n)) return;
    borrow_output(c);
    struct progress p = serve(c, rx, before + (size_t) n);
    if (!c->closing && (before > 0 || p.kept > 0)) keep(c, rx + p.used, p.kept);
    settle(c);
}

static void serve_kept(struct store_connection *c) {
    borrow_output(c);
    struct progress p = serve(c, (const uint8_t *) c->rx.data, c->rx.len);
    if (!c->closing) {
        c->rx.len = p.used + p.kept;
        cr_buffer_consume(&c->rx, p.used);
        if (c->rx.len == 0) cr_buffer_done(&c->rx);
    }
    settle(c);
}

/* A long list on its way: read behind what is there. */
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

static void block_complete(struct store_connection *c) {
    struct store_request request;
    struct store_value *block = c->block;
    c->block = NULL;
    charge(c); /* from now on the key space counts it */
    store_parser_complete(&c->parser, c->rx.data, (struct store_bytes){block->data, block->len},
                          &request);
    request.block = block;
    borrow_output(c);
    apply(c, &request);
    store_value_unref(block);
    store_parser_next(&c->parser);
    if (!c->closing) cr_buffer_done(&c->rx);
    settle(c);
}

static void read_block(struct store_connection *c) {
    struct store_value *v = c->block;
    ssize_t n = recv(c->fd, v->data + v->len, c->block_len - v->len, 0);
    if (!received(c, n)) return;
    v->len += (uint32_t) n;
    charge(c);
    if (!c->closing && v->len == c->block_len) block_complete(c);
}

/* ---- events ---- */

/* A client whose keys are being listed is stalled, so woken in each turn of the loop: a piece
 * of its list, then the others. Returns whether there is more to list, or it was closed. */
static bool list_on(struct store_connection *c) {
    const char *reason = NULL;
    int rc = store_keyspace_list_on(&c->space->keys, &c->session, &reason);
    if (rc < 0) {
        store_connection_close(c, reason);
    } else {
        flush(c);
    }
    return rc != 0 || c->closing;
}

static void on_writable(struct store_connection *c) {
    if (c->session.listing != NULL && list_on(c)) return;
    flush(c);
    if (c->closing || !c->stalled || c->session.out.pending > STORE_OUTPUT_PAUSE / 2) return;
    c->stalled = false;
    serve_kept(c);
}

static void on_event(struct store_connection *c, uint32_t events) {
    if (c->closing) return; /* dismissed */
    c->space->server->turn_cost = 0;
    if (events & EPOLLERR) {
        store_connection_close(c, NULL);
        return;
    }
    if (events & EPOLLHUP) events |= EPOLLIN | EPOLLOUT; /* a read or a write will tell */
    if (events & EPOLLOUT) on_writable(c);
    if (c->closing || !(events & EPOLLIN) || c->stalled || c->finished) return;
    if (c->block != NULL) {
        read_block(c);
    } else if (c->rx.len > SMALL_RX) {
        read_large(c);
    } else {
        read_small(c);
    }
}

/* With thousands of clients each one's state has long left the cache when its turn comes; that
 * of the one after next is fetched while the kernel works for this one. */
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
        if (server->ready_at + 1 < server->ready_count) {
            prefetch(server->ready[server->ready_at + 1].data.ptr);
        }
        if (event.data.ptr != NULL) on_event(event.data.ptr, event.events);
    }
    server->ready_count = server->ready_at = 0;
}

/* ---- all of them ---- */

int store_clients_open(struct store_server *server) {
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->epoll_fd < 0) return -errno;
    int rc = uv_poll_init(&server->loop, &server->clients, server->epoll_fd);
    if (rc < 0) {
        cr_close_fd(&server->epoll_fd);
        return rc;
    }
    (void) uv_idle_init(&server->loop, &server->burial);
    (void) uv_poll_start(&server->clients, UV_READABLE, on_clients);
    return 0;
}

void store_clients_close(struct store_server *server) {
    uv_close((uv_handle_t *) &server->clients, NULL);
    uv_close((uv_handle_t *) &server->burial, NULL);
}

void store_clients_free(struct store_server *server) {
    bury(server, SIZE_MAX);
    cr_close_fd(&server->epoll_fd);
}
