/* Counts steps, and stops the worker for announced changes. contract/channel.h describes the
 * protocol, and why it is correct.
 *
 * Most steps make only two stores and one load in the memory that the worker shares with the agent.
 * The load reads the bell. If the bell has changed since packets were last read, the step reads the
 * agent's packets with system calls. If a packet announces a change, the step waits until the
 * agreed step is known. */
#include "worker_runtime/runtime/runtime.h"

#include "base/change_kind.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Checks that each kind of change has the same number in crunrt.h as in base/change_kind.h. */
#define K(NAME, number, word, phrase)                                                              \
    _Static_assert((int) CRUNRT_CHANGE_##NAME == (number),                                         \
                   "crunrt.h has another number for " #NAME);
CR_CHANGE_KINDS(K)
#undef K
_Static_assert((int) CRUNRT_AFTER_STEP == (int) CHANNEL_AFTER_STEP &&
                   (int) CRUNRT_NOW == (int) CHANNEL_NOW &&
                   (int) CRUNRT_NEEDS == (int) CHANNEL_NEEDS,
               "the answers have the same numbers in crunrt.h and contract/channel.h");

/* ---- crunrt_step() ---- */

/* Fills in *out. If a program was compiled with an older crunrt.h, its struct is shorter (field
 * `size`); only the fields that it has are written. */
static void describe_change(const struct round_state *s, crunrt_change *out) {
    if (out == NULL || out->size < sizeof(out->size)) return;
    int64_t left = s->change_until_ms - cr_monotonic_ms();
    crunrt_change change = CRUNRT_CHANGE_INIT;
    change.size = out->size;
    change.kind = (crunrt_change_kind) s->change.change.kind;
    change.left_ms = left > 0 ? left : 0;
    change.step = s->steps;
    (void) snprintf(change.reason, sizeof(change.reason), "%s", s->change.text);
    memcpy(out, &change, out->size < sizeof(change) ? out->size : sizeof(change));
}

static int fail_round_is_over(uint64_t steps) {
    return cr_fail(rt_last_error(), -ECONNRESET,
                   "step %llu: the round is over: a worker elsewhere failed, or a change came "
                   "before every rank had made a step; call crunrt_rejoin() or end",
                   (unsigned long long) steps);
}

/* Returns true if the agent has ended the round without an agreed step. The agent first sets `over`
 * in the page and then sends the packet OVER. Both are checked, because crunrt_wait_for_round_end()
 * returns when `over` is set, and the packet may come after that. */
static bool is_over(const struct worker_channel *c) {
    return c->round.is_over || (c->page != NULL && atomic_load(&c->page->over) != 0);
}

static int step_with_news(struct worker_channel *c, crunrt_change *change) {
    worker_channel_read_all(c);
    if (is_over(c)) return fail_round_is_over(c->round.steps);
    if (c->page == NULL || !round_state_must_stop(&c->round)) return 0;
    atomic_store(&c->page->stopped_for, c->round.change.id);
    describe_change(&c->round, change);
    return CRUNRT_CHANGE;
}

int crunrt_step_count(crunrt *rt) {
    if (rt == NULL) return rt_fail_null("count a step", "the runtime");
    struct worker_channel *c = &rt->channel;
    c->round.steps++;
    if (c->page == NULL) return 0;
    int64_t now_ns = cr_monotonic_ns();
    atomic_store_explicit(&c->page->stepped_ns, now_ns, memory_order_relaxed);
    if (c->round.steps == 1) {
        atomic_store_explicit(&c->page->first_step_ns, now_ns, memory_order_relaxed);
    }
    /* The worker first stores its step and then reads the bell. The agent first increments the bell
     * and then reads the step. These accesses are sequentially consistent, so the worker sees the
     * new bell, or the agent sees the new step, or both. */
    atomic_store(&c->page->step, c->round.steps);
    bool has_news = atomic_load(&c->page->bell) != c->bell_seen;
    return has_news || c->round.stop_at != 0 || is_over(c);
}

int crunrt_step_settle(crunrt *rt, crunrt_change *change) {
    if (rt == NULL) return rt_fail_null("settle a step", "the runtime");
    return rt->channel.page != NULL ? step_with_news(&rt->channel, change) : 0;
}

int crunrt_step(crunrt *rt, crunrt_change *change) {
    if (rt == NULL) return rt_fail_null("make a step", "the runtime");
    return crunrt_step_count(rt) != 0 ? crunrt_step_settle(rt, change) : 0;
}

int crunrt_wait_for_round_end(crunrt *rt, int64_t timeout_ms) {
    if (rt == NULL) return rt_fail_null("wait for the end of the round", "the runtime");
    int64_t deadline = timeout_ms == CRUNRT_TIMEOUT_DEFAULT ? CR_FOREVER
                                                            : cr_deadline_ms(timeout_ms);
    int rc = worker_channel_wait_over(&rt->channel, deadline);
    if (rc > 0) return rc;
    return cr_fail(rt_last_error(), rc, "wait for the end of the round: %s",
                   rc == -ETIMEDOUT   ? "it goes on"
                   : rc == -ENOTCONN ? "this process has no agent, or the agent is gone"
                                      : strerror(-rc));
}

bool rt_round_is_over(const struct crunrt *rt) {
    return rt->channel.page != NULL && atomic_load(&rt->channel.page->over) != 0;
}

/* ---- calls that set how this worker takes part in changes ---- */

int crunrt_answer_changes(crunrt *rt, crunrt_answer how, int64_t needs_ms) {
    if (rt == NULL) return rt_fail_null("answer changes", "the runtime");
    if ((unsigned) how > CRUNRT_NEEDS || (how == CRUNRT_NEEDS && needs_ms < 0)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "answer changes: not a valid answer: %d with %lld ms", (int) how,
                       (long long) needs_ms);
    }
    if (rt->channel.page == NULL) return 0;
    atomic_store(&rt->channel.page->needs_ms, needs_ms);
    atomic_store(&rt->channel.page->answer, (uint32_t) how);
    atomic_store(&rt->channel.page->counts_from_start, 1);
    return 0;
}

int crunrt_change_done(crunrt *rt) {
    if (rt == NULL) return rt_fail_null("report that the change is done", "the runtime");
    struct worker_channel *c = &rt->channel;
    if (c->page == NULL) return 0;
    if (c->round.change.type == 0 || !round_state_must_stop(&c->round)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "report that the change is done: crunrt_step() has announced none");
    }
    int rc = worker_channel_send(c, CHANNEL_READY, c->round.change.id);
    if (rc == 0) return 0;
    return cr_fail(rt_last_error(), rc, "report that the change is done: the agent is gone");
}

int crunrt_watch_steps(crunrt *rt, int64_t limit_ms) {
    if (rt == NULL) return rt_fail_null("watch steps", "the runtime");
    if (limit_ms < 0) {
        return cr_fail(rt_last_error(), -EINVAL, "watch steps: %lld ms is not a limit",
                       (long long) limit_ms);
    }
    if (rt->channel.page == NULL) return 0;
    atomic_store(&rt->channel.page->limit_ms, limit_ms);
    int rc = worker_channel_send(&rt->channel, CHANNEL_LIMIT, 0);
    return rc == 0 ? 0 : cr_fail(rt_last_error(), rc, "watch steps: the agent is gone");
}

int crunrt_can_rejoin(crunrt *rt, int yes) {
    if (rt == NULL) return rt_fail_null("set whether this worker can rejoin", "the runtime");
    if (rt->channel.page != NULL) atomic_store(&rt->channel.page->can_rejoin, yes != 0);
    struct cr_error ignored;
    (void) rt_recoverable(rt, &ignored);
    return 0;
}
