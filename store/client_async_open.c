/* Opening: resolve, dial, shake hands, again and otherwise as probe.c decides, until the time is up.
 *
 * A round tries every address of the name, once; the name is resolved anew in each, as it may be
 * moved. And RENEW, the same in small: one address, one handshake, no second attempt. */
#include "store/client_async_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct store_async_events opening_events;

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* `err` NULL: it worked. The callback may do anything, also close us. */
void store_async_finish_opening(struct store_async *a, const struct cr_error *err) {
    store_async_fn opened = a->opened;
    a->opened = NULL;
    struct store_async_result none = {0};
    if (opened != NULL) opened(a->opened_arg, err != NULL ? err->code : 0, &none, err);
}

static void give_up(struct store_async *a, int code) {
    store_async_link_close(&a->link);
    (void) store_fail_connect(&a->lost, code, a->host, a->port, a->timeout_ms, a->why.text);
    store_async_enter(a, STORE_ASYNC_LOST);
    store_async_arm(a);
}

/* ---- one address ---- */

/* A silent address must leave time to the others of the name; one that has answered may use it all. */
static void set_limits(struct store_async *a) {
    size_t addresses = 0;
    for (const struct addrinfo *i = a->address; i != NULL; i = i->ai_next) addresses++;
    int64_t left = cr_time_left_ms(a->deadline_ms);
    left = left > 0 ? store_address_time_ms(left, addresses) : 0;
    a->shake_until_ms = earlier(a->deadline_ms, cr_deadline_ms(store_probe_limit_ms(&a->probe)));
    a->until_ms = earlier(a->shake_until_ms, cr_deadline_ms(left));
}

static void attempt_failed(struct store_async *a, int code, const char *reason);

static void dial(struct store_async *a) {
    const struct sockaddr *to = a->address->ai_addr;
    memcpy(&a->to, to, a->address->ai_addrlen);
    cr_address_format(to, a->peer);
    store_async_enter(a, STORE_ASYNC_DIAL);
    set_limits(a);
    int rc = store_async_link_open(a, to, a->probe.how, &opening_events, &a->link);
    if (rc < 0)
        attempt_failed(a, rc, NULL);
    else
        store_async_arm(a);
}

/* ---- what an attempt proved ---- */

static void pause_opening(struct store_async *a) {
    store_async_enter(a, STORE_ASYNC_PAUSE);
    a->until_ms = earlier(cr_deadline_ms(store_pace_next_ms(&a->pace)), a->deadline_ms);
    store_async_arm(a);
}

static void ready(struct store_async *a) {
    store_async_enter(a, STORE_ASYNC_READY);
    if (a->opened != NULL) {
        store_async_arm(a);
        store_async_finish_opening(a, NULL);
    } else {
        store_async_start_first(a);
    }
}

static void confirm(struct store_async *a) {
    struct cr_buffer bytes = {0};
    struct store_encoder e = {&bytes, STORE_DIALECT_LEGACY_A, STORE_BYTES("/")};
    store_async_enter(a, STORE_ASYNC_CONFIRM);
    a->until_ms = a->deadline_ms;
    store_async_link_expect(a->link, STORE_REPLY_BYTE, 0);
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    if (rc == 0) rc = store_async_link_send(a->link, &bytes);
    if (rc < 0)
        attempt_failed(a, rc, NULL);
    else
        store_async_arm(a);
}

static void do_next(struct store_async *a, enum store_probe_next next, int code) {
    int is_late = a->deadline_ms != CR_FOREVER && cr_monotonic_ms() >= a->deadline_ms;
    if (next != STORE_PROBE_FOUND && next != STORE_PROBE_CONFIRM) store_async_link_close(&a->link);
    switch (next) {
    case STORE_PROBE_FOUND: ready(a); break;
    case STORE_PROBE_CONFIRM: confirm(a); break;
    case STORE_PROBE_STOP: give_up(a, code); break;
    case STORE_PROBE_AGAIN:
        if (is_late)
            give_up(a, -ETIMEDOUT);
        else
            dial(a);
        break;
    case STORE_PROBE_LATER:
        if (is_late)
            give_up(a, -ETIMEDOUT);
        else
            pause_opening(a);
        break;
    }
}

/* A refused address: another one of this round, then the round has failed. */
static void dial_failed(struct store_async *a, int code) {
    if (a->best_failure == 0 || !store_worth_retry(a->best_failure)) a->best_failure = code;
    store_async_link_close(&a->link);
    if (a->address != NULL && a->address->ai_next != NULL) {
        a->address = a->address->ai_next;
        dial(a);
        return;
    }
    do_next(a, store_probe_failed(&a->probe, a->best_failure, 0), a->best_failure);
}

/* Time that ran out tells less than what failed before it. */
static void note_failure(struct store_async *a, int code, const char *reason) {
    if (code == -ETIMEDOUT && a->why.code != 0) return;
    (void) cr_fail(&a->why, code, "%s", reason != NULL ? reason : uv_strerror(code));
}

static void attempt_failed(struct store_async *a, int code, const char *reason) {
    int connected = a->link != NULL && store_async_link_connected(a->link);
    if (reason == NULL && connected) reason = store_handshake_reason(code);
    note_failure(a, code, reason);
    if (a->state == STORE_ASYNC_CONFIRM)
        do_next(a, store_probe_confirmed(&a->probe, code, 0), code);
    else if (connected)
        do_next(a, store_probe_failed(&a->probe, code, 1), code);
    else
        dial_failed(a, code);
}

/* ---- events ---- */

static void on_up(struct store_async *a) {
    if (a->state == STORE_ASYNC_RENEW)
        ready(a);
    else
        do_next(a, store_probe_shaken(&a->probe), 0);
}

static void on_answered(struct store_async *a) {
    if (a->state == STORE_ASYNC_CONFIRM)
        do_next(a, store_probe_confirmed(&a->probe, 0, store_async_link_answer(a->link)->byte),
                -EPROTO);
    else
        store_async_answered(a);
}

static void on_failed(struct store_async *a, int code, const char *reason) {
    if (a->state == STORE_ASYNC_READY)
        store_async_lose(a, code, reason);
    else if (a->state == STORE_ASYNC_RENEW)
        store_async_lose(a, code, reason != NULL ? reason : store_handshake_reason(code));
    else
        attempt_failed(a, code, reason);
}

static const struct store_async_events opening_events = {on_up, on_answered, on_failed};

static void dial_late(struct store_async *a) {
    if (store_async_link_connected(a->link) && cr_monotonic_ms() < a->shake_until_ms) {
        a->until_ms = a->shake_until_ms;
        store_async_arm(a);
    } else {
        attempt_failed(a, -ETIMEDOUT, NULL);
    }
}

void store_async_opening_late(struct store_async *a) {
    switch (a->state) {
    case STORE_ASYNC_RENEW: on_failed(a, -ETIMEDOUT, NULL); break;
    case STORE_ASYNC_DIAL: dial_late(a); break;
    case STORE_ASYNC_CONFIRM: attempt_failed(a, -ETIMEDOUT, NULL); break;
    case STORE_ASYNC_RESOLVE:
        note_failure(a, -ETIMEDOUT, "cannot resolve the name: no answer");
        give_up(a, -ETIMEDOUT);
        break;
    case STORE_ASYNC_PAUSE:
    case STORE_ASYNC_READY:
    case STORE_ASYNC_LOST:
    case STORE_ASYNC_CLOSING: break;
    }
}

/* ---- the name ---- */

static void resolve_failed(struct store_async *a, int status) {
    char text[128];
    (void) snprintf(text, sizeof(text), "cannot resolve the name: %s", uv_strerror(status));
    int code = status == UV_EAI_MEMORY ? -ENOMEM : -ENOENT;
    note_failure(a, code, text);
    do_next(a, store_probe_failed(&a->probe, code, 0), code);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list) {
    struct store_async *a = req->data;
    a->resolving = 0;
    a->addresses = a->address = list;
    if (a->state == STORE_ASYNC_RESOLVE) {
        if (status < 0)
            resolve_failed(a, status);
        else
            dial(a);
    }
    store_async_release(a);
}

void store_async_start(struct store_async *a) {
    if (a->addresses != NULL) uv_freeaddrinfo(a->addresses);
    a->addresses = a->address = NULL;
    a->best_failure = 0;
    char service[8];
    (void) snprintf(service, sizeof(service), "%u", a->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    store_async_enter(a, STORE_ASYNC_RESOLVE);
    a->until_ms = a->deadline_ms;
    a->resolve.data = a;
    int rc = uv_getaddrinfo(a->timer.loop, &a->resolve, on_resolved, a->host, service, &hints);
    if (rc < 0) {
        resolve_failed(a, rc);
        return;
    }
    a->resolving = 1;
    a->held++;
    store_async_arm(a);
}

/* ---- afresh ---- */

/* Leaves a server that cannot forget a wait. Nothing is lost by it: it answered a CHECK right before
 * the WAIT, so it has executed all that was sent. */
void store_async_renew(struct store_async *a, const char *given_up) {
    (void) snprintf(a->given_up, sizeof(a->given_up), "%s", given_up);
    store_async_link_close(&a->link);
    store_async_enter(a, STORE_ASYNC_RENEW);
    a->until_ms = cr_deadline_ms(STORE_GRACE_MS);
    int rc = store_async_link_open(a, (struct sockaddr *) &a->to, a->probe.how, &opening_events,
                                   &a->link);
    if (rc < 0)
        store_async_lose(a, rc, NULL);
    else
        store_async_arm(a);
}
