/* The queue: the first call is under way, the others wait for their turn.
 *
 *   turn ──▶ (ask whether the server has it) ──▶ step ──reply──▶ step … ──▶ end
 *                                                  └──time up──▶ CANCEL_WAIT ──"01" or "00 01"──▶ end
 *                                                                or a fresh connection (RENEW)
 *                                                                or, amid any other reply: LOST
 *
 * A call that waits for its turn, or for the answer whether the server has it, just ends when its time
 * is up. */
#include "store/client_async_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum store_dialect store_async_dialect(const struct store_async *a) {
    return store_handshake_dialect(a->probe.how);
}

/* ---- the end of a call ---- */

void store_async_free_call(struct store_async_call *c) {
    store_plan_done(c);
    free(c);
}

static void unlink_call(struct store_async *a, struct store_async_call *call) {
    struct store_async_call **at = &a->first;
    struct store_async_call *before = NULL;
    for (; *at != call; at = &(*at)->next) before = *at;
    *at = call->next;
    if (a->last == call) a->last = before;
    a->call_count--;
}

/* Takes the call out of the queue, tells, frees. The callback may do anything, also close us. */
static void end_call(struct store_async *a, struct store_async_call *c, int status,
                     struct store_async_result *result, const struct cr_error *err) {
    struct store_async_result none = {0};
    if (result == NULL) result = &none;
    if (c == a->first) store_async_link_close(&a->asking);
    unlink_call(a, c);
    c->done(c->arg, status, result, err);
    store_list_done(&result->list);
    store_async_free_call(c);
}

static void fail_call(struct store_async *a, struct store_async_call *c, int code,
                      const char *reason) {
    struct cr_error err = {0};
    if (reason == NULL && code == -ETIMEDOUT)
        (void) cr_fail(&err, code, "%s at store %s: timed out after %lld ms", c->what, a->peer,
                       (long long) c->timeout_ms);
    else if (code == -ENOTSUP || code == -EMSGSIZE)
        (void) cr_fail(&err, code, "%s: %s", c->what, reason);
    else
        (void) cr_fail(&err, code, "%s at store %s: %s", c->what, a->peer,
                       reason != NULL ? reason : uv_strerror(code));
    end_call(a, c, code, NULL, &err);
}

/* How it ended is known; it is told from the timer, as this may be inside a call of the user's. */
static void settle(struct store_async_call *c, int code) {
    c->is_over = 1;
    c->code = code;
}

static void end_settled(struct store_async *a, struct store_async_call *c) {
    if (c->code < 0)
        fail_call(a, c, c->code, c->reason);
    else
        end_call(a, c, 0, NULL, NULL);
}

void store_async_end_all(struct store_async *a, enum store_async_state in,
                         const struct cr_error *err) {
    while (a->first != NULL && a->state == in) {
        if (err != NULL)
            end_call(a, a->first, err->code, NULL, err);
        else
            fail_call(a, a->first, -ECANCELED, "the client was closed");
    }
}

/* ---- one step ---- */

static int64_t with_grace(int64_t deadline_ms) {
    int64_t grace = cr_deadline_ms(STORE_GRACE_MS);
    return deadline_ms > grace ? deadline_ms : grace;
}

static void send_step(struct store_async *a, struct store_async_call *c) {
    struct cr_buffer bytes = {0};
    int rc = store_plan_encode(c, store_async_dialect(a), &bytes);
    if (rc < 0) {
        cr_buffer_done(&bytes);
        settle(c, rc);
        return;
    }
    c->expires_ms = c->step.with_grace ? with_grace(c->deadline_ms) : c->deadline_ms;
    c->in_flight = store_plan_has_reply(c);
    if (c->in_flight)
        store_async_link_expect(a->link, store_op_reply(c->step.op), c->step.key_count);
    else
        settle(c, 0);
    rc = store_async_link_send(a->link, &bytes);
    if (rc < 0) store_async_lose(a, rc, NULL);
}

static void follow(struct store_async *a, struct store_async_call *c, int plan) {
    if (plan == STORE_PLAN_STEP)
        send_step(a, c);
    else
        settle(c, plan); /* the end, or why not */
}

/* ---- the turn of a call ---- */

/* Without time, it may ask all the same, as it may look. */
static int64_t time_to_ask(const struct store_async_call *c) {
    int64_t grace = cr_deadline_ms(STORE_GRACE_MS);
    return c->timeout_ms > 0 && c->deadline_ms < grace ? c->deadline_ms : grace;
}

static void begin(struct store_async *a, struct store_async_call *c) {
    int has = store_server_has(a->probe.how, a->knows, c->op);
    if (has >= 0) {
        follow(a, c, store_plan_begin(c, store_async_dialect(a), has));
        return;
    }
    c->expires_ms = time_to_ask(c);
    int rc = store_async_ask(a, store_question(c->op));
    if (rc < 0) settle(c, rc);
}

void store_async_start_first(struct store_async *a) {
    struct store_async_call *c = a->first;
    if (a->state == STORE_ASYNC_READY && c != NULL && !c->in_flight && !c->is_over &&
        a->asking == NULL)
        begin(a, c);
    store_async_arm(a);
}

/* The question could not be put. */
void store_async_asked(struct store_async *a, const char *reason, int code) {
    struct cr_error err = {0};
    (void) cr_fail(&err, code, "ask the store at %s for '%s': %s", a->peer,
                   store_op_name(a->question), reason != NULL ? reason : uv_strerror(code));
    end_call(a, a->first, code, NULL, &err);
    store_async_start_first(a);
}

void store_async_submit(struct store_async *a, struct store_async_call *c) {
    c->expires_ms = store_plan_looks(c) ? with_grace(c->deadline_ms) : c->deadline_ms;
    if (a->last != NULL)
        a->last->next = c;
    else
        a->first = c;
    a->last = c;
    a->call_count++;
    store_async_start_first(a);
}

/* ---- a reply ---- */

static int is_wait(const struct store_async_call *c) {
    return c->step.op == STORE_OP_WAIT || c->step.op == STORE_OP_BARRIER;
}

static int time_is_up(const struct store_async_call *c) {
    return c->deadline_ms != CR_FOREVER && cr_monotonic_ms() >= c->deadline_ms;
}

/* The byte that acknowledges a cancelled wait, perhaps behind the one that ends it. */
static void on_cancelled(struct store_async *a, struct store_async_call *c, uint8_t byte) {
    if (byte == STORE_STOP_WAITING) {
        store_async_link_expect(a->link, STORE_REPLY_BYTE, 0);
    } else if (byte == STORE_WAIT_CANCELED) {
        fail_call(a, c, -ETIMEDOUT, NULL);
        store_async_start_first(a);
    } else {
        store_async_lose(a, -EPROTO, "unexpected byte in reply");
    }
}

static void finish(struct store_async *a, struct store_async_call *c) {
    struct store_async_result result;
    void *value;
    int rc = store_plan_result(c, store_async_link_answer(a->link), &result, &value);
    if (rc < 0)
        fail_call(a, c, rc, NULL);
    else
        end_call(a, c, 0, &result, NULL);
    free(value);
    store_async_start_first(a);
}

void store_async_answered(struct store_async *a) {
    struct store_async_call *c = a->first;
    struct store_answer *answer = store_async_link_answer(a->link);
    if (c->is_cancelling) {
        on_cancelled(a, c, answer->byte);
        return;
    }
    if (is_wait(c) && answer->byte != STORE_STOP_WAITING) {
        store_async_lose(a, -EPROTO, "unexpected byte in reply");
        return;
    }
    c->in_flight = 0;
    int plan = store_plan_next(c, store_async_dialect(a), answer, time_is_up(c));
    if (plan == STORE_PLAN_END) {
        finish(a, c);
        return;
    }
    follow(a, c, plan);
    store_async_arm(a);
}

/* ---- the time is up ---- */

static void cancel(struct store_async *a, struct store_async_call *c) {
    struct cr_buffer bytes = {0};
    struct store_encoder e = {&bytes, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    c->is_cancelling = 1;
    c->expires_ms = cr_deadline_ms(STORE_GRACE_MS);
    int rc = store_encode_plain(&e, STORE_OP_CANCEL_WAIT);
    if (rc == 0) rc = store_async_link_send(a->link, &bytes);
    if (rc < 0) store_async_lose(a, rc, NULL);
}

/* In the middle of an exchange. */
static void give_up_step(struct store_async *a, struct store_async_call *c) {
    if (c->is_cancelling) {
        store_async_lose(a, -ETIMEDOUT, "the cancelled wait is not acknowledged");
    } else if (!is_wait(c)) {
        char reason[64];
        (void) snprintf(reason, sizeof(reason), "timed out after %lld ms",
                        (long long) c->timeout_ms);
        store_async_lose(a, -ETIMEDOUT, reason);
    } else if (store_async_dialect(a) == STORE_DIALECT_MODERN) {
        cancel(a, c);
    } else {
        store_async_renew(a, c->what);
        fail_call(a, c, -ETIMEDOUT, NULL);
    }
}

static void give_up(struct store_async *a, struct store_async_call *c) {
    if (c->in_flight)
        give_up_step(a, c);
    else if (c == a->first && a->asking != NULL && (c->timeout_ms <= 0 || !time_is_up(c)))
        store_async_asked(a, "no reply in time", -ETIMEDOUT);
    else
        fail_call(a, c, -ETIMEDOUT, NULL);
}

static struct store_async_call *late_call(const struct store_async *a, int64_t now) {
    if (a->state != STORE_ASYNC_READY && a->state != STORE_ASYNC_RENEW) return NULL;
    struct store_async_call *c = a->first;
    while (c != NULL && (c->expires_ms > now || c->is_over)) c = c->next;
    return c;
}

int64_t store_async_calls_due(const struct store_async *a) {
    if (a->first != NULL && a->first->is_over) return 0;
    int64_t earliest = CR_FOREVER;
    for (const struct store_async_call *c = a->first; c != NULL; c = c->next)
        earliest = c->expires_ms < earliest ? c->expires_ms : earliest;
    return earliest;
}

/* Something is due: a settled call, or one or more that are late. */
void store_async_calls_late(struct store_async *a) {
    int64_t now = cr_monotonic_ms();
    struct store_async_call *c = a->first;
    if (c != NULL && c->is_over) {
        end_settled(a, c);
    } else {
        while ((c = late_call(a, now)) != NULL) give_up(a, c);
    }
    if (a->state == STORE_ASYNC_READY || a->state == STORE_ASYNC_RENEW) store_async_start_first(a);
}
