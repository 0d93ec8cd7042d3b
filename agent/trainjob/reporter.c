/* Sends the reports of agent/trainjob/trainjob.h by libcurl, on the agent's loop. At most one
 * request is under way; it is cancelled when it takes too long. The token is read again for each
 * report, because the kubelet replaces it before it expires. */
#include "agent/trainjob/status_internal.h"

#include "base/log/log.h"
#include "base/time/clock.h"
#include "rendezvous/http/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define CALL_MS   10000                /* longest time in ms of one report */
#define LAST_MS   3000                 /* longest time in ms of the last report */
#define ANSWER_MAX 4096               /* most bytes of an answer's body that are read */
#define TOKEN_MAX ((size_t) 16 << 10)  /* bytes for the contents of the token file, with the NUL */

struct trainjob {
    uv_loop_t *loop;
    const struct agent_trainjob *options;
    void (*read)(void *arg, struct trainjob_progress *out);
    void *arg; /* first parameter of `read` and of on_close */
    struct cr_endpoint to;
    const char *path;          /* points into options->url */
    struct http *http;      /* NULL before the first report */
    struct http_call *call; /* NULL if no report is under way */
    char answer[ANSWER_MAX];
    size_t answer_len;
    uv_timer_t next, limit; /* expire when the next report is due; when `call` takes too long */
    bool is_failing;        /* true if the last report has failed, and a warning has said so */
    bool is_off;            /* true if no further report can be sent: libcurl is missing */
    bool is_done, is_closing;
    int open_handles;
    void (*on_close)(void *arg);
};

static void close_all(struct trainjob *t);

/* Logs why a report has failed, unless the report before it has failed, too. */
static void complain(struct trainjob *t, const char *why) {
    if (!t->is_failing) {
        cr_warn("cannot report the job's status to TrainJob's server at %s:%u: %s; the job goes "
                "on, and only the first of several failures is logged",
                t->to.host, t->to.port, why);
    }
    t->is_failing = true;
}

/* ---- the end of a report ---- */

static void end_call(struct trainjob *t) {
    t->call = NULL;
    (void) uv_timer_stop(&t->limit);
    if (t->is_closing) close_all(t);
}

static void on_limit(uv_timer_t *timer) {
    struct trainjob *t = timer->data;
    http_cancel(t->call);
    complain(t, "no answer in time");
    end_call(t);
}

/* Keeps the first ANSWER_MAX bytes of the answer, and drops the others. */
static void on_body(void *arg, int status, const char *data, size_t len) {
    struct trainjob *t = arg;
    (void) status;
    size_t room = sizeof(t->answer) - t->answer_len;
    if (len > room) len = room;
    memcpy(t->answer + t->answer_len, data, len);
    t->answer_len += len;
}

static void on_call_done(void *arg, int status, const char *why) {
    struct trainjob *t = arg;
    char refusal[400];
    if (why == NULL && (status < 200 || status > 299)) {
        http_refusal(status, t->answer, t->answer_len, refusal, sizeof(refusal));
        why = refusal;
    }
    if (why != NULL) {
        complain(t, why);
    } else if (t->is_failing) {
        t->is_failing = false;
        cr_info("TrainJob's server at %s:%u takes the job's status again", t->to.host, t->to.port);
    }
    end_call(t);
}

static const struct http_events http_events = {.on_body = on_body, .on_done = on_call_done};

/* ---- sending ---- */

/* Opens the connection, unless it is open. On failure no further report is tried. */
static bool open_http(struct trainjob *t) {
    const struct http_options options = {.purpose = "the report to TrainJob", .https = true,
                                         .ca_cert = t->options->ca_cert, .ssl_cert = "",
                                         .ssl_cert_key = ""};
    struct cr_error err = {0};
    if (t->http != NULL) return true;
    if (!t->is_off && http_open(t->loop, &options, &t->http, &err) < 0) {
        complain(t, err.text);
        t->is_off = true;
    }
    return t->http != NULL;
}

static void post(struct trainjob *t, const struct trainjob_progress *p) {
    char authorization[TOKEN_MAX];
    struct cr_buffer body = {0};
    struct cr_error err = {0};
    if (!open_http(t)) return;
    if (http_read_token(t->options->token_file, authorization, TOKEN_MAX, &err) < 0) {
        complain(t, err.text);
        return;
    }
    t->answer_len = 0;
    if (trainjob_write_body(p, t->options->steps, cr_wall_ns(), &body) == 0) {
        t->call = http_post(t->http, &t->to, t->path, authorization, body.data, &http_events,
                            t);
    }
    explicit_bzero(authorization, sizeof(authorization));
    cr_buffer_done(&body);
    if (t->call == NULL) {
        complain(t, "no memory left");
        return;
    }
    uv_update_time(t->loop); /* loading libcurl takes long, and timers count from the cached time */
    (void) uv_timer_start(&t->limit, on_limit, p->is_done ? LAST_MS : CALL_MS, 0);
}

/* Sends a report, unless one is under way. */
static void report(struct trainjob *t) {
    struct trainjob_progress p = {0};
    t->read(t->arg, &p);
    p.is_done = t->is_done;
    if (p.leads && t->call == NULL) post(t, &p);
}

static void on_next(uv_timer_t *timer) { report(timer->data); }

void trainjob_round(struct trainjob *t) {
    uint64_t ms = (uint64_t) t->options->interval_ms;
    (void) uv_timer_start(&t->next, on_next, ms, ms);
    report(t);
}

void trainjob_done(struct trainjob *t) {
    t->is_done = true;
    (void) uv_timer_stop(&t->next);
    (void) uv_timer_stop(&t->limit);
    if (t->call != NULL) http_cancel(t->call);
    t->call = NULL;
    report(t);
}

/* ---- opening and closing ---- */

struct trainjob *trainjob_open(struct uv_loop_s *loop, const struct agent_trainjob *options,
                               void (*read)(void *arg, struct trainjob_progress *out), void *arg) {
    struct cr_error err = {0};
    struct trainjob *t = calloc(1, sizeof(*t));
    if (t == NULL || trainjob_parse_url(options->url, &t->to, &t->path, &err) < 0) {
        cr_warn("no status is reported to TrainJob: KUBEFLOW_TRAINER_SERVER_URL: %s",
                t == NULL ? "no memory left" : err.text);
        free(t);
        return NULL;
    }
    t->loop = loop;
    t->options = options;
    t->read = read;
    t->arg = arg;
    (void) uv_timer_init(loop, &t->next);
    (void) uv_timer_init(loop, &t->limit);
    t->next.data = t->limit.data = t;
    return t;
}

static void on_part_closed(struct trainjob *t) {
    if (--t->open_handles > 0) return;
    void (*on_close)(void *) = t->on_close;
    void *arg = t->arg;
    free(t);
    on_close(arg);
}

static void on_timer_closed(uv_handle_t *timer) { on_part_closed(timer->data); }

static void on_http_closed(void *arg) { on_part_closed(arg); }

static void close_all(struct trainjob *t) {
    t->open_handles = 2 + (t->http != NULL);
    if (t->http != NULL) http_close(t->http, on_http_closed, t);
    uv_close((uv_handle_t *) &t->next, on_timer_closed);
    uv_close((uv_handle_t *) &t->limit, on_timer_closed);
}

void trainjob_close(struct trainjob *t, void (*on_close)(void *arg)) {
    t->on_close = on_close;
    t->is_closing = true;
    if (t->is_done && t->call != NULL) return; /* end_call() closes */
    close_all(t);
}
