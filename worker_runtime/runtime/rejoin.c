/* Rejoin: a worker goes on in the next round without a new process.
 *
 * The worker sends REJOIN to its agent and waits. When the next round begins, the agent sends
 * ROUND, with the worker's new place and the address of the new round's store, which is empty.
 * Workers of that round that are newly started get the same values in their environment, so all
 * ranks of the round use the same keys. A worker without an agent cannot rejoin, because only
 * agents assign the ranks of a new round. */
#include "worker_runtime/runtime/runtime.h"

#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Longest time in ms of one attempt to connect to the store of the new round. After each attempt,
 * connect_to_new_store() checks whether the new round has ended, because the store of such a round
 * never answers. */
#define STORE_SLICE_MS INT64_C(2000)

/* Sends REJOIN, unless an earlier call has sent it, and waits until the packet ROUND has come.
 * Returns 0 and the packet in *p; or -ETIMEDOUT or another negative errno, and sets the thread's
 * error text. */
static int wait_for_round(struct crunrt *rt, int64_t deadline_ms, struct channel_packet *p) {
    struct worker_channel *c = &rt->channel;
    int rc = c->round.has_asked_to_rejoin
                 ? 0
                 : worker_channel_send(c, CHANNEL_REJOIN, c->round.change.id);
    c->round.has_asked_to_rejoin = true;
    while (rc == 0) {
        int got = worker_channel_receive(c, deadline_ms, p);
        if (got > 0 && p->type == CHANNEL_ROUND) return 0;
        if (got <= 0) rc = got < 0 ? got : -ETIMEDOUT;
    }
    return cr_fail(rt_last_error(), rc,
                   rc == -ETIMEDOUT ? "rejoin: the next round has not begun in time"
                                    : "rejoin: the agent is gone; end this process");
}

static int connect_to_new_store(struct crunrt *rt) {
    int64_t deadline = cr_deadline_ms(rt->store->timeout_ms);
    for (;;) {
        int64_t left = cr_time_left_ms(deadline);
        int64_t slice = left < STORE_SLICE_MS ? left : STORE_SLICE_MS;
        int rc = rt_store_move(rt->store, rt->place.master_addr, rt->place.master_port, slice);
        if (rc != -ETIMEDOUT || left <= slice || rt_round_is_over(rt)) return rc;
    }
}

static int begin_round(struct crunrt *rt, const struct channel_packet *p) {
    int rc = worker_place_from_packet(p, &rt->place, rt_last_error());
    if (rc < 0) return rc;
    worker_channel_begin_round(&rt->channel);
    rc = connect_to_new_store(rt);
    if (rc == 0) rc = rt_take_prefix(rt);
    if (rc < 0) return cr_wrap(rt_last_error(), "rejoin as rank %d", rt->place.rank);
    rt->group_count = 0;
    rt->whole = (struct rt_whole_group){0};
    flight_set_place(rt->place.rank, rt->place.world_size);
    return 0;
}

/* Waits for the next round and begins it. If that round ends before this worker has connected to
 * the round's store, waits for the round after it, and so on. */
static int rejoin(struct crunrt *rt, int64_t timeout_ms) {
    struct channel_packet p;
    int64_t deadline = cr_deadline_ms(timeout_ms > 0 ? timeout_ms : CR_FOREVER);
    int rc = 0;
    do {
        rc = wait_for_round(rt, deadline, &p);
        if (rc < 0) return rc;
        rc = begin_round(rt, &p);
    } while (rc < 0 && rt_round_is_over(rt));
    return rc;
}

static int fail_without_agent(const struct crunrt *rt) {
    return cr_fail(rt_last_error(), -ENOTCONN,
                   "rejoin: this process has no agent (%s); only a worker that crun started can "
                   "rejoin; end this process",
                   rt->channel_error.text);
}

int rt_recoverable(struct crunrt *rt, struct cr_error *err) {
    int rc = rt->recoverable != NULL ? rt->recoverable(err) : 0;
    if (rc < 0 && rt->channel.page != NULL) atomic_store(&rt->channel.page->can_rejoin, 0);
    return rc;
}

int crunrt_rejoin(crunrt *rt, const crunrt_rejoin_options *options) {
    if (rt == NULL) return rt_fail_null("rejoin", "the runtime");
    crunrt_rejoin_options o = CRUNRT_REJOIN_OPTIONS_INIT;
    if (options != NULL && options->size < offsetof(crunrt_rejoin_options, timeout_ms)) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "rejoin: the options' size is %zu; start from CRUNRT_REJOIN_OPTIONS_INIT",
                       options->size);
    }
    if (options != NULL)
        memcpy(&o, options, options->size < sizeof(o) ? options->size : sizeof(o));
    if (!rt->channel.was_open) return fail_without_agent(rt);
    int rc = rt_recoverable(rt, rt_last_error());
    if (rc < 0) return cr_wrap(rt_last_error(), "rejoin");
    return rt_pipe_to_reset(rejoin(rt, o.timeout_ms), rt_last_error());
}
