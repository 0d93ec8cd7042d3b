/* Reads and writes the key of a signpost: see signpost_internal.h. Each question to the TCPStore
 * has a connection of its own. */
#include "rendezvous/way/signpost_internal.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "rendezvous/dial/dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISH_MS  2000 /* ms from one writing of the key to the next */
#define ANSWER_MS   3000 /* longest time in ms for the answer to a question */
#define FAREWELL_MS 1000 /* longest time in ms for emptying the key at the end */

/* What a question is for. */
enum purpose { TO_LOOK, TO_PUBLISH, TO_EMPTY };

/* One question, with its connection. */
struct question {
    struct signpost *signpost;
    struct secured_stream *stream;
    enum purpose purpose;
    char expected[SIGNPOST_VALUE_MAX], desired[SIGNPOST_VALUE_MAX];
    struct cr_buffer in;
};

struct signpost {
    uv_loop_t *loop;
    char *host, *run_id;
    uint16_t port;
    bool is_old; /* true: the store speaks the protocol of torch 2.0 and earlier */
    const struct signpost_events *events;
    void *arg;
    struct question *current;          /* the question that is under way, or NULL */
    /* value with which signpost_look() claims the key; "" = it does not claim */
    char mine[SIGNPOST_VALUE_MAX];
    bool publishes;
    struct signpost_value published;
    char published_text[SIGNPOST_VALUE_MAX];
    uv_timer_t limit;   /* runs while a question is under way */
    uv_timer_t publish; /* runs while this node publishes */
    int open_handles;   /* number of questions that are not freed yet, and of open timers */
    bool closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- the end of a question, and of the signpost ---- */

static void handle_is_closed(struct signpost *s) {
    if (--s->open_handles > 0) return;
    void (*on_close)(void *) = s->on_close;
    void *arg = s->on_close_arg;
    free(s->host);
    free(s->run_id);
    free(s);
    on_close(arg);
}

static void on_stream_closed(void *arg) {
    struct question *q = arg;
    struct signpost *s = q->signpost;
    cr_buffer_done(&q->in);
    free(q);
    handle_is_closed(s);
}

static void drop(struct signpost *s) {
    struct question *q = s->current;
    s->current = NULL;
    (void) uv_timer_stop(&s->limit);
    if (q != NULL) secured_stream_close(q->stream, on_stream_closed, q);
}

static void on_timer_closed(uv_handle_t *handle) { handle_is_closed(handle->data); }

static void close_handles(struct signpost *s) {
    if (uv_is_closing((uv_handle_t *) &s->limit)) return;
    drop(s);
    uv_close((uv_handle_t *) &s->limit, on_timer_closed);
    uv_close((uv_handle_t *) &s->publish, on_timer_closed);
}

static void fail(struct signpost *s, const char *why) {
    bool is_look = s->current->purpose == TO_LOOK;
    char text[400];
    (void) snprintf(text, sizeof(text), "the TCPStore at %.80s port %u cannot be asked: %.200s",
                    s->host, s->port, why);
    drop(s);
    if (s->closing) close_handles(s);
    else if (is_look) s->events->on_unknown(s->arg, text);
}

/* ---- the answer ---- */

static void ask(struct signpost *s, enum purpose purpose, const char *expected,
                const char *desired, int64_t limit_ms);

static void got_look(struct signpost *s, const char *value) {
    struct signpost_value v;
    if (value[0] == '\0' || strcmp(value, SIGNPOST_NOTHING) == 0) {
        s->events->on_unknown(s->arg, "no node has said in the TCPStore that it hosts");
    } else if (!signpost_parse(value, strlen(value), &v)) {
        s->events->on_unknown(s->arg, "the TCPStore's key of this job is not crun's");
    } else if (strcmp(value, s->mine) == 0) {
        s->events->on_won(s->arg, &v);
    } else {
        s->events->on_named(s->arg, &v);
    }
}

/* Handles the value that the key has now. If it is older than the value that this node publishes,
 * replaces it at once; a text that no crun has written counts as older. If it is another value and
 * not older, stops publishing, and calls on_named. */
static void got_published(struct signpost *s, const char *value) {
    struct signpost_value v;
    if (strcmp(value, s->published_text) == 0) return;
    if (!signpost_parse(value, strlen(value), &v) || signpost_is_newer(&s->published, &v)) {
        ask(s, TO_PUBLISH, value, s->published_text, ANSWER_MS);
    } else {
        signpost_fall_silent(s);
        s->events->on_named(s->arg, &v);
    }
}

static void got_answer(struct signpost *s, const char *value) {
    enum purpose purpose = s->current->purpose;
    drop(s);
    if (s->closing) close_handles(s);
    else if (purpose == TO_LOOK) got_look(s, value);
    else if (s->publishes) got_published(s, value);
}

/* ---- the stream's events ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct question *q = arg;
    struct cr_buffer bytes = {0};
    (void) own_addr, (void) peer_addr;
    if (q->signpost->current != q) return;
    if (signpost_ask(&bytes, q->signpost->is_old, q->signpost->run_id, q->expected,
                     q->desired) == 0) {
        secured_stream_send(q->stream, bytes.data, bytes.len);
        secured_stream_flush(q->stream);
    }
    cr_buffer_done(&bytes);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct question *q = arg;
    char value[SIGNPOST_VALUE_MAX];
    if (q->signpost->current != q) return;
    if (cr_buffer_append(&q->in, data, len) < 0) {
        fail(q->signpost, "out of memory");
        return;
    }
    switch (signpost_read(q->in.data, q->in.len, value)) {
    case SIGNPOST_INCOMPLETE: return;
    case SIGNPOST_ANSWERED: got_answer(q->signpost, value); return;
    case SIGNPOST_STRANGE: fail(q->signpost, "its answer is not that of a TCPStore"); return;
    }
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct question *q = arg;
    (void) how;
    if (q->signpost->current == q) fail(q->signpost, why);
}

static void on_refused(void *arg, enum secure_failure failure, const char *why) {
    (void) failure;
    on_lost(arg, RENDEZVOUS_BROKEN, why);
}

static const struct secured_stream_events stream_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost, .on_refused = on_refused};

static void on_limit(uv_timer_t *timer) {
    struct signpost *s = timer->data;
    if (s->current != NULL) fail(s, "no answer");
    else if (!s->closing) s->events->on_unknown(s->arg, "out of memory");
}

/* Asks on a new connection, and drops the question that is under way. If memory is short, a
 * question TO_LOOK ends with on_unknown, which the timer `limit` calls; any other question is left
 * out. */
static void ask(struct signpost *s, enum purpose purpose, const char *expected,
                const char *desired, int64_t limit_ms) {
    drop(s);
    struct question *q = calloc(1, sizeof(*q));
    if (q != NULL) {
        q->signpost = s;
        q->purpose = purpose;
        (void) snprintf(q->expected, sizeof(q->expected), "%s", expected);
        (void) snprintf(q->desired, sizeof(q->desired), "%s", desired);
        q->stream = secured_stream_new(s->loop, s->host, s->port, NULL, s->run_id, &stream_events,
                                       q);
    }
    if (q == NULL || q->stream == NULL) {
        free(q);
        if (purpose == TO_LOOK) (void) uv_timer_start(&s->limit, on_limit, 0, 0);
        return;
    }
    s->open_handles++;
    s->current = q;
    (void) uv_timer_start(&s->limit, on_limit, (uint64_t) limit_ms, 0);
    secured_stream_open(q->stream);
}

static void on_publish(uv_timer_t *timer) {
    struct signpost *s = timer->data;
    if (s->events->may_publish(s->arg)) {
        ask(s, TO_PUBLISH, "", s->published_text, ANSWER_MS);
    }
}

/* ---- the functions of signpost_internal.h ---- */

struct signpost *signpost_new(uv_loop_t *loop, const char *host, uint16_t port, bool is_old,
                              const char *run_id, const struct signpost_events *events, void *arg) {
    struct signpost *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    s->loop = loop;
    s->port = port;
    s->is_old = is_old;
    s->events = events;
    s->arg = arg;
    s->host = strdup(host);
    s->run_id = strdup(run_id);
    if (s->host == NULL || s->run_id == NULL) {
        free(s->host);
        free(s->run_id);
        free(s);
        return NULL;
    }
    (void) uv_timer_init(loop, &s->limit);
    (void) uv_timer_init(loop, &s->publish);
    s->limit.data = s->publish.data = s;
    s->open_handles = 2;
    return s;
}

void signpost_look(struct signpost *s, const struct signpost_value *mine,
                   const struct signpost_value *stale) {
    char expected[SIGNPOST_VALUE_MAX] = "";
    s->mine[0] = '\0';
    if (mine == NULL) {
        ask(s, TO_LOOK, SIGNPOST_NOTHING, SIGNPOST_NOTHING, ANSWER_MS);
        return;
    }
    signpost_format(mine, s->mine);
    if (stale != NULL) signpost_format(stale, expected);
    ask(s, TO_LOOK, expected, s->mine, ANSWER_MS);
}

void signpost_hang_up(struct signpost *s) {
    if (s->current != NULL && s->current->purpose == TO_LOOK) drop(s);
}

void signpost_publish(struct signpost *s, const struct signpost_value *mine) {
    s->publishes = true;
    s->published = *mine;
    signpost_format(mine, s->published_text);
    (void) uv_timer_start(&s->publish, on_publish, 0, PUBLISH_MS);
}

void signpost_fall_silent(struct signpost *s) {
    s->publishes = false;
    (void) uv_timer_stop(&s->publish);
}

void signpost_close(struct signpost *s, bool is_over, void (*on_close)(void *arg), void *arg) {
    bool empties = s->publishes && is_over;
    s->on_close = on_close;
    s->on_close_arg = arg;
    signpost_fall_silent(s);
    drop(s);
    if (empties) ask(s, TO_EMPTY, s->published_text, "", FAREWELL_MS);
    s->closing = true;
    if (s->current == NULL) close_handles(s);
}
