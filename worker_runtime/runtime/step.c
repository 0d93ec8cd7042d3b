/* Steps and changes with notice; contract/channel.h has the protocol and why it is right.
 *
 * Between two steps nothing happens but two stores and a load. Only a bell that has rung leads to a
 * system call: packets are read, and if a change is announced whose step is not known yet, this is
 * where the worker waits for it. */
#include "worker_runtime/runtime/runtime.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GRACE_MS                                                                                   \
    INT64_C(5000) /* beyond the change's own deadline; an agent that lives is in time */

_Static_assert((int) CRUNRT_CHANGE_JOIN == (int) CHANNEL_CHANGE_JOIN &&
                   (int) CRUNRT_CHANGE_MAINTENANCE == (int) CHANNEL_CHANGE_MAINTENANCE &&
                   (int) CRUNRT_NEEDS == (int) CHANNEL_NEEDS,
               "one numbering");

/* ---- packets ---- */

static void take_packet(struct agent_link *l, const struct channel_packet *p) {
    switch (p->type) {
    case CHANNEL_CHANGE:
        l->change = *p;
        l->stop_at = 0;
        l->change_until_ms = cr_deadline_ms(p->change.left_ms);
        return;
    case CHANNEL_STOP_AT:
        if (l->change.type == 0 || p->id != l->change.id) return;
        l->stop_at = p->stop_at.step;
        l->change_until_ms = cr_deadline_ms(p->stop_at.left_ms);
        return;
    case CHANNEL_OVER: l->over = 1; return;
    case CHANNEL_REFUSED: agent_link_close(l); return;
    default: return; /* a later agent's */
    }
}

static int waits_for_step(const struct agent_link *l) {
    return l->change.type != 0 && l->stop_at == 0 && !l->over;
}

static int64_t patience_until(const struct agent_link *l) {
    if (!waits_for_step(l)) return 0;
    return l->change_until_ms < CR_FOREVER - GRACE_MS ? l->change_until_ms + GRACE_MS : CR_FOREVER;
}

/* Reads what is there, and goes on reading while the worker is frozen. */
static void hear(struct agent_link *l) {
    struct channel_packet p;
    uint64_t bell = atomic_load(&l->page->bell);
    while (agent_link_receive(l, patience_until(l), &p) > 0) take_packet(l, &p);
    l->heard = bell;
    if (waits_for_step(l)) l->change = (struct channel_packet){0}; /* nobody told us: go on */
}

/* ---- the step ---- */

static void describe(const struct agent_link *l, crunrt_change *out) {
    crunrt_change change = CRUNRT_CHANGE_INIT;
    int64_t left = l->change_until_ms - cr_monotonic_ms();
    if (out == NULL || out->size < sizeof(out->size)) return;
    change.size = out->size;
    change.kind = (crunrt_change_kind) l->change.change.kind;
    change.left_ms = left > 0 ? left : 0;
    change.step = l->steps;
    (void) snprintf(change.reason, sizeof(change.reason), "%s", l->change.text);
    memcpy(out, &change, out->size < sizeof(change) ? out->size : sizeof(change));
}

static int step_with_news(struct agent_link *l, crunrt_change *change) {
    hear(l);
    if (l->over) {
        return cr_fail(rt_last_error(), -ECONNRESET,
                       "step %llu: the round is over: a worker elsewhere failed, or a change came "
                       "before every rank had made a step; call crunrt_rejoin() or end",
                       (unsigned long long) l->steps);
    }
    if (l->page == NULL || l->stop_at == 0 || l->steps < l->stop_at) return 0;
    atomic_store(&l->page->stopped_for, l->change.id);
    describe(l, change);
    return CRUNRT_CHANGE;
}

int crunrt_step(crunrt *rt, crunrt_change *change) {
    if (rt == NULL) return rt_fail_null("make a step", "the runtime");
    struct agent_link *l = &rt->link;
    l->steps++;
    if (l->page == NULL) return 0;
    atomic_store_explicit(&l->page->stepped_ns, cr_monotonic_ns(), memory_order_relaxed);
    atomic_store(&l->page->step, l->steps); /* before the bell is looked at, in one order for all */
    if (atomic_load(&l->page->bell) == l->heard && l->stop_at == 0 && !l->over) return 0;
    return step_with_news(l, change);
}

int rt_round_is_over(const struct crunrt *rt) {
    return rt->link.page != NULL && atomic_load(&rt->link.page->over) != 0;
}

/* ---- what a worker says of itself ---- */

int crunrt_answer_changes(crunrt *rt, crunrt_answer how, int64_t needs_ms) {
    if (rt == NULL) return rt_fail_null("answer changes", "the runtime");
    if ((unsigned) how > CRUNRT_NEEDS || (how == CRUNRT_NEEDS && needs_ms < 0)) {
        return cr_fail(rt_last_error(), -EINVAL, "answer changes: %d with %lld ms is no answer",
                       (int) how, (long long) needs_ms);
    }
    if (rt->link.page == NULL) return 0;
    atomic_store(&rt->link.page->needs_ms, needs_ms);
    atomic_store(&rt->link.page->answer, (uint32_t) how);
    return 0;
}

int crunrt_change_done(crunrt *rt) {
    if (rt == NULL) return rt_fail_null("say that the change is done", "the runtime");
    struct agent_link *l = &rt->link;
    if (l->page == NULL) return 0;
    if (l->change.type == 0 || l->stop_at == 0 || l->steps < l->stop_at) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "say that the change is done: crunrt_step() has announced none");
    }
    int rc = agent_link_send(l, CHANNEL_READY, l->change.id);
    return rc < 0 ? cr_fail(rt_last_error(), rc, "say that the change is done: the agent is gone")
                  : 0;
}

int crunrt_watch_steps(crunrt *rt, int64_t limit_ms) {
    if (rt == NULL) return rt_fail_null("watch steps", "the runtime");
    if (limit_ms < 0) {
        return cr_fail(rt_last_error(), -EINVAL, "watch steps: %lld ms is no limit",
                       (long long) limit_ms);
    }
    if (rt->link.page == NULL) return 0;
    atomic_store(&rt->link.page->limit_ms, limit_ms);
    int rc = agent_link_send(&rt->link, CHANNEL_LIMIT, 0);
    return rc < 0 ? cr_fail(rt_last_error(), rc, "watch steps: the agent is gone") : 0;
}

int crunrt_can_rejoin(crunrt *rt, int yes) {
    if (rt == NULL) return rt_fail_null("say that this worker can rejoin", "the runtime");
    if (rt->link.page != NULL) atomic_store(&rt->link.page->can_rejoin, yes != 0);
    return 0;
}
