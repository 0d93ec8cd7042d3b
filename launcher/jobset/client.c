/* Carries out the calls that launcher/jobset/protocol_internal.h decides, by libcurl on crun's
 * loop. One call is under way at a time. The timer is the time limit of that call, or the pause
 * before the next call. */
#include "launcher/jobset/protocol_internal.h"

#include "base/buffer.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "rendezvous/http/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#define CALL_MS    UINT64_C(10000)       /* longest time in ms of READ and ANNOUNCE */
#define WATCH_MS   UINT64_C(270000)      /* JOBSET_WATCH_S and 30 s: longest time of a watch */
#define BRIEF_MS   1000                  /* a watch that ends sooner without an event has failed */
#define LINE_MAX_B ((size_t) 4 << 20)    /* longest JSON object of the API server in bytes */
#define TOKEN_MAX  ((size_t) 16 << 10)   /* bytes for the text of the token file, with the NUL */
#define HTTP_OK    200

_Static_assert(WATCH_MS > JOBSET_WATCH_S * UINT64_C(1000), "the API server ends a watch itself");

struct jobset {
    uv_loop_t *loop;
    const struct jobset_options *options;
    struct jobset_protocol protocol;
    void (*on_order)(void *arg, enum jobset_order order);
    void *arg;
    char ca_cert[512];
    struct http *http;
    struct http_call *call;     /* NULL if no call is under way */
    enum jobset_call kind;      /* kind of `call` */
    int64_t begun_ms;           /* time at which `call` began (monotonic clock) */
    struct cr_buffer in;        /* body of the answer; of a WATCH only its last, incomplete line */
    struct cr_error error;      /* why the answer cannot be used; code 0 if it can */
    uv_timer_t timer;
    bool is_failing;            /* true if the last call has failed, and a warning has said so */
    bool got_event, is_closing;
    int open_handles;
};

static const char *const names[] = {[JOBSET_READ] = "read the JobSet",
                                    [JOBSET_ANNOUNCE] = "write the pod's annotation",
                                    [JOBSET_WATCH] = "watch the JobSet"};

static void proceed(struct jobset *j);

/* Logs why a call has failed, unless the call before it has failed, too. */
static void complain(struct jobset *j, int http_status, const char *why) {
    const struct jobset_options *o = j->options;
    if (!j->is_failing) {
        cr_warn("cannot %s '%s' of the namespace '%s' at %s:%u: %s%s; %s, and crun tries again; "
                "only the first of several failures is logged",
                names[j->kind], j->kind == JOBSET_ANNOUNCE ? o->pod : o->name, o->space,
                o->server.host, o->server.port, why,
                http_status == 401 || http_status == 403
                    ? "; the pod's service account needs the verbs get, list and watch for "
                      "jobsets, and patch for pods" : "",
                j->protocol.is_started ? "the workers run on" : "the workers have to wait");
    }
    j->is_failing = true;
}

static void recover(struct jobset *j) {
    if (!j->is_failing) return;
    cr_info("the API server at %s:%u answers again", j->options->server.host,
            j->options->server.port);
    j->is_failing = false;
}

/* ---- answers ---- */

/* If an order is due, calls on_order() and returns true. The owner may have called jobset_close()
 * in on_order(), which sets j->is_closing. */
static bool give_order(struct jobset *j) {
    enum jobset_order order;
    if (!jobset_order(&j->protocol, &order)) return false;
    if (j->protocol.is_bypassed) {
        cr_info("JobSet '%s' does not restart in place: its restartStrategy is not InPlaceRestart, "
                "or it has the annotation disable-in-place-restart", j->options->name);
    } else {
        cr_info("in-place attempt %lld of JobSet '%s' %s", (long long) j->protocol.attempt,
                j->options->name, order == JOBSET_START ? "starts: all pods have come"
                                                        : "is outdated: a pod has failed");
    }
    j->on_order(j->arg, order);
    return true;
}

static void on_timer(uv_timer_t *timer);

static void wait_ms(struct jobset *j, int64_t ms) {
    uv_update_time(j->loop);
    (void) uv_timer_start(&j->timer, on_timer, (uint64_t) ms, 0);
}

/* Ends the call with its result, and begins the next one at once or after a pause. */
static void end_call(struct jobset *j, int http_status, const char *why) {
    uint32_t random = 0;
    bool is_stale = j->error.code == -ESTALE;
    j->call = NULL;
    if (why != NULL && !is_stale) complain(j, http_status, why);
    else if (j->kind != JOBSET_READ) recover(j);
    if (j->kind == JOBSET_ANNOUNCE && why == NULL) jobset_announced(&j->protocol);
    (void) getrandom(&random, sizeof(random), GRND_NONBLOCK);
    int64_t pause_ms = jobset_ended(&j->protocol, j->kind, is_stale ? 410 : http_status,
                                    why == NULL, random);
    if (give_order(j) && j->is_closing) return;
    wait_ms(j, pause_ms);
}

static void cancel_call(struct jobset *j, int http_status, const char *why) {
    http_cancel(j->call);
    end_call(j, http_status, why);
}

static void on_timer(uv_timer_t *timer) {
    struct jobset *j = timer->data;
    if (j->call == NULL) proceed(j);
    else cancel_call(j, 0, "no answer in time");
}

/* Takes the complete lines of j->in, each an event of a watch, and keeps the rest. On error stores
 * the reason in j->error. */
static void take_lines(struct jobset *j) {
    size_t at = 0;
    while (j->error.code == 0 && at < j->in.len) {
        const char *line = j->in.data + at, *end = memchr(line, '\n', j->in.len - at);
        if (end == NULL) break;
        int rc = end == line ? 0 : jobset_take(&j->protocol, JOBSET_WATCH, line,
                                               (size_t) (end - line), &j->error);
        if (rc < 0 && j->error.code == 0) {
            (void) cr_fail(&j->error, rc, "cannot go on watching the JobSet: the API server has "
                           "dropped its older changes; reading it anew");
        }
        j->got_event = true;
        at += (size_t) (end - line) + 1;
    }
    cr_buffer_consume(&j->in, at);
}

static void on_body(void *arg, int status, const char *data, size_t len) {
    struct jobset *j = arg;
    if (j->in.len + len > LINE_MAX_B || cr_buffer_append(&j->in, data, len) < 0) {
        cancel_call(j, status, "its answer is too long");
        return;
    }
    if (j->kind != JOBSET_WATCH || status != HTTP_OK) return;
    take_lines(j);
    if (j->error.code != 0) {
        cancel_call(j, status, j->error.text);
        return;
    }
    recover(j);
    (void) give_order(j);
}

/* Runs when a call is over. `why` is NULL if the answer is complete, else it says why not. */
static void on_done(void *arg, int status, const char *why) {
    struct jobset *j = arg;
    char refusal[400];
    if (why == NULL && (status < 200 || status > 299)) {
        http_refusal(status, j->in.data != NULL ? j->in.data : "", j->in.len, refusal,
                     sizeof(refusal));
        why = refusal;
    }
    if (why == NULL && j->kind == JOBSET_READ &&
        jobset_take(&j->protocol, JOBSET_READ, j->in.data, j->in.len, &j->error) < 0) {
        why = j->error.text;
    }
    bool is_brief = !j->got_event && cr_monotonic_ms() - j->begun_ms < BRIEF_MS;
    if (why == NULL && j->kind == JOBSET_WATCH && is_brief) why = "the watch has ended at once";
    end_call(j, status, why);
}

static const struct http_events http_events = {.on_body = on_body, .on_done = on_done};

/* ---- calls ---- */

static struct http_call *send_call(struct jobset *j, const char *token) {
    char path[JOBSET_PATH_MAX], body[JOBSET_BODY_MAX];
    struct http_request request = {.method = "GET", .path = path, .token = token};
    jobset_path(&j->protocol, j->options, j->kind, path);
    if (j->kind == JOBSET_ANNOUNCE) {
        jobset_patch(&j->protocol, body);
        request.method = "PATCH";
        request.type = "application/merge-patch+json";
        request.body = body;
    }
    return http_send(j->http, &j->options->server, &request, &http_events, j);
}

/* Begins the call that is due. */
static void proceed(struct jobset *j) {
    char token_file[512], token[TOKEN_MAX];
    struct cr_error err = {0};
    j->kind = jobset_next(&j->protocol);
    if (j->kind == JOBSET_NOTHING) return;
    cr_buffer_clear(&j->in);
    j->error = (struct cr_error){0};
    j->got_event = false;
    j->begun_ms = cr_monotonic_ms();
    (void) snprintf(token_file, sizeof(token_file), "%s/token", j->options->folder);
    int rc = http_read_token(token_file, token, sizeof(token), &err);
    if (rc == 0) j->call = send_call(j, token);
    explicit_bzero(token, sizeof(token));
    if (j->call == NULL) end_call(j, 0, rc < 0 ? err.text : "no memory left for the call");
    else wait_ms(j, (int64_t) (j->kind == JOBSET_WATCH ? WATCH_MS : CALL_MS));
}

/* ---- opening and closing ---- */

int jobset_open(struct uv_loop_s *loop, const struct jobset_options *options,
                void (*on_order)(void *arg, enum jobset_order order), void *arg,
                struct jobset **out, struct cr_error *err) {
    struct jobset *j = calloc(1, sizeof(*j));
    if (j == NULL) {
        return cr_fail(err, -ENOMEM, "cannot take part in JobSet's restarts: no memory left");
    }
    j->loop = loop;
    j->options = options;
    j->on_order = on_order;
    j->arg = arg;
    j->protocol.previous = -1;
    (void) snprintf(j->ca_cert, sizeof(j->ca_cert), "%s/ca.crt", options->folder);
    const struct http_options http = {.purpose = "the in-place restart of JobSet", .https = true,
                                      .ca_cert = j->ca_cert, .ssl_cert = "", .ssl_cert_key = ""};
    int rc = http_open(loop, &http, &j->http, err);
    if (rc < 0) {
        free(j);
        return rc;
    }
    (void) uv_timer_init(loop, &j->timer);
    j->timer.data = j;
    cr_info("waiting until all pods of JobSet '%s' have come", options->name);
    wait_ms(j, 0);
    *out = j;
    return 0;
}

static void on_part_closed(struct jobset *j) {
    if (--j->open_handles > 0) return;
    cr_buffer_done(&j->in);
    free(j);
}

static void on_timer_closed(uv_handle_t *timer) { on_part_closed(timer->data); }

static void on_http_closed(void *arg) { on_part_closed(arg); }

void jobset_close(struct jobset *j) {
    j->is_closing = true;
    j->open_handles = 2;
    http_close(j->http, on_http_closed, j);
    uv_close((uv_handle_t *) &j->timer, on_timer_closed);
}
