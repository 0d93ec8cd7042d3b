/* One `struct attempt` a connection, from resolving to the last close callback, so that a connection
 * which is being closed never meets the next one. The link knows only the current attempt; an
 * attempt whose `link` says otherwise reports to nobody. */
#include "rendezvous/way/stream.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX 16384

struct attempt {
    struct member_link *link;
    uv_getaddrinfo_t resolve;
    struct addrinfo *found, *next;   /* what is left to try */
    struct sockaddr_storage numeric; /* when the host needs no resolving */
    int resolving;

    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    int tcp_open;   /* the handle exists; closed by its close callback */
    int connected, shutting, write_busy, retry;
    struct cr_buffer out, writing;
    char read_buffer[READ_MAX];
};

struct member_link {
    uv_loop_t *loop;
    char *host;
    uint16_t port;
    const struct member_link_events *events;
    void *arg;
    struct attempt *current; /* NULL: nothing is open or opening */
    int attempts;            /* alive, current or not */
    int closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
    uv_idle_t closer; /* so that on_close never comes from inside member_link_close */
};

struct member_link *member_link_new(uv_loop_t *loop, const char *host, uint16_t port,
                                    const struct member_link_events *events, void *arg) {
    struct member_link *link = calloc(1, sizeof(*link));
    if (link == NULL) return NULL;
    link->host = strdup(host);
    if (link->host == NULL) {
        free(link);
        return NULL;
    }
    link->loop = loop;
    link->port = port;
    link->events = events;
    link->arg = arg;
    return link;
}

int member_link_aim(struct member_link *link, const char *host, uint16_t port) {
    char *copy = strdup(host);
    if (copy == NULL) return -ENOMEM;
    free(link->host);
    link->host = copy;
    link->port = port;
    return 0;
}

/* ---- the end of an attempt ---- */

static void link_free_if_done(struct member_link *link) {
    if (!link->closing || link->attempts > 0) return;
    void (*on_close)(void *) = link->on_close;
    void *arg = link->on_close_arg;
    free(link->host);
    free(link);
    on_close(arg);
}

static void attempt_free(struct attempt *a) {
    struct member_link *link = a->link;
    if (a->found != NULL) uv_freeaddrinfo(a->found);
    cr_buffer_done(&a->out);
    cr_buffer_done(&a->writing);
    free(a);
    link->attempts--;
    link_free_if_done(link);
}

static void connect_next(struct attempt *a);

static void on_tcp_closed(uv_handle_t *handle) {
    struct attempt *a = handle->data;
    a->tcp_open = 0;
    if (a->retry) {
        a->retry = 0;
        connect_next(a);
    } else if (!a->resolving) {
        attempt_free(a);
    }
}

static void close_tcp(struct attempt *a) {
    if (a->tcp_open && !uv_is_closing((uv_handle_t *) &a->tcp)) {
        uv_close((uv_handle_t *) &a->tcp, on_tcp_closed);
    }
}

static int is_current(const struct attempt *a) { return a->link->current == a; }

/* Says so, and lets go. The attempt is freed by its last callback. */
static void lost(struct attempt *a, const char *why) {
    struct member_link *link = a->link;
    int report = is_current(a);
    if (report) link->current = NULL;
    a->retry = 0;
    if (a->tcp_open) close_tcp(a);
    else if (!a->resolving) attempt_free(a);
    if (report) link->events->on_lost(link->arg, why);
}

/* ---- writing ---- */

static void on_shut(uv_shutdown_t *req, int status) {
    (void) status;
    close_tcp(CR_CONTAINER_OF(req, struct attempt, shutdown));
}

static void on_written(uv_write_t *req, int status);

static void flush(struct attempt *a) {
    uv_stream_t *stream = (uv_stream_t *) &a->tcp;
    if (!a->connected || a->write_busy || a->out.len == 0) return;
    struct cr_buffer spare = a->writing;
    a->writing = a->out;
    a->out = spare;
    uv_buf_t buf = uv_buf_init(a->writing.data, (unsigned) a->writing.len);
    a->write_busy = uv_write(&a->write, stream, &buf, 1, on_written) == 0;
    if (!a->write_busy) close_tcp(a);
}

static void finish_shutting(struct attempt *a) {
    if (a->write_busy || a->out.len > 0 || uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (uv_shutdown(&a->shutdown, (uv_stream_t *) &a->tcp, on_shut) < 0) close_tcp(a);
}

static void on_written(uv_write_t *req, int status) {
    struct attempt *a = CR_CONTAINER_OF(req, struct attempt, write);
    a->write_busy = 0;
    cr_buffer_clear(&a->writing);
    if (uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (status < 0) {
        lost(a, uv_strerror(status));
        return;
    }
    flush(a);
    if (a->shutting) finish_shutting(a);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void) suggested;
    struct attempt *a = handle->data;
    *buf = uv_buf_init(a->read_buffer, READ_MAX);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct attempt *a = stream->data;
    struct member_link *link = a->link;
    if (n > 0 && is_current(a)) link->events->on_data(link->arg, buf->base, (size_t) n);
    else if (n == UV_EOF) lost(a, "the connection was closed");
    else if (n < 0) lost(a, uv_strerror((int) n));
}

/* ---- connecting ---- */

/* Numeric text of one end; v4-mapped addresses as v4. */
static void numeric(const uv_tcp_t *tcp, int peer, char out[RDZV_ADDR_MAX]) {
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    struct sockaddr *sa = (struct sockaddr *) &addr;
    int rc = peer ? uv_tcp_getpeername(tcp, sa, &len) : uv_tcp_getsockname(tcp, sa, &len);
    out[0] = '\0';
    if (rc < 0) return;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *) &addr;
    if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        (void) inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], out, RDZV_ADDR_MAX);
    } else if (sa->sa_family == AF_INET6) {
        (void) inet_ntop(AF_INET6, &in6->sin6_addr, out, RDZV_ADDR_MAX);
    } else {
        (void) inet_ntop(AF_INET, &((struct sockaddr_in *) &addr)->sin_addr, out, RDZV_ADDR_MAX);
    }
}

static void on_connected(uv_connect_t *req, int status) {
    struct attempt *a = CR_CONTAINER_OF(req, struct attempt, connect);
    struct member_link *link = a->link;
    if (uv_is_closing((uv_handle_t *) &a->tcp)) return;
    if (status < 0 && a->next != NULL) {
        a->retry = 1;
        close_tcp(a);
        return;
    }
    if (status == 0) status = uv_read_start((uv_stream_t *) &a->tcp, on_alloc, on_read);
    if (status < 0) {
        lost(a, uv_strerror(status));
        return;
    }
    char own[RDZV_ADDR_MAX], peer[RDZV_ADDR_MAX];
    (void) uv_tcp_nodelay(&a->tcp, 1);
    a->connected = 1;
    numeric(&a->tcp, 0, own);
    numeric(&a->tcp, 1, peer);
    link->events->on_open(link->arg, own, peer);
}

static int start_connect(struct attempt *a, const struct sockaddr *addr) {
    int rc = uv_tcp_init(a->link->loop, &a->tcp);
    if (rc < 0) return rc;
    a->tcp.data = a;
    a->tcp_open = 1;
    return uv_tcp_connect(&a->connect, &a->tcp, addr, on_connected);
}

static void connect_next(struct attempt *a) {
    const struct addrinfo *to = a->next;
    if (!is_current(a)) {
        attempt_free(a);
        return;
    }
    a->next = to->ai_next;
    int rc = start_connect(a, to->ai_addr);
    if (rc < 0) lost(a, uv_strerror(rc));
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found) {
    struct attempt *a = CR_CONTAINER_OF(req, struct attempt, resolve);
    a->resolving = 0;
    a->found = a->next = found;
    if (!is_current(a)) {
        attempt_free(a);
    } else if (status < 0) {
        char why[400];
        (void) snprintf(why, sizeof(why), "cannot resolve host '%s': %s", a->link->host,
                        uv_strerror(status));
        lost(a, why);
    } else {
        connect_next(a);
    }
}

static int start_resolving(struct attempt *a) {
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", a->link->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV};
    a->resolving = 1;
    int rc = uv_getaddrinfo(a->link->loop, &a->resolve, on_resolved, a->link->host, service, &hints);
    if (rc < 0) a->resolving = 0;
    return rc;
}

/* Numeric hosts need no resolver, and none of its threads. */
static int start(struct attempt *a) {
    struct sockaddr_in *v4 = (struct sockaddr_in *) &a->numeric;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *) &a->numeric;
    if (uv_ip4_addr(a->link->host, a->link->port, v4) == 0 ||
        uv_ip6_addr(a->link->host, a->link->port, v6) == 0) {
        return start_connect(a, (const struct sockaddr *) &a->numeric);
    }
    return start_resolving(a);
}

static void on_could_not_start(uv_handle_t *handle) {
    struct attempt *a = handle->data;
    a->tcp_open = 0;
    lost(a, "cannot start to connect");
}

int member_link_open(struct member_link *link) {
    CR_ASSERT(link->current == NULL && !link->closing);
    struct attempt *a = calloc(1, sizeof(*a));
    if (a == NULL) return -ENOMEM;
    a->link = link;
    link->attempts++;
    link->current = a;
    if (start(a) == 0) return 0;
    if (!a->tcp_open) {
        (void) uv_tcp_init(link->loop, &a->tcp); /* only to have a callback on the loop */
        a->tcp.data = a;
        a->tcp_open = 1;
    }
    uv_close((uv_handle_t *) &a->tcp, on_could_not_start);
    return 0;
}

/* ---- the member's calls ---- */

int member_link_is_open(const struct member_link *link) { return link->current != NULL; }

int member_link_send(struct member_link *link, const void *data, size_t len) {
    struct attempt *a = link->current;
    return a != NULL ? cr_buffer_append(&a->out, data, len) : 0;
}

void member_link_flush(struct member_link *link) {
    if (link->current != NULL) flush(link->current);
}

void member_link_shut(struct member_link *link) {
    struct attempt *a = link->current;
    if (a == NULL) return;
    link->current = NULL;
    if (a->resolving) {
        (void) uv_cancel((uv_req_t *) &a->resolve); /* on_resolved frees, sooner or later */
    } else if (!a->connected) {
        a->retry = 0;
        close_tcp(a);
    } else {
        a->shutting = 1;
        flush(a);
        finish_shutting(a);
    }
}

static void on_closer(uv_handle_t *handle) {
    struct member_link *link = CR_CONTAINER_OF(handle, struct member_link, closer);
    link->attempts--;
    link_free_if_done(link);
}

void member_link_close(struct member_link *link, void (*on_close)(void *arg), void *arg) {
    link->closing = 1;
    link->on_close = on_close;
    link->on_close_arg = arg;
    link->attempts++; /* the closer's */
    (void) uv_idle_init(link->loop, &link->closer);
    uv_close((uv_handle_t *) &link->closer, on_closer);
    member_link_shut(link);
}
