/* The HTTP server of the status address: connects libmicrohttpd with the owner's loop.
 *
 * The library runs without a thread of its own. It keeps its sockets in an epoll instance, which
 * the loop watches with one handle. When the epoll instance is readable, MHD_run() handles what has
 * happened. While no client sends a request, the server makes no system call.
 *
 * A snapshot costs a few system calls for each worker, and many clients may request it at once.
 * Therefore a snapshot is kept for SNAPSHOT_AGE_MS and serves all requests of this time. */
#include "status/status.h"

#include "base/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __has_include(<microhttpd.h>)
#include "status/library_internal.h"
#include "status/listen_internal.h"
#include "status/page_internal.h"

#define CONNECTIONS_MAX     64
#define CONNECTION_IDLE_S   10
#define CONNECTION_MEMORY   ((size_t) 32 * 1024) /* bytes of memory for a request's header; a longer
                                                  * one is refused */
#define SNAPSHOT_AGE_MS     200

struct status_server {
    const struct status_library *mhd;
    struct MHD_Daemon *daemon;
    struct status_source source;
    struct status_listener listener;
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer; /* runs until the library's next timeout */
    json_t *snapshot; /* the last snapshot, or NULL */
    uint64_t snapshot_ms;
    int open_handles;
    void (*on_close)(void *arg);
    void *arg;
};

/* ---- the texts of the paths ---- */

struct page {
    const char *type;
    unsigned status;
    char *text; /* malloc'ed; the library frees it */
    size_t len;
};

static void set_text(struct page *p, unsigned status, const char *text) {
    *p = (struct page){.type = "text/plain; charset=utf-8", .status = status};
    p->text = strdup(text);
    p->len = p->text != NULL ? strlen(p->text) : 0;
}

/* Returns a snapshot that is at most SNAPSHOT_AGE_MS old, or NULL if memory is short. The reference
 * belongs to the server. */
static const json_t *look(struct status_server *s) {
    uint64_t now_ms = uv_now(s->loop);
    if (s->snapshot != NULL && now_ms - s->snapshot_ms < SNAPSHOT_AGE_MS) return s->snapshot;
    json_decref(s->snapshot);
    s->snapshot = s->source.snapshot(s->source.arg);
    s->snapshot_ms = now_ms;
    return s->snapshot;
}

static void get_page(struct status_server *s, const char *accept, struct page *p) {
    (void) s, (void) accept;
    *p = (struct page){.type = "text/html; charset=utf-8", .status = MHD_HTTP_OK};
    p->len = (size_t) (status_page_end - status_page);
    p->text = malloc(p->len);
    if (p->text != NULL) memcpy(p->text, status_page, p->len);
}

static void get_json(struct status_server *s, const char *accept, struct page *p) {
    (void) accept;
    const json_t *snapshot = look(s);
    *p = (struct page){.type = "application/json", .status = MHD_HTTP_OK};
    if (snapshot != NULL) p->text = json_dumps(snapshot, JSON_COMPACT | JSON_REAL_PRECISION(14));
    p->len = p->text != NULL ? strlen(p->text) : 0;
}

static void get_metrics(struct status_server *s, const char *accept, struct page *p) {
    const json_t *snapshot = look(s);
    bool is_open = accept != NULL && strstr(accept, "application/openmetrics-text") != NULL;
    struct cr_buffer text = {0};
    *p = (struct page){.status = MHD_HTTP_OK};
    p->type = is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                      : "text/plain; version=0.0.4; charset=utf-8";
    if (snapshot == NULL || status_metrics(&text, snapshot, is_open) < 0) cr_buffer_done(&text);
    p->text = text.data;
    p->len = text.len;
}

static void get_health(struct status_server *s, const char *accept, struct page *p) {
    (void) s, (void) accept;
    set_text(p, MHD_HTTP_OK, "ok\n");
}

static void get_readiness(struct status_server *s, const char *accept, struct page *p) {
    (void) accept;
    const char *why = s->source.why_not_ready(s->source.arg);
    char text[256];
    (void) snprintf(text, sizeof(text), "%s\n", why == NULL ? "ready" : why);
    set_text(p, why == NULL ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static const struct {
    const char *path;
    void (*get)(struct status_server *s, const char *accept, struct page *p);
} paths[] = {{"/", get_page},
             {"/status.json", get_json},
             {"/metrics", get_metrics},
             {"/healthz", get_health},
             {"/readyz", get_readiness}};

static void find_page(struct status_server *s, const char *url, const char *accept,
                      struct page *p) {
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (strcmp(url, paths[i].path) != 0) continue;
        paths[i].get(s, accept, p);
        return;
    }
    set_text(p, MHD_HTTP_NOT_FOUND,
             "there are: / /status.json /metrics /healthz /readyz\n");
}

/* ---- requests ---- */

static enum MHD_Result answer(const struct status_library *mhd, struct MHD_Connection *connection,
                              const struct page *p) {
    struct MHD_Response *r =
        mhd->create_response_from_buffer(p->len, p->text, MHD_RESPMEM_MUST_FREE);
    if (r == NULL) {
        free(p->text);
        return MHD_NO;
    }
    (void) mhd->add_response_header(r, "Content-Type", p->type);
    (void) mhd->add_response_header(r, "Cache-Control", "no-store");
    (void) mhd->add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void) mhd->add_response_header(r, "Content-Security-Policy",
                                    "default-src 'none'; style-src 'unsafe-inline'; "
                                    "script-src 'unsafe-inline'; connect-src 'self'");
    if (p->status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void) mhd->add_response_header(r, "Allow", "GET, HEAD");
    }
    enum MHD_Result rc = mhd->queue_response(connection, p->status, r);
    mhd->destroy_response(r);
    return rc;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **of_request) {
    struct status_server *s = arg;
    struct page p;
    (void) version, (void) upload;
    /* The library calls this callback a first time when it has only the header of a request. To
     * answer in this call would make the library close the connection after the answer. */
    if (*of_request == NULL) {
        *of_request = s;
        return MHD_YES;
    }
    if (*upload_size > 0) { /* the body of a refused request: drop it */
        *upload_size = 0;
        return MHD_YES;
    }
    const char *accept = s->mhd->lookup_connection_value(connection, MHD_HEADER_KIND, "Accept");
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) find_page(s, url, accept, &p);
    else set_text(&p, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n");
    if (p.text == NULL) set_text(&p, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory left\n");
    if (p.text == NULL) return MHD_NO;
    return answer(s->mhd, connection, &p);
}

/* ---- the loop ---- */

static void on_timer(uv_timer_t *timer);

static void run(struct status_server *s) {
    MHD_UNSIGNED_LONG_LONG left_ms;
    (void) s->mhd->run(s->daemon);
    if (s->mhd->get_timeout(s->daemon, &left_ms) == MHD_YES) {
        (void) uv_timer_start(&s->timer, on_timer, left_ms, 0);
    } else {
        (void) uv_timer_stop(&s->timer);
    }
}

static void on_timer(uv_timer_t *timer) { run(timer->data); }

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    run(poll->data);
}

/* ---- opening and closing ---- */

static void on_library_log(void *arg, const char *format, va_list ap) {
    char text[512];
    (void) arg;
    (void) vsnprintf(text, sizeof(text), format, ap);
    cr_debug("status address: %s", text);
}

static int start_daemon(struct status_server *s, struct cr_error *err) {
    s->daemon = s->mhd->start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s,
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET, s->listener.fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned) CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned) CONNECTION_IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
        MHD_OPTION_END);
    if (s->daemon == NULL) {
        return cr_fail(err, -EIO, "libmicrohttpd cannot serve the status address %s",
                       s->listener.address);
    }
    const union MHD_DaemonInfo *info = s->mhd->get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int rc = info == NULL ? -EIO : uv_poll_init(s->loop, &s->poll, info->epoll_fd);
    if (rc < 0) return cr_fail(err, rc, "cannot watch the status address: %s", strerror(-rc));
    s->poll.data = s;
    s->open_handles++;
    return uv_poll_start(&s->poll, UV_READABLE, on_readable);
}

static void free_server(struct status_server *s) {
    void (*on_close)(void *) = s->on_close;
    void *arg = s->arg;
    json_decref(s->snapshot);
    free(s);
    if (on_close != NULL) on_close(arg);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct status_server *s = handle->data;
    if (--s->open_handles == 0) free_server(s);
}

void status_server_close(struct status_server *s, void (*on_close)(void *arg), void *arg) {
    s->on_close = on_close;
    s->arg = arg;
    if (s->open_handles > 1) uv_close((uv_handle_t *) &s->poll, on_handle_closed);
    uv_close((uv_handle_t *) &s->timer, on_handle_closed);
    status_listener_remove(&s->listener);
    if (s->daemon != NULL) s->mhd->stop_daemon(s->daemon); /* closes the listening socket, too */
    else (void) close(s->listener.fd);
}

const char *status_server_address(const struct status_server *s) { return s->listener.address; }

int status_serve(uv_loop_t *loop, const char *address, const struct status_source *source,
                 struct status_server **out, struct cr_error *err) {
    const struct status_library *mhd;
    int rc = status_library_load(&mhd, err);
    if (rc < 0) return rc;
    struct status_server *s = calloc(1, sizeof(*s));
    if (s == NULL) return cr_fail(err, -ENOMEM, "cannot open the status address: no memory left");
    *s = (struct status_server){.mhd = mhd, .source = *source, .loop = loop};
    rc = status_listen(address, &s->listener, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    (void) uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    s->open_handles = 1;
    rc = start_daemon(s, err);
    if (rc < 0) {
        status_server_close(s, NULL, NULL);
        return rc;
    }
    uv_unref((uv_handle_t *) &s->poll); /* a server without requests must not keep the loop
                                         * running */
    uv_unref((uv_handle_t *) &s->timer);
    *out = s;
    return 0;
}

#else

int status_serve(uv_loop_t *loop, const char *address, const struct status_source *source,
                 struct status_server **out, struct cr_error *err) {
    (void) loop, (void) source, (void) out;
    return cr_fail(err, -ENOTSUP,
                   "this crun has no status address (%.200s): it was built without microhttpd.h; "
                   "build it again with libmicrohttpd's header (Debian: libmicrohttpd-dev)",
                   address);
}

const char *status_server_address(const struct status_server *s) {
    (void) s;
    return "";
}

void status_server_close(struct status_server *s, void (*on_close)(void *arg), void *arg) {
    (void) s;
    on_close(arg);
}

#endif
