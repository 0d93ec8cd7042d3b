/* The client on a loop.
 *
 *   RESOLVE ─▶ CONNECT ─▶ GREET ─▶ READY ─▶ LOST        opening fails: PAUSE, then RESOLVE again
 *                                                        closing: from any state, at any time
 *
 * A call is one or two requests, sent one after the other (get is WAIT, then GET). The first call of
 * the queue is under way, the others wait. Callbacks of libuv record a fact and call advance(); only
 * enter() writes the state; only free_when_closed() frees. One timer serves the state's deadline
 * while opening and the earliest call's afterwards. */
#include "store/client_async.h"

#include "store/answer_internal.h"
#include "store/call_text_internal.h"

#include "base/address.h"
#include "base/assert.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MAX_MS   5000
#define GRACE_MS         5000 /* to acknowledge a cancelled wait */
#define POP_ROUNDS_MAX   100  /* a plain key of the name ends every wait at once */

#define STATES(X) X(RESOLVE) X(CONNECT) X(GREET) X(READY) X(PAUSE) X(LOST) X(CLOSING)

enum state {
#define X(name) name,
    STATES(X)
#undef X
};

static const char *const state_names[] = {
#define X(name) #name,
    STATES(X)
#undef X
};

struct request {
    enum store_op op;
    struct cr_buffer bytes;
};

struct call {
    struct call *next;
    struct store_async *owner;
    struct request steps[2];
    int step, step_count;
    int looks;  /* it has no time: its first step is CHECK instead of WAIT */
    int rounds; /* waits of a queue_pop that ended in an empty queue */
    size_t item_count;
    int64_t timeout_ms, given_ms; /* as asked for: how long, until when */
    int64_t deadline_ms;          /* of the step under way */
    int cancelling; /* CANCEL_WAIT is sent: its answer ends the call with -ETIMEDOUT */
    int orphan;     /* its callback was made, but libuv still has its bytes */
    int writes;     /* that libuv still has */
    char cancel_byte;
    char what[STORE_CALL_TEXT_MAX];
    store_async_fn done;
    void *arg;
};

struct store_async {
    enum state state;
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    int open_handles; /* handles and the resolver, which all hold us */
    int tcp_open;
    char stray;
    char host[CR_HOST_MAX];
    uint16_t port;
    char peer[CR_ADDRESS_MAX];
    struct addrinfo *addresses, *address; /* the next to try */
    int64_t pause_ms, deadline_ms, timeout_ms;
    int last_failure; /* of an attempt to open */
    struct store_answer answer;
    char hello[STORE_VALIDATE_LEN + 5];
    uv_write_t hello_write;
    struct call *first, *last;
    size_t call_count;
    struct cr_error lost;
    store_async_fn opened;
    void *opened_arg;
    void (*closed)(void *arg);
    void *closed_arg;
};

struct write {
    uv_write_t write;
    struct call *call;
};

static void advance(struct store_async *a);
static void start_attempt(struct store_async *a);

static void enter(struct store_async *a, enum state next) {
    cr_debug("store %s port %u: %s -> %s", a->host, a->port, state_names[a->state],
             state_names[next]);
    a->state = next;
}

/* ---- calls: their memory and their end ---- */

static void free_call(struct call *c) {
    if (c->writes > 0) {
        c->orphan = 1;
        return;
    }
    cr_buffer_done(&c->steps[0].bytes);
    cr_buffer_done(&c->steps[1].bytes);
    free(c);
}

static void unlink_call(struct store_async *a, struct call *call) {
    struct call **at = &a->first;
    struct call *before = NULL;
    for (; *at != call; at = &(*at)->next) before = *at;
    *at = call->next;
    if (a->last == call) a->last = before;
    a->call_count--;
}

/* Takes the call out of the queue, tells, frees. The callback may do anything, also close us. */
static void end_call(struct store_async *a, struct call *call, int status,
                     struct store_async_result *result, const struct cr_error *err) {
    struct store_async_result none = {0};
    if (result == NULL) result = &none;
    unlink_call(a, call);
    call->done(call->arg, status, result, err);
    store_list_done(&result->list);
    free_call(call);
}

static int fail_timeout(struct store_async *a, const struct call *call, struct cr_error *err) {
    return cr_fail(err, -ETIMEDOUT, "%s at store %s: timed out after %lld ms", call->what, a->peer,
                   (long long) call->timeout_ms);
}

/* ---- the one timer ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct store_async *a, int64_t deadline_ms) {
    if (deadline_ms == CR_FOREVER) {
        (void) uv_timer_stop(&a->timer);
        return;
    }
    int64_t left = deadline_ms - cr_monotonic_ms();
    uv_update_time(a->timer.loop);
    (void) uv_timer_start(&a->timer, on_timer, left > 0 ? (uint64_t) left : 0, 0);
}

/* A call without a reply is done once it is sent and its turn has come; its callback comes from the
 * timer, so never inside the call that made it. */
static int has_no_reply(const struct call *c) {
    enum store_reply shape = store_op_reply(c->steps[c->step].op);
    return shape == STORE_REPLY_NONE || (shape == STORE_REPLY_VALUES && c->item_count == 0);
}

static void arm_for_calls(struct store_async *a) {
    int64_t earliest = a->first != NULL && has_no_reply(a->first) ? 0 : CR_FOREVER;
    for (const struct call *c = a->first; c != NULL; c = c->next)
        earliest = c->deadline_ms < earliest ? c->deadline_ms : earliest;
    arm(a, earliest);
}

/* ---- losing the connection ---- */

static void stop_tcp(struct store_async *a);

static void lose(struct store_async *a, int code, const char *reason) {
    if (a->state == LOST || a->state == CLOSING) return;
    const char *what = a->first != NULL ? a->first->what : "nothing in flight";
    if (reason == NULL && (code == UV_EOF || code == -ECONNRESET))
        reason = "the server closed the connection";
    if (code == UV_EOF) code = -ECONNRESET;
    (void) cr_fail(&a->lost, code, "%s at store %s: %s", what, a->peer,
                   reason != NULL ? reason : uv_strerror(code));
    enter(a, LOST);
    stop_tcp(a);
    arm(a, 0); /* the calls are told from the timer: never inside a call of the user's */
}

static void tell_lost(struct store_async *a) {
    struct cr_error lost = a->lost;
    while (a->first != NULL && a->state == LOST) end_call(a, a->first, lost.code, NULL, &lost);
}

/* ---- sending ---- */

static void on_written(uv_write_t *req, int status) {
    struct write *w = (struct write *) (void *) req;
    struct call *call = w->call;
    struct store_async *a = call->owner;
    call->writes--;
    if (call->orphan) free_call(call);
    free(w);
    if (status < 0 && status != UV_ECANCELED) lose(a, status, NULL);
}

static void send_bytes(struct store_async *a, struct call *call, char *data, size_t len) {
    struct write *w = malloc(sizeof(*w));
    if (w == NULL) {
        lose(a, -ENOMEM, "out of memory");
        return;
    }
    w->call = call;
    uv_buf_t buf = {.base = data, .len = len};
    int rc = uv_write(&w->write, (uv_stream_t *) &a->tcp, &buf, 1, on_written);
    if (rc < 0) {
        free(w);
        lose(a, rc, NULL);
        return;
    }
    call->writes++;
}

static int is_wait(const struct call *c) {
    enum store_op op = c->steps[c->step].op;
    return op == STORE_OP_WAIT || op == STORE_OP_BARRIER;
}

static void start_step(struct store_async *a) {
    struct call *c = a->first;
    struct request *r = &c->steps[c->step];
    store_answer_begin(&a->answer, store_op_reply(r->op), c->item_count);
    send_bytes(a, c, r->bytes.data, r->bytes.len);
}

static void start_first(struct store_async *a) {
    if (a->state == READY && a->first != NULL) start_step(a);
    if (a->state == READY) arm_for_calls(a);
}

/* ---- receiving ---- */

static void finish_call(struct store_async *a) {
    struct call *call = a->first;
    enum store_op op = call->steps[call->step].op;
    struct store_async_result result = {.number = a->answer.number};
    if (op == STORE_OP_CHECK) result.number = a->answer.byte == STORE_READY;
    if (op == STORE_OP_DELETE) result.number = a->answer.number > 0;
    void *value = NULL;
    size_t len = 0;
    if (op == STORE_OP_MULTI_GET || op == STORE_OP_LIST_KEYS)
        store_answer_take_list(&a->answer, &result.list);
    if (op == STORE_OP_LIST_KEYS) store_list_keep_users(&result.list);
    if ((store_op_reply(op) == STORE_REPLY_VALUE || op == STORE_OP_QUEUE_POP) &&
        store_answer_take_value(&a->answer, &value, &len) < 0) {
        lose(a, -ENOMEM, "out of memory");
        return;
    }
    result.value = (struct store_bytes){value, len};
    end_call(a, call, 0, &result, NULL);
    free(value);
}

/* The byte that ends a WAIT, or acknowledges that it was cancelled, or both. */
static void on_wait_byte(struct store_async *a) {
    struct call *c = a->first;
    uint8_t byte = a->answer.byte;
    if (byte == STORE_STOP_WAITING && c->cancelling) {
        store_answer_begin(&a->answer, STORE_REPLY_BYTE, 0); /* woken first: 00, then 01 */
        return;
    }
    if (byte != (c->cancelling ? STORE_WAIT_CANCELED : STORE_STOP_WAITING)) {
        lose(a, -EPROTO, "unexpected byte in reply");
        return;
    }
    if (c->cancelling) {
        struct cr_error err = {0};
        (void) fail_timeout(a, c, &err);
        end_call(a, c, err.code, NULL, &err);
        start_first(a);
        return;
    }
    if (c->step + 1 < c->step_count) {
        c->step++;
        int64_t grace = cr_deadline_ms(GRACE_MS); /* what is known to be there answers at once */
        if (c->deadline_ms < grace) c->deadline_ms = grace;
        start_first(a);
        return;
    }
    finish_call(a);
    start_first(a);
}

/* Without time: what is not there now is late. */
static void on_look(struct store_async *a) {
    struct call *c = a->first;
    if (a->answer.byte == STORE_READY && c->step + 1 < c->step_count) {
        c->step++;
    } else {
        struct cr_error err = {0};
        int rc = a->answer.byte == STORE_READY ? 0 : fail_timeout(a, c, &err);
        end_call(a, c, rc, NULL, rc < 0 ? &err : NULL);
    }
    start_first(a);
}

/* Others may have taken the element between our wake-up and our pop: then wait again. */
static void on_empty_queue(struct store_async *a) {
    struct call *c = a->first;
    if (c->step_count == 2 && ++c->rounds < POP_ROUNDS_MAX) {
        c->step = 0;
        c->deadline_ms = c->given_ms;
        start_first(a);
        return;
    }
    struct cr_error err = {0};
    (void) cr_fail(&err, -ENOENT, "%s at store %s: %s", c->what, a->peer,
                   c->rounds == 0 ? "the queue is empty"
                                  : "the queue is empty each time it is announced; is there a key "
                                    "of the same name?");
    end_call(a, c, err.code, NULL, &err);
    start_first(a);
}

static void on_reply(struct store_async *a) {
    if (a->state == GREET) {
        enter(a, a->answer.number == (uint32_t) getpid() ? READY : LOST);
        if (a->state == LOST)
            (void) cr_fail(&a->lost, -EPROTO,
                           "the handshake was answered with "
                           "other bytes");
        advance(a);
        return;
    }
    if (is_wait(a->first)) {
        on_wait_byte(a);
        return;
    }
    if (a->first->looks && a->first->step == 0) {
        on_look(a);
        return;
    }
    if (a->first->steps[a->first->step].op == STORE_OP_QUEUE_POP && a->answer.number == 0) {
        on_empty_queue(a);
        return;
    }
    finish_call(a);
    start_first(a);
}

static int expects_reply(const struct store_async *a) {
    if (a->state == READY) return a->first != NULL && !has_no_reply(a->first);
    return a->state == GREET;
}

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *buf) {
    struct store_async *a = h->data;
    (void) suggested;
    size_t room = 1; /* where nobody asked, one byte is enough to know */
    void *at = expects_reply(a) ? store_answer_room(&a->answer, &room) : &a->stray;
    *buf = uv_buf_init(at, at == NULL ? 0 : (unsigned) (room > 1u << 30 ? 1u << 30 : room));
}

static void opening_failed(struct store_async *a, int code);

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct store_async *a = stream->data;
    (void) buf;
    if (n == 0 || a->state == LOST || a->state == CLOSING || a->state == PAUSE) return;
    if (n < 0) {
        if (a->state == GREET)
            opening_failed(a, n == UV_EOF ? -ECONNRESET : (int) n);
        else
            lose(a, (int) n, NULL);
        return;
    }
    if (!expects_reply(a)) {
        lose(a, -EPROTO, "bytes that nobody asked for");
        return;
    }
    int rc = store_answer_put(&a->answer, (size_t) n);
    if (rc < 0 && a->state == GREET)
        opening_failed(a, rc);
    else if (rc < 0)
        lose(a, rc, a->answer.reason);
    else if (rc > 0)
        on_reply(a);
}

/* ---- the time is up ---- */

static void give_up_first(struct store_async *a) {
    struct call *c = a->first;
    if (c->cancelling || !is_wait(c)) {
        struct cr_error err = {0};
        (void) fail_timeout(a, c, &err);
        lose(a, -ETIMEDOUT,
             c->cancelling ? "the cancelled wait is not acknowledged" : "no reply in time");
        return;
    }
    c->cancelling = 1;
    c->deadline_ms = cr_deadline_ms(GRACE_MS);
    c->cancel_byte = (char) store_op_code(STORE_DIALECT_MODERN, STORE_OP_CANCEL_WAIT);
    send_bytes(a, c, &c->cancel_byte, 1);
}

static void on_calls_timer(struct store_async *a) {
    int64_t now = cr_monotonic_ms();
    if (a->first != NULL && has_no_reply(a->first)) {
        struct store_async_result none = {0};
        end_call(a, a->first, 0, &none, NULL);
        start_first(a);
        return;
    }
    struct call *next;
    for (struct call *c = a->first; c != NULL && a->state == READY; c = next) {
        next = c->next;
        if (c->deadline_ms > now) continue;
        if (c == a->first) {
            give_up_first(a);
            continue;
        }
        struct cr_error err = {0};
        (void) fail_timeout(a, c, &err);
        end_call(a, c, err.code, NULL, &err);
        next = a->first; /* the callback may have changed the queue */
    }
    if (a->state == READY) arm_for_calls(a);
}

static void on_timer(uv_timer_t *timer) {
    struct store_async *a = timer->data;
    switch (a->state) {
    case PAUSE: start_attempt(a); break;
    case READY: on_calls_timer(a); break;
    case LOST: tell_lost(a); break;
    case RESOLVE:
    case CONNECT:
    case GREET: opening_failed(a, -ETIMEDOUT); break;
    case CLOSING: break;
    }
}

/* ---- opening ---- */

static void free_when_closed(uv_handle_t *h) {
    struct store_async *a = h->data;
    if (--a->open_handles > 0 || a->state != CLOSING) return;
    void (*closed)(void *) = a->closed;
    void *arg = a->closed_arg;
    store_answer_done(&a->answer);
    uv_freeaddrinfo(a->addresses);
    free(a);
    if (closed != NULL) closed(arg);
}

static void on_tcp_closed(uv_handle_t *h) {
    struct store_async *a = h->data;
    a->tcp_open = 0;
    if (a->state == PAUSE) arm(a, cr_deadline_ms(a->pause_ms));
    free_when_closed(h);
}

static void stop_tcp(struct store_async *a) {
    if (a->tcp_open && !uv_is_closing((uv_handle_t *) &a->tcp))
        uv_close((uv_handle_t *) &a->tcp, on_tcp_closed);
}

static void finish_opening(struct store_async *a, int status) {
    store_async_fn opened = a->opened;
    a->opened = NULL;
    struct store_async_result none = {0};
    if (opened != NULL) opened(a->opened_arg, status, &none, status < 0 ? &a->lost : NULL);
}

static void give_up_opening(struct store_async *a) {
    enter(a, LOST);
    (void) uv_timer_stop(&a->timer);
    (void) cr_fail(
        &a->lost, -ETIMEDOUT,
        "connect to the store at %s:%u: timed out after %lld ms (%s); is it running there?",
        a->host, a->port, (long long) a->timeout_ms, uv_strerror(a->last_failure));
    stop_tcp(a);
    finish_opening(a, -ETIMEDOUT);
}

/* Again later, unless that is too late. The pause begins when the socket is closed. */
static void opening_failed(struct store_async *a, int code) {
    if (code != -ETIMEDOUT || a->last_failure == 0) a->last_failure = code;
    a->pause_ms = a->pause_ms * 3 / 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : a->pause_ms * 3 / 2;
    if (a->deadline_ms != CR_FOREVER && cr_monotonic_ms() + a->pause_ms >= a->deadline_ms) {
        give_up_opening(a);
        return;
    }
    enter(a, PAUSE);
    (void) uv_timer_stop(&a->timer);
    if (a->tcp_open)
        stop_tcp(a);
    else
        arm(a, cr_deadline_ms(a->pause_ms));
}

static void on_hello_written(uv_write_t *req, int status) {
    struct store_async *a = req->data;
    if (status < 0 && status != UV_ECANCELED && a->state == GREET) opening_failed(a, status);
}

static void greet(struct store_async *a) {
    uint32_t nonce = (uint32_t) getpid();
    memcpy(a->hello, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
    a->hello[STORE_VALIDATE_LEN] = (char) store_op_code(STORE_DIALECT_MODERN, STORE_OP_PING);
    store_put_u32(a->hello + STORE_VALIDATE_LEN + 1, nonce);
    store_answer_begin(&a->answer, STORE_REPLY_NONCE, 0);
    a->hello_write.data = a;
    uv_buf_t buf = {.base = a->hello, .len = sizeof(a->hello)};
    int rc = uv_read_start((uv_stream_t *) &a->tcp, on_room, on_read);
    if (rc == 0) rc = uv_write(&a->hello_write, (uv_stream_t *) &a->tcp, &buf, 1, on_hello_written);
    if (rc < 0) opening_failed(a, rc);
}

static void on_connect(uv_connect_t *req, int status) {
    struct store_async *a = req->data;
    if (a->state != CONNECT) return; /* given up or closed meanwhile */
    if (status < 0) {
        opening_failed(a, status);
        return;
    }
    (void) uv_tcp_nodelay(&a->tcp, 1);
    (void) uv_tcp_keepalive(&a->tcp, 1, 60);
    enter(a, GREET);
    greet(a);
}

static void connect_next(struct store_async *a) {
    int rc = uv_tcp_init(a->timer.loop, &a->tcp);
    if (rc < 0) {
        opening_failed(a, rc);
        return;
    }
    a->tcp.data = a;
    a->tcp_open = 1;
    a->open_handles++;
    a->connect.data = a;
    const struct addrinfo *to = a->address;
    a->address = to->ai_next != NULL ? to->ai_next : a->addresses; /* another one the next time */
    cr_address_format(to->ai_addr, a->peer);
    enter(a, CONNECT);
    rc = uv_tcp_connect(&a->connect, &a->tcp, to->ai_addr, on_connect);
    if (rc < 0) opening_failed(a, rc);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
    struct store_async *a = req->data;
    a->addresses = a->address = list;
    if (a->state == CLOSING) {
        free_when_closed((uv_handle_t *) &a->timer); /* the resolver was the last to hold us */
        return;
    }
    a->open_handles--;
    if (a->state != RESOLVE) return;
    if (status < 0)
        opening_failed(a, status);
    else
        connect_next(a);
}

static void start_attempt(struct store_async *a) {
    arm(a, a->deadline_ms);
    if (a->address != NULL) {
        connect_next(a);
        return;
    }
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", a->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    enter(a, RESOLVE);
    a->resolve.data = a;
    int rc = uv_getaddrinfo(a->timer.loop, &a->resolve, on_resolved, a->host, service, &hints);
    if (rc < 0)
        opening_failed(a, rc);
    else
        a->open_handles++;
}

/* After the greeting, either way. */
static void advance(struct store_async *a) {
    (void) uv_timer_stop(&a->timer);
    if (a->state == LOST) stop_tcp(a);
    finish_opening(a, a->state == READY ? 0 : a->lost.code);
}

int store_async_open(uv_loop_t *loop, const char *host, uint16_t port, int64_t timeout_ms,
                     store_async_fn done, void *arg, struct store_async **out,
                     struct cr_error *err) {
    if (strlen(host) >= CR_HOST_MAX)
        return cr_fail(err, -EINVAL, "host name '%.64s...' too long", host);
    struct store_async *a = calloc(1, sizeof(*a));
    if (a == NULL) return cr_fail(err, -ENOMEM, "connect to the store: out of memory");
    memcpy(a->host, host, strlen(host));
    a->port = port;
    a->timeout_ms = timeout_ms;
    a->deadline_ms = cr_deadline_ms(timeout_ms);
    a->pause_ms = BACKOFF_FIRST_MS;
    a->opened = done;
    a->opened_arg = arg;
    (void) uv_timer_init(loop, &a->timer); /* cannot fail */
    a->timer.data = a;
    a->open_handles = 1;
    a->state = PAUSE;
    arm(a, 0); /* the first attempt starts on the loop, so that `done` never comes in here */
    *out = a;
    return 0;
}

static void tell_cancelled(struct store_async *a) {
    while (a->first != NULL) {
        struct cr_error err = {0};
        (void) cr_fail(&err, -ECANCELED, "%s at store %s: the client was closed", a->first->what,
                       a->peer);
        end_call(a, a->first, err.code, NULL, &err);
    }
}

void store_async_close(struct store_async *a, void (*closed)(void *arg), void *arg) {
    if (a == NULL || a->state == CLOSING) return;
    a->closed = closed;
    a->closed_arg = arg;
    enter(a, CLOSING);
    (void) cr_fail(&a->lost, -ECANCELED, "connect to the store at %s:%u: the client was closed",
                   a->host, a->port);
    stop_tcp(a);
    (void) uv_cancel((uv_req_t *) &a->resolve); /* fails when there is none: fine */
    uv_close((uv_handle_t *) &a->timer, free_when_closed);
    finish_opening(a, -ECANCELED);
    tell_cancelled(a);
}

/* ---- making calls ---- */

static int check_size(const struct store_bytes *keys, size_t key_count, size_t value_len) {
    if (key_count > STORE_LIST_MAX || value_len > STORE_VALUE_MAX) return -EMSGSIZE;
    for (size_t i = 0; i < key_count; i++) {
        if (keys[i].len >= STORE_KEY_MAX) return -EMSGSIZE;
    }
    return 0;
}

/* A call with its text, not yet in the queue; NULL with *rc. */
static struct call *new_call(struct store_async *a, enum store_op op,
                             const struct store_bytes *keys, size_t key_count, size_t value_len,
                             int64_t timeout_ms, int *rc) {
    *rc = a->state == LOST ? a->lost.code : a->state != READY ? -ENOTCONN : 0;
    if (*rc == 0 && a->call_count >= STORE_ASYNC_CALLS_MAX) *rc = -EAGAIN;
    if (*rc == 0) *rc = check_size(keys, key_count, value_len);
    if (*rc < 0) return NULL;
    struct call *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        *rc = -ENOMEM;
        return NULL;
    }
    c->owner = a;
    c->timeout_ms = timeout_ms;
    c->given_ms = c->deadline_ms = cr_deadline_ms(timeout_ms);
    c->item_count = key_count;
    store_call_text(op, keys, key_count, c->what);
    return c;
}

static struct store_encoder add_step(struct call *c, enum store_op op) {
    struct request *r = &c->steps[c->step_count++];
    r->op = op;
    return (struct store_encoder){&r->bytes, STORE_DIALECT_MODERN, STORE_BYTES("/")};
}

static int submit(struct call *c, int rc, store_async_fn done, void *arg) {
    struct store_async *a = c->owner;
    if (rc < 0) {
        free_call(c);
        return rc;
    }
    c->done = done;
    c->arg = arg;
    if (a->last != NULL)
        a->last->next = c;
    else
        a->first = c;
    a->last = c;
    a->call_count++;
    if (a->first == c)
        start_first(a);
    else
        arm_for_calls(a);
    return 0;
}

static int call_value(struct store_async *a, enum store_op op, struct store_bytes key,
                      struct store_bytes value, int64_t timeout_ms, store_async_fn done,
                      void *arg) {
    int rc;
    struct call *c = new_call(a, op, &key, 1, value.len, timeout_ms, &rc);
    if (c == NULL) return rc;
    struct store_encoder e = add_step(c, op);
    rc = store_encode_value_head(&e, op, key, value.len);
    if (rc == 0) rc = cr_buffer_append(e.out, value.data, value.len);
    return submit(c, rc, done, arg);
}

int store_async_set(struct store_async *a, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_SET, key, value, timeout_ms, done, arg);
}

int store_async_append(struct store_async *a, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_APPEND, key, value, timeout_ms, done, arg);
}

int store_async_queue_push(struct store_async *a, struct store_bytes name, struct store_bytes value,
                           int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_value(a, STORE_OP_QUEUE_PUSH, name, value, timeout_ms, done, arg);
}

/* What `op` reads must be there first: a GET of an absent key makes some servers hang up. */
static int wait_first(enum store_op op, int64_t timeout_ms) {
    return op == STORE_OP_GET || op == STORE_OP_MULTI_GET ||
           (op == STORE_OP_QUEUE_POP && timeout_ms > 0);
}

/* Adds the step that finds the keys there: WAIT, or without time, CHECK. What has no time of its own
 * has the server's. */
static int add_wait(struct call *c, const struct store_bytes *keys, size_t key_count) {
    c->looks = c->timeout_ms <= 0;
    enum store_op op = c->looks ? STORE_OP_CHECK : STORE_OP_WAIT;
    if (c->looks) c->deadline_ms = cr_deadline_ms(GRACE_MS);
    struct store_encoder e = add_step(c, op);
    return store_encode_keys(&e, op, keys, key_count);
}

static int call_key(struct store_async *a, enum store_op op, struct store_bytes key,
                    int64_t timeout_ms, store_async_fn done, void *arg) {
    int rc;
    struct call *c = new_call(a, op, &key, 1, 0, timeout_ms, &rc);
    if (c == NULL) return rc;
    if (wait_first(op, timeout_ms)) rc = add_wait(c, &key, 1);
    if (op == STORE_OP_QUEUE_POP && c->step_count == 0) c->deadline_ms = cr_deadline_ms(GRACE_MS);
    struct store_encoder e = add_step(c, op);
    if (rc == 0) rc = store_encode_key(&e, op, key);
    return submit(c, rc, done, arg);
}

int store_async_get(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                    store_async_fn done, void *arg) {
    return call_key(a, STORE_OP_GET, key, timeout_ms, done, arg);
}

int store_async_delete(struct store_async *a, struct store_bytes key, int64_t timeout_ms,
                       store_async_fn done, void *arg) {
    return call_key(a, STORE_OP_DELETE, key, timeout_ms, done, arg);
}

int store_async_queue_pop(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    return call_key(a, STORE_OP_QUEUE_POP, name, timeout_ms, done, arg);
}

int store_async_queue_len(struct store_async *a, struct store_bytes name, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    return call_key(a, STORE_OP_QUEUE_LEN, name, timeout_ms, done, arg);
}

static int call_number(struct store_async *a, enum store_op op, struct store_bytes key,
                       int64_t number, int64_t timeout_ms, store_async_fn done, void *arg) {
    int rc;
    struct call *c = new_call(a, op, &key, 1, 0, timeout_ms, &rc);
    if (c == NULL) return rc;
    struct store_encoder e = add_step(c, op);
    return submit(c, store_encode_number(&e, op, key, number), done, arg);
}

int store_async_add(struct store_async *a, struct store_bytes key, int64_t delta,
                    int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_number(a, STORE_OP_ADD, key, delta, timeout_ms, done, arg);
}

int store_async_barrier(struct store_async *a, struct store_bytes key, int64_t world_size,
                        int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_number(a, STORE_OP_BARRIER, key, world_size, timeout_ms, done, arg);
}

int store_async_compare_set(struct store_async *a, struct store_bytes key,
                            struct store_bytes expected, struct store_bytes desired,
                            int64_t timeout_ms, store_async_fn done, void *arg) {
    int rc;
    size_t longest = expected.len > desired.len ? expected.len : desired.len;
    struct call *c = new_call(a, STORE_OP_COMPARE_SET, &key, 1, longest, timeout_ms, &rc);
    if (c == NULL) return rc;
    struct store_encoder e = add_step(c, STORE_OP_COMPARE_SET);
    return submit(c, store_encode_compare_set(&e, key, expected, desired), done, arg);
}

static int call_keys(struct store_async *a, enum store_op op, const struct store_bytes *keys,
                     size_t key_count, int64_t timeout_ms, store_async_fn done, void *arg) {
    int rc;
    struct call *c = new_call(a, op, keys, key_count, 0, timeout_ms, &rc);
    if (c == NULL) return rc;
    if (op == STORE_OP_WAIT || wait_first(op, timeout_ms)) rc = add_wait(c, keys, key_count);
    if (op == STORE_OP_WAIT) return submit(c, rc, done, arg);
    struct store_encoder e = add_step(c, op);
    if (rc == 0) rc = store_encode_keys(&e, op, keys, key_count);
    return submit(c, rc, done, arg);
}

int store_async_wait(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_WAIT, keys, key_count, timeout_ms, done, arg);
}

int store_async_check(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_CHECK, keys, key_count, timeout_ms, done, arg);
}

int store_async_multi_get(struct store_async *a, const struct store_bytes *keys, size_t key_count,
                          int64_t timeout_ms, store_async_fn done, void *arg) {
    return call_keys(a, STORE_OP_MULTI_GET, keys, key_count, timeout_ms, done, arg);
}

int store_async_multi_set(struct store_async *a, const struct store_bytes *keys,
                          const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                          store_async_fn done, void *arg) {
    size_t longest = 0;
    for (size_t i = 0; i < pair_count; i++)
        longest = values[i].len > longest ? values[i].len : longest;
    int rc;
    struct call *c = new_call(a, STORE_OP_MULTI_SET, keys, pair_count, longest, timeout_ms, &rc);
    if (c == NULL) return rc;
    struct store_encoder e = add_step(c, STORE_OP_MULTI_SET);
    return submit(c, store_encode_pairs(&e, keys, values, pair_count), done, arg);
}

static int call_plain(struct store_async *a, enum store_op op, int64_t timeout_ms,
                      store_async_fn done, void *arg) {
    int rc;
    struct call *c = new_call(a, op, NULL, 0, 0, timeout_ms, &rc);
    if (c == NULL) return rc;
    struct store_encoder e = add_step(c, op);
    return submit(c, store_encode_plain(&e, op), done, arg);
}

int store_async_num_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done,
                         void *arg) {
    return call_plain(a, STORE_OP_NUM_KEYS, timeout_ms, done, arg);
}

int store_async_list_keys(struct store_async *a, int64_t timeout_ms, store_async_fn done,
                          void *arg) {
    return call_plain(a, STORE_OP_LIST_KEYS, timeout_ms, done, arg);
}
