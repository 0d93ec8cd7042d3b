/* HTTP requests by libcurl's multi interface: see http.h.
 *
 * libcurl says for which sockets and for which time it waits. In its place, a uv_poll_t for each of
 * these sockets and one uv_timer_t wait, and call curl_multi_socket_action(). libcurl forbids its
 * callbacks to cancel calls, but the owner may cancel calls in any event. So libcurl's callbacks
 * only store the bytes that they get. settle(), which runs after each curl_multi_socket_action(),
 * passes the stored bytes and the ends of calls to the owner. */
#if __has_include(<curl/curl.h>)
#include "rendezvous/http/http.h"

#include "base/buffer.h"
#include "rendezvous/http/curl_internal.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* largest number of bytes of one answer that may wait for on_body; if more wait, the call fails */
#define UNREAD_MAX ((size_t) 4 << 20)

struct http_call {
    LIST_ENTRY(http_call) entry;
    struct http *http;
    CURL *easy;
    struct curl_slist *headers;
    const struct http_events *events;
    void *arg;
    struct cr_buffer in; /* received bytes that on_body has not got yet */
    bool is_over;
    bool is_finishing;   /* true while on_done runs; finish() frees the call afterwards */
    CURLcode result;     /* valid if is_over */
    char error[CURL_ERROR_SIZE];
};

/* One socket of libcurl. */
struct watched_socket {
    uv_poll_t poll;
    struct http *http;
    curl_socket_t fd;
};

struct http {
    uv_loop_t *loop;
    const struct http_curl *curl;
    struct http_options options;
    CURLM *multi;
    LIST_HEAD(, http_call) calls;
    uv_timer_t timer;
    int open_handles;
    bool closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- passing to the owner what libcurl's callbacks have stored ---- */

static int status_of(const struct http_call *call) {
    long status = 0;
    (void) call->http->curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int) status;
}

const char *http_own_addr(const struct http_call *call) {
    const char *addr = NULL;
    (void) call->http->curl->easy_getinfo(call->easy, CURLINFO_LOCAL_IP, &addr);
    return addr != NULL ? addr : "";
}

static void call_free(struct http_call *call) {
    const struct http_curl *curl = call->http->curl;
    if (call->easy != NULL) curl->easy_cleanup(call->easy);
    curl->slist_free_all(call->headers);
    cr_buffer_done(&call->in);
    free(call);
}

static void unlink_call(struct http_call *call) {
    LIST_REMOVE(call, entry);
    (void) call->http->curl->multi_remove_handle(call->http->multi, call->easy);
}

void http_cancel(struct http_call *call) {
    if (call->is_finishing) return;
    unlink_call(call);
    call_free(call);
}

static void deliver(struct http_call *call) {
    struct cr_buffer body = call->in;
    call->in = (struct cr_buffer){0};
    call->events->on_body(call->arg, status_of(call), body.data, body.len);
    cr_buffer_done(&body);
}

/* Returns why a call has failed. If the connection has failed, this is the kernel's error, because
 * libcurl's text only repeats the address. */
static const char *failure_of(const struct http_call *call) {
    long error = 0;
    if (call->result == CURLE_COULDNT_CONNECT) {
        (void) call->http->curl->easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &error);
    }
    if (error != 0) return strerror((int) error);
    return call->error[0] != '\0' ? call->error
                                  : call->http->curl->easy_strerror(call->result);
}

static void finish(struct http_call *call) {
    const char *why = call->result != CURLE_OK ? failure_of(call) : NULL;
    unlink_call(call);
    call->is_finishing = true;
    call->events->on_done(call->arg, status_of(call), why);
    call_free(call);
}

static struct http_call *find_due(const struct http *h) {
    struct http_call *call;
    LIST_FOREACH(call, &h->calls, entry) {
        if (call->in.len > 0 || call->is_over) return call;
    }
    return NULL;
}

static void settle(struct http *h) {
    struct http_call *call;
    CURLMsg *m;
    int left;
    while ((m = h->curl->multi_info_read(h->multi, &left)) != NULL) {
        if (m->msg != CURLMSG_DONE) continue;
        char *found = NULL;
        (void) h->curl->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &found);
        call = (struct http_call *) (void *) found;
        call->is_over = true;
        call->result = m->data.result;
    }
    while (!h->closing && (call = find_due(h)) != NULL) {
        if (call->in.len > 0) deliver(call);
        else finish(call);
    }
}

/* ---- libcurl's callbacks ---- */

static size_t on_write(char *data, size_t size, size_t count, void *arg) {
    struct http_call *call = arg;
    size_t len = size * count;
    if (call->in.len + len > UNREAD_MAX) return 0; /* libcurl fails the call */
    return cr_buffer_append(&call->in, data, len) == 0 ? len : 0;
}

/* Sets close-on-exec, so that the workers, which this process starts, do not inherit the
 * connection. */
static int on_new_socket(void *arg, curl_socket_t fd, curlsocktype purpose) {
    (void) arg;
    (void) purpose;
    return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? CURL_SOCKOPT_ERROR : CURL_SOCKOPT_OK;
}

static void act(struct http *h, curl_socket_t fd, int events) {
    int running;
    (void) h->curl->multi_socket_action(h->multi, fd, events, &running);
    settle(h);
}

static void on_timer(uv_timer_t *timer) { act(timer->data, CURL_SOCKET_TIMEOUT, 0); }

static int on_timeout_wanted(CURLM *multi, long timeout_ms, void *arg) {
    struct http *h = arg;
    (void) multi;
    if (h->closing) return 0;
    if (timeout_ms < 0) (void) uv_timer_stop(&h->timer);
    else (void) uv_timer_start(&h->timer, on_timer, (uint64_t) timeout_ms, 0);
    return 0;
}

static void on_handle_closed(struct http *h) {
    if (--h->open_handles > 0) return;
    void (*on_close)(void *) = h->on_close;
    void *arg = h->on_close_arg;
    free(h);
    on_close(arg);
}

static void on_socket_closed(uv_handle_t *handle) {
    struct watched_socket *s = handle->data;
    struct http *h = s->http;
    free(s);
    on_handle_closed(h);
}

static void on_ready(uv_poll_t *poll, int status, int events) {
    const struct watched_socket *s = poll->data;
    int what = status < 0 ? CURL_CSELECT_ERR : 0;
    if ((events & UV_READABLE) != 0) what |= CURL_CSELECT_IN;
    if ((events & UV_WRITABLE) != 0) what |= CURL_CSELECT_OUT;
    act(s->http, s->fd, what);
}

static struct watched_socket *watch_socket(struct http *h, curl_socket_t fd) {
    struct watched_socket *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->http = h;
    s->fd = fd;
    s->poll.data = s;
    if (uv_poll_init(h->loop, &s->poll, fd) < 0) {
        free(s);
        return NULL;
    }
    h->open_handles++;
    (void) h->curl->multi_assign(h->multi, fd, s);
    return s;
}

/* Stops polling a socket and closes its uv_poll_t. Call this when libcurl does not wait for the
 * socket any more. Polling stops at once, because libcurl closes the descriptor next. */
static void forget_socket(struct http *h, struct watched_socket *s) {
    if (s == NULL) return;
    (void) uv_poll_stop(&s->poll);
    (void) h->curl->multi_assign(h->multi, s->fd, NULL);
    uv_close((uv_handle_t *) &s->poll, on_socket_closed);
}

/* libcurl calls this when the events have changed for which it waits on the socket `fd`. If this
 * function returns -1, libcurl fails all calls. */
static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *arg, void *known) {
    struct http *h = arg;
    struct watched_socket *s = known;
    (void) easy;
    if (what == CURL_POLL_REMOVE) {
        forget_socket(h, s);
        return 0;
    }
    if (s == NULL) s = watch_socket(h, fd);
    if (s == NULL) return -1;
    int events = (what & CURL_POLL_IN) != 0 ? UV_READABLE : 0;
    if ((what & CURL_POLL_OUT) != 0) events |= UV_WRITABLE;
    return uv_poll_start(&s->poll, events, on_ready) < 0 ? -1 : 0;
}

/* ---- opening ---- */

int http_open(uv_loop_t *loop, const struct http_options *options, struct http **out,
              struct cr_error *err) {
    const struct http_curl *curl;
    int rc = http_curl_load(options->purpose, &curl, err);
    if (rc < 0) return rc;
    struct http *h = calloc(1, sizeof(*h));
    if (h != NULL) h->multi = curl->multi_init();
    if (h == NULL || h->multi == NULL) {
        free(h);
        return cr_fail(err, -ENOMEM, "%s has no connection: out of memory", options->purpose);
    }
    h->loop = loop;
    h->curl = curl;
    h->options = *options;
    (void) uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    h->open_handles = 1;
    (void) curl->multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted);
    (void) curl->multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    (void) curl->multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timeout_wanted);
    (void) curl->multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    *out = h;
    return 0;
}

/* ---- calls ---- */

#define SET(call, option, value)                                                                   \
    (void) (call)->http->curl->easy_setopt((call)->easy, CURLOPT_##option, (value))

/* Sets the options of TLS. They are the same whether libcurl was built with OpenSSL, GnuTLS or
 * NSS. */
static void set_tls(struct http_call *call) {
    const struct http_options *o = &call->http->options;
    if (o->ca_cert[0] != '\0') SET(call, CAINFO, o->ca_cert);
    if (o->ssl_cert[0] == '\0') return;
    SET(call, SSLCERT, o->ssl_cert);
    SET(call, SSLKEY, o->ssl_cert_key[0] != '\0' ? o->ssl_cert_key : o->ssl_cert);
}

/* Sets the options that all calls have. PROXY "" makes libcurl ignore the proxies of the
 * environment (http_proxy), because the servers are in the nodes' own network. */
static void set_common(struct http_call *call) {
    SET(call, PRIVATE, (void *) call);
    SET(call, ERRORBUFFER, call->error);
    SET(call, WRITEFUNCTION, on_write);
    SET(call, WRITEDATA, (void *) call);
    SET(call, SOCKOPTFUNCTION, on_new_socket);
    SET(call, HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
    /* A stream can be silent for minutes, so a peer that is gone is noticed by keep-alive alone:
     * after 30 s without a byte, by 9 probes (Linux' default), 10 s apart. */
    SET(call, TCP_KEEPALIVE, 1L);
    SET(call, TCP_KEEPIDLE, 30L);
    SET(call, TCP_KEEPINTVL, 10L);
    SET(call, NOSIGNAL, 1L);
    SET(call, PROXY, "");
#if LIBCURL_VERSION_NUM >= 0x075700
    SET(call, QUICK_EXIT, 1L); /* closing does not wait for a name that is being resolved */
#endif
}

static int add_header(struct http_call *call, const char *text) {
    struct curl_slist *longer =
        text != NULL ? call->http->curl->slist_append(call->headers, text) : NULL;
    if (longer == NULL) return -ENOMEM;
    call->headers = longer;
    return 0;
}

/* Adds the body and its headers. The empty header Expect makes libcurl send the body without a wait
 * for "100 Continue". */
static int set_body(struct http_call *call, const struct http_request *request) {
    CR_AUTO_FREE char *type = cr_asprintf("Content-Type: %s", request->type);
    if (add_header(call, type) < 0 || add_header(call, "Expect:") < 0) return -ENOMEM;
    SET(call, POSTFIELDSIZE, (long) strlen(request->body));
    bool is_copied = call->http->curl->easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS,
                                                   request->body) == CURLE_OK;
    return is_copied ? 0 : -ENOMEM;
}

static int set_request(struct http_call *call, const struct cr_endpoint *to,
                       const struct http_request *request) {
    bool is_v6 = strchr(to->host, ':') != NULL;
    CR_AUTO_FREE char *url =
        cr_asprintf("%s://%s%s%s:%u%s", call->http->options.https ? "https" : "http",
                    is_v6 ? "[" : "", to->host, is_v6 ? "]" : "", to->port, request->path);
    CR_AUTO_FREE char *authorization = cr_asprintf("Authorization: %s", request->token);
    if (url == NULL) return -ENOMEM;
    if (request->body != NULL && set_body(call, request) < 0) return -ENOMEM;
    if (request->token[0] != '\0' && add_header(call, authorization) < 0) return -ENOMEM;
    SET(call, URL, url);
    SET(call, HTTPHEADER, call->headers);
    SET(call, CUSTOMREQUEST, request->method);
    return 0;
}

struct http_call *http_send(struct http *h, const struct cr_endpoint *to,
                            const struct http_request *request, const struct http_events *events,
                            void *arg) {
    struct http_call *call = calloc(1, sizeof(*call));
    if (call == NULL) return NULL;
    call->http = h;
    call->events = events;
    call->arg = arg;
    call->easy = h->curl->easy_init();
    if (call->easy == NULL || set_request(call, to, request) < 0) {
        call_free(call);
        return NULL;
    }
    set_common(call);
    set_tls(call);
    if (h->curl->multi_add_handle(h->multi, call->easy) != CURLM_OK) {
        call_free(call);
        return NULL;
    }
    LIST_INSERT_HEAD(&h->calls, call, entry);
    return call;
}

/* ---- closing ---- */

static void on_timer_closed(uv_handle_t *handle) { on_handle_closed(handle->data); }

void http_close(struct http *h, void (*on_close)(void *arg), void *arg) {
    h->closing = true;
    h->on_close = on_close;
    h->on_close_arg = arg;
    while (!LIST_EMPTY(&h->calls)) http_cancel(LIST_FIRST(&h->calls));
    (void) h->curl->multi_cleanup(h->multi); /* calls on_socket_wanted() for open sockets */
    uv_close((uv_handle_t *) &h->timer, on_timer_closed);
}
#else
typedef int http_is_absent; /* ISO C forbids an empty file */
#endif
