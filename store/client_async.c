/* The life of the client on a loop: its states, its one timer, how it is lost and how it is closed.
 * client_async_internal.h has the whole picture. */
#include "store/client_async_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const state_names[] = {
#define X(name) #name,
    STORE_ASYNC_STATES(X)
#undef X
};

void store_async_enter(struct store_async *a, enum store_async_state next) {
    cr_debug("store %s port %u: %s -> %s", a->host, a->port, state_names[a->state],
             state_names[next]);
    a->state = next;
}

/* ---- the one timer ---- */

/* When it is to ring in this state; 0 = at once. */
static int64_t due_ms(const struct store_async *a) {
    int64_t calls;
    switch (a->state) {
    case STORE_ASYNC_RESOLVE:
    case STORE_ASYNC_DIAL:
    case STORE_ASYNC_CONFIRM:
    case STORE_ASYNC_PAUSE: return a->until_ms;
    case STORE_ASYNC_READY: return store_async_calls_due(a);
    case STORE_ASYNC_RENEW:
        calls = store_async_calls_due(a);
        return calls < a->until_ms ? calls : a->until_ms;
    case STORE_ASYNC_LOST: return a->first != NULL || a->opened != NULL ? 0 : CR_FOREVER;
    case STORE_ASYNC_CLOSING: break;
    }
    return CR_FOREVER;
}

static void on_timer(uv_timer_t *timer) {
    struct store_async *a = timer->data;
    switch (a->state) {
    case STORE_ASYNC_PAUSE: store_async_start(a); break;
    case STORE_ASYNC_RESOLVE:
    case STORE_ASYNC_DIAL:
    case STORE_ASYNC_CONFIRM: store_async_opening_late(a); break;
    case STORE_ASYNC_RENEW:
        if (cr_monotonic_ms() >= a->until_ms)
            store_async_opening_late(a);
        else
            store_async_calls_late(a);
        break;
    case STORE_ASYNC_READY: store_async_calls_late(a); break;
    case STORE_ASYNC_LOST: {
        struct cr_error lost = a->lost;
        if (a->opened != NULL)
            store_async_finish_opening(a, &lost);
        else
            store_async_end_all(a, STORE_ASYNC_LOST, &lost);
        break;
    }
    case STORE_ASYNC_CLOSING: break;
    }
}

void store_async_arm(struct store_async *a) {
    if (a->state == STORE_ASYNC_CLOSING) return;
    int64_t due = due_ms(a);
    if (due == CR_FOREVER) {
        (void) uv_timer_stop(&a->timer);
        return;
    }
    int64_t left = due - cr_monotonic_ms();
    uv_update_time(a->timer.loop);
    (void) uv_timer_start(&a->timer, on_timer, left > 0 ? (uint64_t) left : 0, 0);
}

/* ---- losing the connection ---- */

static const char *reason_of(int code) {
    return code == -ECONNRESET ? "the server closed the connection" : uv_strerror(code);
}

/* Says what was in flight. The calls are told from the timer, never inside a call of the user's. */
void store_async_lose(struct store_async *a, int code, const char *reason) {
    const char *what = a->first != NULL ? a->first->what : "nothing in flight";
    if (a->state == STORE_ASYNC_RENEW) what = a->given_up;
    (void) cr_fail(&a->lost, code, "%s at store %s: %s", what, a->peer,
                   reason != NULL ? reason : reason_of(code));
    store_async_enter(a, STORE_ASYNC_LOST);
    store_async_link_close(&a->link);
    store_async_link_close(&a->asking);
    store_async_arm(a);
}

/* ---- beginning and end ---- */

int store_async_open(uv_loop_t *loop, const char *host, uint16_t port, enum store_protocol protocol,
                     int64_t timeout_ms, store_async_fn done, void *arg, struct store_async **out,
                     struct cr_error *err) {
    if (strlen(host) >= CR_HOST_MAX)
        return cr_fail(err, -EINVAL, "host name '%.64s...' too long", host);
    struct store_async *a = calloc(1, sizeof(*a));
    if (a == NULL) return cr_fail(err, -ENOMEM, "connect to the store: out of memory");
    memcpy(a->host, host, strlen(host));
    a->port = port;
    a->timeout_ms = timeout_ms;
    a->deadline_ms = cr_deadline_ms(timeout_ms);
    a->probe = store_probe_new(protocol);
    a->pace = store_pace_new((uint64_t) cr_monotonic_ns() ^ (uint64_t) getpid() << 32);
    a->opened = done;
    a->opened_arg = arg;
    (void) uv_timer_init(loop, &a->timer); /* cannot fail */
    a->timer.data = a;
    a->held = 1;
    a->state =
        STORE_ASYNC_PAUSE; /* the first attempt starts on the loop: `done` never comes here */
    store_async_arm(a);
    *out = a;
    return 0;
}

const char *store_async_protocol(const struct store_async *a) {
    return store_handshake_name(a->probe.how);
}

const struct cr_error *store_async_error(const struct store_async *a) { return &a->lost; }

void store_async_release(struct store_async *a) {
    if (--a->held > 0) return;
    void (*closed)(void *) = a->closed;
    void *arg = a->closed_arg;
    if (a->addresses != NULL) uv_freeaddrinfo(a->addresses);
    free(a);
    if (closed != NULL) closed(arg);
}

static void on_timer_closed(uv_handle_t *h) { store_async_release(h->data); }

void store_async_close(struct store_async *a, void (*closed)(void *arg), void *arg) {
    if (a == NULL || a->state == STORE_ASYNC_CLOSING) return;
    a->closed = closed;
    a->closed_arg = arg;
    store_async_enter(a, STORE_ASYNC_CLOSING);
    store_async_link_close(&a->link);
    store_async_link_close(&a->asking);
    if (a->resolving) (void) uv_cancel((uv_req_t *) &a->resolve); /* or it is too late: fine */
    uv_close((uv_handle_t *) &a->timer, on_timer_closed);
    struct cr_error err = {0};
    (void) store_fail_connect(&err, -ECANCELED, a->host, a->port, 0, "the client was closed");
    store_async_finish_opening(a, &err);
    store_async_end_all(a, STORE_ASYNC_CLOSING, NULL);
}
