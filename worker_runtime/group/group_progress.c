/* Shows in the page which operation of a group this rank is in, so that the agents of the job can
 * find out at once which rank has not entered an operation in which other ranks wait.
 *
 * A collective costs three atomic stores and no system call. When the rank enters it, two stores
 * write the time, and the operation with a mark that the rank waits. When the rank leaves it, one
 * store writes the operation without this mark. */
#include "worker_runtime/group/group.h"
#include "worker_runtime/group/op_check.h"

#include "base/time/clock.h"
#include "contract/progress.h"

_Static_assert((int) PROGRESS_RECV == (int) CRUNRT_OP_RECV &&
                   (int) PROGRESS_BARRIER == (int) CRUNRT_OP_BARRIER,
               "both lists have the same order");

static uint32_t begun_of(const struct crunrt_group *g) {
    return atomic_load_explicit(&g->begun, memory_order_relaxed);
}

static void store_collective(struct channel_group *e, uint64_t word) {
    atomic_store_explicit(&e->collective, word, memory_order_release);
}

void group_progress_make(struct crunrt_group *g) {
    const struct shown_group shown = {.number = g->number, .name = g->name,
                                      .place = (uint32_t) g->rank, .size = (uint32_t) g->size};
    worker_channel_show(&g->rt->channel, &shown, &g->entry);
    if (g->entry == NULL) return;
    atomic_store_explicit(&g->entry->since_ns, cr_monotonic_ns(), memory_order_relaxed);
    store_collective(g->entry, progress_collective(0, 0, PROGRESS_MAKE, true, false));
}

void group_progress_enter(struct crunrt_group *g, const struct group_call *call,
                          int64_t since_ns) {
    struct channel_group *e = g->entry;
    uint32_t seq = call->backend.seq, begun = begun_of(g);
    enum progress_kind kind = (enum progress_kind) call->op.kind;
    if (e == NULL) return;
    atomic_store_explicit(&e->since_ns, since_ns, memory_order_relaxed);
    if (op_is_p2p(call->op.kind))
        atomic_store_explicit(&e->message,
                              progress_message(seq, (uint32_t) call->op.root, kind, true),
                              memory_order_release);
    else
        store_collective(e, progress_collective(begun, begun - 1 - seq, kind, true, false));
}

void group_progress_leave(struct crunrt_group *g, bool open) {
    struct channel_group *e = g->entry;
    if (e == NULL) return;
    if (atomic_load_explicit(&e->message, memory_order_relaxed) != 0)
        atomic_store_explicit(&e->message, 0, memory_order_release);
    enum progress_kind last =
        progress_kind_of(atomic_load_explicit(&e->collective, memory_order_relaxed));
    store_collective(e, progress_collective(begun_of(g), 0, last, false, open));
}
