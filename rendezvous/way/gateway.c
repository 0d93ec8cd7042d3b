/* The gateway of a node's workers to the store of their round: the sockets around the core in
 * store/gateway. It listens on loopback, and connects to the store's node over a secured stream.
 * When that connection is lost, it makes a new one; its workers only notice that replies take
 * longer. */
#include "base/buffer.h"
#include "base/log/log.h"
#include "base/log/log_limit.h"
#include "base/memory.h"
#include "base/network/address.h"
#include "base/network/bind_port.h"
#include "rendezvous/dial/dial.h"
#include "rendezvous/way/way_internal.h"
#include "store/store.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG      4096
#define READ_SIZE    ((size_t) 64 << 10)
/* Pause in ms before the first try to connect again. It is short, because the node of the store may
 * learn about the round a moment later than this one, and until then it refuses gateways. */
#define RETRY_MIN_MS 2
#define QUIET_MS     64   /* a try that fails is a warning if the next pause is longer than this */
#define RETRY_MAX_MS 1000 /* longest pause in ms; each pause is twice as long as the one before */
#define PING_MS      5000 /* time in ms between two PINGs to the store */
/* Largest number of bytes of requests that may wait for the store. If more bytes wait, the gateway
 * reads no requests of its workers until at most HELD_MAX / 2 bytes are left. */
#define HELD_MAX     ((size_t) 64 << 20)
/* Largest number of bytes of replies and pushes that a worker may leave unread. If a worker leaves
 * more, the gateway closes that worker's connection. */
#define UNREAD_MAX   ((size_t) 1 << 30)

enum gateway_state {
    GATEWAY_DOWN,     /* no connection; `timer` starts the next one after at most RETRY_MAX_MS */
    GATEWAY_GREETING, /* connecting, or waiting for WELCOME, for at most PING_MS */
    GATEWAY_OPEN,     /* connected; lost if a PING has no answer for PING_MS */
    GATEWAY_OVER,     /* the store does not serve this gateway any more; nothing follows */
};

/* One connection of a worker. */
struct client {
    uv_tcp_t tcp;
    uv_write_t write;
    struct way_gateway *gateway;
    struct store_gateway_worker *worker; /* NULL once the connection is being closed */
    struct cr_buffer writing;
    bool is_writing;
    bool is_read;   /* true: requests are read from this connection */
    bool has_ended; /* true: the worker has closed its sending side */
    /* true: the core holds back the worker's requests until the worker has read its replies */
    bool is_slow;
    LIST_ENTRY(client) next;
};

struct way_gateway {
    uv_loop_t *loop;
    struct secure_ring *ring;
    char *run_id;
    char host[RDZV_ADDR_MAX];
    uint16_t port;
    struct store_gateway_hello hello;
    struct store_gateway *core;
    enum gateway_state state;
    struct secured_stream *up; /* connection to the store; NULL = none */
    struct cr_buffer welcome;  /* bytes of WELCOME that have come */
    uv_tcp_t listener;
    struct refusal *refusal;   /* refuses connections when memory is short */
    uv_timer_t timer;          /* runs until the next try, or the next PING */
    uv_prepare_t sending;      /* active while requests wait for the store; calls on_sending() */
    uint64_t retry_ms;
    uint64_t lost_ms;          /* since when there is no connection */
    bool was_open;             /* true: a connection was OPEN before */
    LIST_HEAD(, client) clients;
    bool is_paused;            /* true: requests of workers are not read */
    struct cr_log_limit lines;
    char *read_buffer;         /* READ_SIZE bytes, which the reads from all workers use in turn */
    int users;                 /* number of handles, clients and streams not closed yet */
    void (*on_close)(void *arg);
    void *arg;
};

static const struct store_limits limits = {.key_max = STORE_KEY_MAX + 1,
                                           .value_max = STORE_VALUE_MAX,
                                           .list_max = STORE_LIST_MAX,
                                           .request_max = STORE_CLIENT_BUFFER_MAX};

static void drop_user(struct way_gateway *g) {
    if (--g->users > 0) return;
    void (*on_close)(void *) = g->on_close;
    void *arg = g->arg;
    cr_log_limit_end(&g->lines);
    store_gateway_free(g->core);
    cr_buffer_done(&g->welcome);
    free(g->read_buffer);
    free(g->run_id);
    free(g);
    if (on_close != NULL) on_close(arg);
}

/* ---- workers ---- */

static void on_client_closed(uv_handle_t *handle) {
    struct client *c = handle->data;
    cr_buffer_done(&c->writing);
    drop_user(c->gateway);
    free(c);
}

static void close_client(struct client *c) {
    if (c->worker == NULL) return;
    store_gateway_remove(c->worker);
    c->worker = NULL;
    LIST_REMOVE(c, next);
    uv_close((uv_handle_t *) &c->tcp, on_client_closed);
}

static void flush_client(struct client *c);
static void send_up(struct way_gateway *g);

static void on_client_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    const struct client *c = handle->data;
    (void) suggested;
    *buf = uv_buf_init(c->gateway->read_buffer, READ_SIZE);
}

static void on_client_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf);

/* Begins or stops to read requests from a worker. Call this after is_paused, has_ended or is_slow
 * has changed. */
static void update_reading(struct client *c) {
    uv_stream_t *tcp = (uv_stream_t *) &c->tcp;
    bool is_wanted = !c->gateway->is_paused && !c->has_ended && !c->is_slow;
    if (c->worker == NULL || is_wanted == c->is_read) return;
    c->is_read = is_wanted;
    int rc = is_wanted ? uv_read_start(tcp, on_client_alloc, on_client_read) : uv_read_stop(tcp);
    if (rc < 0) close_client(c);
}

static void on_client_written(uv_write_t *write, int status) {
    struct client *c = write->data;
    c->is_writing = false;
    cr_buffer_clear(&c->writing);
    if (c->worker == NULL) return;
    if (status < 0) close_client(c);
    else flush_client(c);
    send_up(c->gateway); /* requests that the replies had held back */
}

/* Passes replies to the kernel: first what the kernel accepts at once, then the rest by
 * uv_write(). */
static void write_replies(struct client *c, struct cr_buffer *replies) {
    uv_stream_t *tcp = (uv_stream_t *) &c->tcp;
    uv_buf_t all = uv_buf_init(replies->data, (unsigned) replies->len);
    int sent = uv_try_write(tcp, &all, 1);
    if (sent > 0) cr_buffer_consume(replies, (size_t) sent);
    if (sent < 0 && sent != UV_EAGAIN) close_client(c);
    if (c->worker == NULL || replies->len == 0) return;
    struct cr_buffer spare = c->writing;
    c->writing = *replies;
    *replies = spare;
    uv_buf_t rest = uv_buf_init(c->writing.data, (unsigned) c->writing.len);
    c->is_writing = uv_write(&c->write, tcp, &rest, 1, on_client_written) == 0;
    if (!c->is_writing) close_client(c);
}

/* Sends the worker's replies. Closes the worker's connection if the core says that the connection
 * is over, or if the worker leaves more than UNREAD_MAX bytes unread. */
static void flush_client(struct client *c) {
    const char *reason;
    struct cr_buffer *replies = store_gateway_replies(c->worker);
    if (!c->is_writing && replies->len > 0) write_replies(c, replies);
    if (c->worker == NULL) return;
    c->is_slow = !store_gateway_go_on(c->worker);
    bool is_over = store_gateway_is_over(c->worker, &reason);
    if (replies->len > UNREAD_MAX) {
        is_over = true;
        reason = "it does not read its replies";
    }
    if (reason != NULL) {
        cr_log_limited(&c->gateway->lines, CR_LOG_WARN,
                       "the gateway to the store closes a worker's connection: %s", reason);
    }
    if (is_over && (reason != NULL || !c->is_writing)) close_client(c);
    else update_reading(c);
}

static void flush_clients(struct way_gateway *g) {
    struct store_gateway_worker *w;
    while ((w = store_gateway_take_ready(g->core)) != NULL) flush_client(store_gateway_owner(w));
}

/* If more than HELD_MAX bytes wait for the store, stops reading requests from the workers. Reads
 * requests again once at most HELD_MAX / 2 bytes wait. */
static void pause_clients(struct way_gateway *g) {
    size_t held = store_gateway_held(g->core);
    struct client *c, *next;
    if (g->is_paused ? held > HELD_MAX / 2 : held <= HELD_MAX) return;
    g->is_paused = !g->is_paused;
    for (c = LIST_FIRST(&g->clients); c != NULL; c = next) {
        next = LIST_NEXT(c, next);
        update_reading(c);
    }
}

static void end_gateway(struct way_gateway *g, const char *why);

/* If the gateway is connected to the store, sends the requests that wait for the store. */
static void on_sending(uv_prepare_t *prepare) {
    struct way_gateway *g = prepare->data;
    (void) uv_prepare_stop(prepare);
    if (g->state != GATEWAY_OPEN) return;
    struct cr_buffer *out = store_gateway_to_store(g->core);
    if (out == NULL) {
        end_gateway(g, "out of memory");
        return;
    }
    if (out->len == 0) return;
    secured_stream_send(g->up, out->data, out->len);
    secured_stream_flush(g->up);
    cr_buffer_clear(out);
}

/* Call this after requests may have been passed to the core. They are sent before the loop waits
 * for the next events, so that those of several workers which have come at the same time are one
 * message to the store. */
static void send_up(struct way_gateway *g) {
    (void) uv_prepare_start(&g->sending, on_sending);
    pause_clients(g);
}

static void on_client_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
    struct client *c = tcp->data;
    struct way_gateway *g = c->gateway;
    const char *reason;
    if (c->worker == NULL || n == 0) return;
    if (n == UV_EOF) {
        c->has_ended = true;
        update_reading(c);
        store_gateway_half_closed(c->worker);
    } else if (n < 0) {
        close_client(c);
    } else if (store_gateway_from_worker(c->worker, buf->base, (size_t) n, &reason) < 0) {
        cr_log_limited(&g->lines, CR_LOG_WARN,
                       "the gateway to the store closes a worker's connection: %s", reason);
        close_client(c);
    }
    /* flush_client() also handles requests that have been read but not handled yet */
    if (c->worker != NULL) flush_client(c);
    flush_clients(g);
    send_up(g);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct way_gateway *g = listener->data;
    struct client *c = status == 0 ? calloc(1, sizeof(*c)) : NULL;
    if (status == 0 && c == NULL) {
        cr_log_limited(&g->lines, CR_LOG_WARN,
                       "the gateway to the store refuses a worker's connection: out of memory");
        refusal_use(g->refusal, listener, on_connection);
    }
    if (c == NULL) return;
    (void) uv_tcp_init(g->loop, &c->tcp);
    c->tcp.data = c->write.data = c;
    c->gateway = g;
    g->users++;
    int rc = uv_accept(listener, (uv_stream_t *) &c->tcp);
    if (rc == 0 && g->state != GATEWAY_OVER) c->worker = store_gateway_add(g->core, c);
    if (c->worker == NULL) {
        uv_close((uv_handle_t *) &c->tcp, on_client_closed);
        return;
    }
    LIST_INSERT_HEAD(&g->clients, c, next);
    update_reading(c);
}

/* ---- the connection to the store ---- */

static void on_up_closed(void *arg) { drop_user(arg); }

static void hang_up(struct way_gateway *g) {
    if (g->up == NULL) return;
    secured_stream_close(g->up, on_up_closed, g);
    g->up = NULL;
    cr_buffer_clear(&g->welcome);
}

static const char *name_of(enum gateway_state state) {
    switch (state) {
    case GATEWAY_DOWN: return "DOWN";
    case GATEWAY_GREETING: return "GREETING";
    case GATEWAY_OPEN: return "OPEN";
    case GATEWAY_OVER: return "OVER";
    }
    return "?";
}

/* Sets the state, and logs the change. No other function writes `state`. */
static void enter(struct way_gateway *g, enum gateway_state next, const char *why) {
    if (g->state == next) return;
    cr_debug("gateway of round %llu: %s -> %s (%s)", (unsigned long long) g->hello.round,
             name_of(g->state), name_of(next), why);
    g->state = next;
}

/* Call this when no connection to the store can help any more. Closes the connections of all
 * workers, which would wait in vain. */
static void end_gateway(struct way_gateway *g, const char *why) {
    cr_warn("the gateway to the store of round %llu at %s:%u ends, and with it the connections of "
            "this node's workers: %s", (unsigned long long) g->hello.round, g->host, g->port, why);
    enter(g, GATEWAY_OVER, why);
    hang_up(g);
    (void) uv_timer_stop(&g->timer);
    while (!LIST_EMPTY(&g->clients)) close_client(LIST_FIRST(&g->clients));
}

static void on_timer(uv_timer_t *timer);

/* Call this when the connection to the store is lost, or could not be established. Closes it, and
 * starts the timer for the next try. */
static void lost_up(struct way_gateway *g, const char *why) {
    if (g->state == GATEWAY_OPEN) {
        g->lost_ms = uv_now(g->loop);
        g->retry_ms = RETRY_MIN_MS;
    }
    const char *had = g->was_open ? "lost its connection" : "has no connection yet";
    cr_log_limited(&g->lines, g->retry_ms > QUIET_MS ? CR_LOG_WARN : CR_LOG_DEBUG,
                   "the gateway %s to the store at %s:%u, and tries again: %s", had, g->host,
                   g->port, why);
    hang_up(g);
    enter(g, GATEWAY_DOWN, why);
    (void) uv_timer_start(&g->timer, on_timer, g->retry_ms, 0);
    g->retry_ms = 2 * g->retry_ms < RETRY_MAX_MS ? 2 * g->retry_ms : RETRY_MAX_MS;
}

static void on_up_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct way_gateway *g = arg;
    uint8_t hello[STORE_GATEWAY_HELLO];
    (void) own_addr, (void) peer_addr;
    g->hello.received = store_gateway_received(g->core);
    store_gateway_write_hello(&g->hello, hello);
    secured_stream_send(g->up, hello, sizeof(hello));
    secured_stream_flush(g->up);
}

static void say_open(struct way_gateway *g) {
    double away_s = (double) (uv_now(g->loop) - g->lost_ms) / 1000;
    if (g->was_open) cr_info("the gateway has the store at %s:%u again after %.1f s", g->host,
                             g->port, away_s);
    else cr_debug("the gateway is connected to the store at %s:%u", g->host, g->port);
    g->was_open = true;
}

/* Handles WELCOME, once all of it has come. */
static void take_welcome(struct way_gateway *g) {
    const uint8_t *bytes = (const uint8_t *) g->welcome.data;
    if (g->welcome.len < STORE_GATEWAY_WELCOME) return;
    if (bytes[0] != STORE_GATEWAY_OK) {
        end_gateway(g, bytes[0] == STORE_GATEWAY_ROUND ? "the store has another round by now"
                                                       : "the store does not know this gateway");
        return;
    }
    if (store_gateway_connected(g->core, store_load_u64(bytes + 1)) < 0) {
        end_gateway(g, "the store has lost requests");
        return;
    }
    cr_buffer_consume(&g->welcome, STORE_GATEWAY_WELCOME);
    enter(g, GATEWAY_OPEN, "WELCOME");
    g->retry_ms = RETRY_MIN_MS;
    (void) uv_timer_start(&g->timer, on_timer, PING_MS, 0);
    say_open(g);
}

static void on_up_data(void *arg, const char *data, size_t len) {
    struct way_gateway *g = arg;
    int rc = 0;
    if (g->state == GATEWAY_OPEN) {
        rc = store_gateway_from_store(g->core, data, len);
    } else {
        rc = cr_buffer_append(&g->welcome, data, len);
        if (rc == 0) take_welcome(g);
        if (g->state == GATEWAY_OPEN && g->welcome.len > 0) {
            rc = store_gateway_from_store(g->core, g->welcome.data, g->welcome.len);
            cr_buffer_clear(&g->welcome);
        }
    }
    if (rc < 0) end_gateway(g, rc == -ENOMEM ? "out of memory" : "the store sent nonsense");
    if (g->state == GATEWAY_OVER) return;
    flush_clients(g);
    send_up(g);
}

static void on_up_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) how;
    lost_up(arg, why);
}

static void on_up_refused(void *arg, enum secure_failure failure, const char *why) {
    (void) failure;
    lost_up(arg, why);
}

static const struct secured_stream_events up_events = {.on_open = on_up_open,
                                                       .on_data = on_up_data,
                                                       .on_lost = on_up_lost,
                                                       .on_refused = on_up_refused};

static void connect_up(struct way_gateway *g) {
    g->up = secured_stream_new(g->loop, g->host, g->port, g->ring, g->run_id, &up_events, g);
    if (g->up == NULL) {
        lost_up(g, "out of memory");
        return;
    }
    g->users++;
    enter(g, GATEWAY_GREETING, "connecting");
    secured_stream_open(g->up);
    (void) uv_timer_start(&g->timer, on_timer, PING_MS, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct way_gateway *g = timer->data;
    if (g->state == GATEWAY_DOWN) {
        connect_up(g);
    } else if (g->state == GATEWAY_GREETING) {
        lost_up(g, "no answer");
    } else if (!store_gateway_ping(g->core)) {
        lost_up(g, "it has been silent for several seconds");
    } else {
        send_up(g);
        if (g->state == GATEWAY_OPEN) (void) uv_timer_start(&g->timer, on_timer, PING_MS, 0);
    }
}

/* ---- opening and closing ---- */

/* Binds a new socket to a free port of 127.0.0.1: one of `ports`, or any if `ports` has none.
 * Stores the socket in *fd. Returns 0 or a negative errno. */
static int bind_some_port(struct cr_port_range ports, int *fd) {
    struct sockaddr_storage here = {0};
    (void) uv_ip4_addr("127.0.0.1", 0, (struct sockaddr_in *) &here);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0) return -errno;
    int rc = cr_bind_port(*fd, &here, sizeof(struct sockaddr_in), ports);
    if (rc < 0) (void) close(*fd);
    return rc;
}

/* Listens for workers, whose connections inherit TCP_NODELAY. Returns 0 or a negative errno. */
static int begin_to_listen(struct way_gateway *g, struct cr_port_range ports) {
    int fd, one = 1;
    (void) uv_tcp_init(g->loop, &g->listener);
    g->listener.data = g;
    int rc = bind_some_port(ports, &fd);
    if (rc < 0) return rc;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    rc = uv_tcp_open(&g->listener, fd);
    if (rc < 0) (void) close(fd);
    return rc < 0 ? rc : uv_listen((uv_stream_t *) &g->listener, BACKLOG, on_connection);
}

static uint16_t bound_port(const struct way_gateway *g) {
    struct sockaddr_storage here = {0};
    int len = sizeof(here);
    (void) uv_tcp_getsockname(&g->listener, (struct sockaddr *) &here, &len);
    return cr_address_port((struct sockaddr *) &here);
}

static void on_handle_closed(uv_handle_t *handle) { drop_user(handle->data); }

void way_gateway_close(struct way_gateway *g, void (*on_close)(void *arg), void *arg) {
    uint64_t asked, joined;
    store_gateway_counts(g->core, &asked, &joined);
    cr_debug("the gateway of round %llu has sent %llu requests that have a reply; %llu waits "
             "joined another one", (unsigned long long) g->hello.round, (unsigned long long) asked,
             (unsigned long long) joined);
    g->on_close = on_close;
    g->arg = arg;
    on_sending(&g->sending); /* a worker's last request may need no reply */
    enter(g, GATEWAY_OVER, "the round is over");
    hang_up(g);
    while (!LIST_EMPTY(&g->clients)) close_client(LIST_FIRST(&g->clients));
    refusal_free(g->refusal);
    uv_close((uv_handle_t *) &g->listener, on_handle_closed);
    uv_close((uv_handle_t *) &g->timer, on_handle_closed);
    uv_close((uv_handle_t *) &g->sending, on_handle_closed);
}

static struct way_gateway *new_gateway(struct way *w, const struct way_gateway_options *o) {
    struct way_gateway *g = calloc(1, sizeof(*g));
    if (g == NULL) return NULL;
    g->loop = w->loop;
    g->ring = w->ring;
    g->port = o->port;
    g->retry_ms = RETRY_MIN_MS;
    g->lines.about = "the gateway to the store";
    g->hello.incarnation = o->incarnation;
    g->hello.round = o->round;
    (void) snprintf(g->host, sizeof(g->host), "%s", o->host);
    g->run_id = strdup(o->run_id);
    g->read_buffer = malloc(READ_SIZE);
    g->core = store_gateway_new(&limits);
    g->refusal = refusal_new();
    bool is_whole = g->run_id != NULL && g->read_buffer != NULL && g->core != NULL &&
                    g->refusal != NULL;
    if (is_whole) return g;
    refusal_free(g->refusal);
    store_gateway_free(g->core);
    free(g->read_buffer);
    free(g->run_id);
    free(g);
    return NULL;
}

int way_gateway_open(struct way *w, const struct way_gateway_options *o, struct way_gateway **out,
                     uint16_t *port, struct cr_error *err) {
    struct way_gateway *g = new_gateway(w, o);
    if (g == NULL) return cr_fail(err, -ENOMEM, "open the gateway to the store: out of memory");
    (void) uv_timer_init(g->loop, &g->timer);
    (void) uv_prepare_init(g->loop, &g->sending);
    g->timer.data = g->sending.data = g;
    g->users = 3;
    int rc = begin_to_listen(g, o->ports);
    if (rc == 0 && getrandom(g->hello.id, sizeof(g->hello.id), 0) != sizeof(g->hello.id)) rc = -EIO;
    if (rc < 0) {
        way_gateway_close(g, NULL, NULL);
        return cr_fail(err, rc, "open the gateway to the store on 127.0.0.1: %s", uv_strerror(rc));
    }
    *port = bound_port(g);
    *out = g;
    connect_up(g);
    return 0;
}
