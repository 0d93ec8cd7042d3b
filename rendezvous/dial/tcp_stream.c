/* A TCP client that can connect again and again.
 *
 * Each connection is an object of its own, `struct connection`, from the resolving of the host to
 * the last close callback. So the callbacks of an old connection, which is still being closed,
 * cannot be mistaken for those of the next one. `current` is the only connection that reports
 * events; an older one reports nothing and frees itself. */
#include "rendezvous/dial/tcp_stream_internal.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/network/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 16384 /* largest number of bytes that one read takes from a connection */

struct connection {
    struct tcp_stream *stream;
    uv_getaddrinfo_t resolve;
    struct addrinfo *found, *next;   /* the host's addresses, and the one to try next */
    struct sockaddr_storage numeric; /* the host's address, if the host is not a name */
    bool resolving;

    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool tcp_open;   /* true: `tcp` is initialised and not closed yet */
    bool retry;      /* true: on_tcp_closed() tries the next address */
    bool resets;     /* true: the connection ends with a reset, not with end-of-file */
    bool connected, shutting, write_busy;
    int write_error; /* error that on_written() has to report, a negative errno; 0 = none */
    struct cr_buffer out, writing;
};

struct tcp_stream {
    uv_loop_t *loop;
    char *host;
    uint16_t port;
    const struct tcp_stream_events *events;
    void *arg;
    struct connection *current; /* NULL = the stream is not open */
    int connections;            /* number of connections that are not freed yet */
    const char *failed;      /* error that on_idle() has to report through on_lost; NULL = none */
    bool closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
    /* runs on_idle(), which reports `failed`, on the next turn of the loop, because callbacks must
     * not run inside a call of the owner */
    uv_idle_t idle;
};

struct tcp_stream *tcp_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                          const struct tcp_stream_events *events, void *arg) {
    struct tcp_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->host = strdup(host);
    if (s->host == NULL) {
        free(s);
        return NULL;
    }
    s->loop = loop;
    s->port = port;
    s->events = events;
    s->arg = arg;
    (void) uv_idle_init(loop, &s->idle);
    s->idle.data = s;
    return s;
}

/* ---- the end of a connection ---- */

static bool is_current(const struct connection *a) { return a->stream->current == a; }

static void free_if_done(struct tcp_stream *s) {
    if (!s->closing || s->connections > 0) return;
    void (*on_close)(void *) = s->on_close;
    void *arg = s->on_close_arg;
    free(s->host);
    free(s);
    on_close(arg);
}

static void connection_free(struct connection *a) {
    struct tcp_stream *s = a->stream;
    if (a->found != NULL) uv_freeaddrinfo(a->found);
    cr_buffer_done(&a->out);
    cr_buffer_done(&a->writing);
    free(a);
    s->connections--;
    free_if_done(s);
}

static void connect_next(struct connection *a);

static void on_tcp_closed(uv_handle_t *handle) {
    struct connection *a = handle->data;
    a->tcp_open = false;
    if (a->retry) {
        a->retry = false;
        connect_next(a);
    } else if (!a->resolving) {
        connection_free(a);
    }
}

static void close_tcp(struct connection *a) {
    if (!a->tcp_open || uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (a->resets && uv_tcp_close_reset(&a->tcp, on_tcp_closed) == 0) return;
    uv_close((uv_handle_t *) &a->tcp, on_tcp_closed);
}

/* Closes a connection, which reports no more events. It is freed at once, or by the last callback
 * that it still gets. */
static void discard(struct connection *a) {
    if (is_current(a)) a->stream->current = NULL;
    a->retry = false;
    if (a->tcp_open) close_tcp(a);
    else if (!a->resolving) connection_free(a);
}

static void lost(struct connection *a, enum rendezvous_loss how, const char *why) {
    struct tcp_stream *s = a->stream;
    bool report = is_current(a);
    discard(a);
    if (report) s->events->on_lost(s->arg, how, why);
}

/* Ends the connection after the error `rc`. EPIPE means that the other end has closed it; after
 * every other error the process at the other end may still run. */
static void broken(struct connection *a, int rc) {
    lost(a, rc == UV_EPIPE ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN, uv_strerror(rc));
}

/* ---- writing ---- */

static void on_shut(uv_shutdown_t *req, int status) {
    (void) status;
    close_tcp(CR_CONTAINER_OF(req, struct connection, shutdown));
}

static void on_written(uv_write_t *req, int status);

/* Passes the queued bytes to the kernel: first what it takes at once, then the rest by uv_write().
 * Normally there is no rest. That saves the loop a turn, because libuv reports the end of each
 * uv_write() in another turn. An error is reported by on_written(), because no callback may run
 * inside a call of the owner; uv_write() could meet another error than the first one. */
static void flush(struct connection *a) {
    uv_stream_t *tcp = (uv_stream_t *) &a->tcp;
    if (!a->connected || a->write_busy || a->out.len == 0) return;
    uv_buf_t all = uv_buf_init(a->out.data, (unsigned) a->out.len);
    int sent = uv_try_write(tcp, &all, 1);
    if (sent < 0 && sent != UV_EAGAIN) a->write_error = sent;
    cr_buffer_consume(&a->out, sent > 0 ? (size_t) sent : 0);
    if (a->out.len == 0) return;
    struct cr_buffer spare = a->writing;
    a->writing = a->out;
    a->out = spare;
    uv_buf_t buf = uv_buf_init(a->writing.data, (unsigned) a->writing.len);
    a->write_busy = uv_write(&a->write, tcp, &buf, 1, on_written) == 0;
    if (!a->write_busy) close_tcp(a);
}

static void shut_when_written(struct connection *a) {
    if (a->write_busy || a->out.len > 0 || uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (uv_shutdown(&a->shutdown, (uv_stream_t *) &a->tcp, on_shut) < 0) close_tcp(a);
}

static void on_written(uv_write_t *req, int status) {
    struct connection *a = CR_CONTAINER_OF(req, struct connection, write);
    a->write_busy = false;
    cr_buffer_clear(&a->writing);
    if (uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (a->write_error < 0) status = a->write_error;
    if (status < 0) {
        broken(a, status);
        return;
    }
    flush(a);
    if (a->shutting) shut_when_written(a);
}

/* ---- reading ---- */

/* Allocates memory for one read; on_read() frees it after the read, so an idle connection has no
 * memory for reading. If memory is short, libuv calls on_read() with UV_ENOBUFS. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void) handle, (void) suggested;
    *buf = uv_buf_init(malloc(READ_MAX), READ_MAX);
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
    CR_AUTO_FREE char *memory = buf->base;
    struct connection *a = tcp->data;
    struct tcp_stream *s = a->stream;
    if (n > 0 && is_current(a)) s->events->on_data(s->arg, memory, (size_t) n);
    else if (n == UV_EOF) lost(a, RENDEZVOUS_CLOSED, "the connection was closed");
    else if (n < 0) broken(a, (int) n);
}

/* ---- connecting ---- */

/* Writes the numeric address of one end (peer or own) to `out`. An IPv4 address that is mapped into
 * IPv6 is written as IPv4. */
static void write_address(const uv_tcp_t *tcp, bool peer, char out[RDZV_ADDR_MAX]) {
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    struct sockaddr *sa = (struct sockaddr *) &addr;
    int rc = peer ? uv_tcp_getpeername(tcp, sa, &len) : uv_tcp_getsockname(tcp, sa, &len);
    struct cr_ip ip;
    out[0] = '\0';
    if (rc == 0 && cr_address_ip(sa, &ip)) cr_ip_format(&ip, out);
}

static void report_open(struct connection *a) {
    char own[RDZV_ADDR_MAX], peer[RDZV_ADDR_MAX];
    struct tcp_stream *s = a->stream;
    (void) uv_tcp_nodelay(&a->tcp, 1);
    a->connected = true;
    write_address(&a->tcp, false, own);
    write_address(&a->tcp, true, peer);
    s->events->on_open(s->arg, own, peer);
}

static void on_connected(uv_connect_t *req, int status) {
    struct connection *a = CR_CONTAINER_OF(req, struct connection, connect);
    if (uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (status < 0 && a->next != NULL) {
        a->retry = true;
        close_tcp(a);
        return;
    }
    if (status == 0) status = uv_read_start((uv_stream_t *) &a->tcp, on_alloc, on_read);
    if (status < 0) broken(a, status);
    else report_open(a);
}

static int start_connect(struct connection *a, const struct sockaddr *addr) {
    int rc = uv_tcp_init(a->stream->loop, &a->tcp);
    if (rc < 0) return rc;
    a->tcp.data = a;
    a->tcp_open = true;
    return uv_tcp_connect(&a->connect, &a->tcp, addr, on_connected);
}

static void connect_next(struct connection *a) {
    const struct addrinfo *to = a->next;
    if (!is_current(a)) {
        connection_free(a);
        return;
    }
    a->next = to->ai_next;
    int rc = start_connect(a, to->ai_addr);
    if (rc < 0) broken(a, rc);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found) {
    struct connection *a = CR_CONTAINER_OF(req, struct connection, resolve);
    a->resolving = false;
    a->found = a->next = found;
    if (!is_current(a)) {
        connection_free(a);
    } else if (status < 0) {
        char why[400];
        (void) snprintf(why, sizeof(why), "cannot resolve host '%s': %s", a->stream->host,
                        uv_strerror(status));
        lost(a, RENDEZVOUS_BROKEN, why);
    } else {
        connect_next(a);
    }
}

static int start_resolving(struct connection *a) {
    char service[8];
    const struct tcp_stream *s = a->stream;
    (void) snprintf(service, sizeof(service), "%u", s->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    a->resolving = true;
    int rc = uv_getaddrinfo(s->loop, &a->resolve, on_resolved, s->host, service, &hints);
    if (rc < 0) a->resolving = false;
    return rc;
}

/* Starts to connect. A numeric address needs no resolver, so for such a host none of the few
 * threads of libuv's pool is occupied. */
static int start(struct connection *a) {
    struct sockaddr_in *v4 = (struct sockaddr_in *) &a->numeric;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &a->numeric;
    if (uv_ip4_addr(a->stream->host, a->stream->port, v4) == 0 ||
        uv_ip6_addr(a->stream->host, a->stream->port, v6) == 0) {
        return start_connect(a, (const struct sockaddr *) &a->numeric);
    }
    return start_resolving(a);
}

static struct connection *connection_new(struct tcp_stream *s) {
    struct connection *a = calloc(1, sizeof(*a));
    if (a == NULL) return NULL;
    a->stream = s;
    s->connections++;
    s->current = a;
    return a;
}

static void on_idle(uv_idle_t *idle) {
    struct tcp_stream *s = idle->data;
    const char *why = s->failed;
    (void) uv_idle_stop(idle);
    s->failed = NULL;
    s->events->on_lost(s->arg, RENDEZVOUS_BROKEN, why);
}

static void report_later(struct tcp_stream *s, const char *why) {
    if (s->current != NULL) discard(s->current);
    s->failed = why;
    (void) uv_idle_start(&s->idle, on_idle);
}

void tcp_stream_open(struct tcp_stream *s) {
    CR_ASSERT(!tcp_stream_is_open(s) && !s->closing);
    struct connection *a = connection_new(s);
    int rc = a != NULL ? start(a) : -ENOMEM;
    if (rc < 0) report_later(s, uv_strerror(rc));
}

/* ---- the owner's calls ---- */

bool tcp_stream_is_open(const struct tcp_stream *s) {
    return s->current != NULL || s->failed != NULL;
}

void tcp_stream_send(struct tcp_stream *s, const void *data, size_t len) {
    if (s->current == NULL || cr_buffer_append(&s->current->out, data, len) == 0) return;
    report_later(s, "out of memory");
}

void tcp_stream_break(struct tcp_stream *s, const char *why) { report_later(s, why); }

void tcp_stream_reset(struct tcp_stream *s) {
    if (s->current == NULL) return;
    s->current->resets = true;
    discard(s->current);
}

void tcp_stream_flush(struct tcp_stream *s) {
    if (s->current != NULL) flush(s->current);
}

void tcp_stream_shut(struct tcp_stream *s) {
    struct connection *a = s->current;
    (void) uv_idle_stop(&s->idle);
    s->failed = NULL;
    if (a == NULL) return;
    if (a->connected) {
        s->current = NULL;
        a->shutting = true;
        flush(a);
        shut_when_written(a);
        return;
    }
    if (a->resolving) (void) uv_cancel((uv_req_t *) &a->resolve); /* on_resolved() frees `a` */
    discard(a);
}

static void on_idle_closed(uv_handle_t *handle) {
    struct tcp_stream *s = handle->data;
    s->connections--;
    free_if_done(s);
}

void tcp_stream_close(struct tcp_stream *s, void (*on_close)(void *arg), void *arg) {
    s->closing = true;
    s->on_close = on_close;
    s->on_close_arg = arg;
    s->connections++; /* the idle handle counts like a connection until it is closed */
    tcp_stream_shut(s);
    uv_close((uv_handle_t *) &s->idle, on_idle_closed);
}
