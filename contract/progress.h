/* Which operation of a process group a worker is in: how a worker writes this into its page
 * (struct channel_group in contract/channel.h), and how the agent reads it.
 *
 * A worker makes three stores for each operation. When it enters the operation, it stores the time,
 * and the operation with a mark that the worker waits in it. When it leaves the operation, it
 * stores the operation without the mark. If an operation fails, the worker does not make the third
 * store, so the page of a worker that ends because of the failure still shows the operation.
 *
 * Pure: no I/O and no clock. */
#ifndef CONTRACT_PROGRESS_H
#define CONTRACT_PROGRESS_H

#include "contract/channel.h"

#include <stdbool.h>
#include <stddef.h>

/* The kinds of operations. All but MAKE have the numbers of crunrt_op_kind; MAKE is the making of
 * the group itself. */
#define PROGRESS_KINDS(X)                                                                          \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(REDUCE, "reduce")                                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter")                                                                          \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_TO_ALL, "all_to_all")                                                                    \
    X(ALL_TO_ALL_COUNTS, "all_to_all_counts")                                                      \
    X(BARRIER, "barrier")                                                                          \
    X(SEND, "send")                                                                                \
    X(RECV, "recv")                                                                                \
    X(MAKE, "the making")

enum progress_kind {
#define X(NAME, name) PROGRESS_##NAME,
    PROGRESS_KINDS(X)
#undef X
        PROGRESS_KIND_COUNT
};

enum progress_state {
    /* the worker is in no operation, and all operations that it has started have ended */
    PROGRESS_IDLE,
    /* the worker is in no operation, but it has started operations that may not have ended yet */
    PROGRESS_OPEN,
    /* the worker waits in a collective, or for the end of one that it has started */
    PROGRESS_COLLECTIVE,
    /* the worker waits in a send or receive, or for the end of one that it has started */
    PROGRESS_MESSAGE,
    PROGRESS_MAKING,     /* the worker is making the group, and waits for the other ranks */
};

/* What a worker is in, in one group. */
struct progress {
    uint64_t number; /* number of the group among the groups of the round; the same on all ranks */
    char name[CHANNEL_GROUP_NAME_MAX];
    uint32_t place, size; /* the worker's rank in the group, and the group's number of ranks */
    enum progress_state state;
    /* kind of the operation in which the worker waits; if it waits in none, of its last
     * collective */
    enum progress_kind kind;
    uint32_t begun;          /* number of collectives that the worker has entered */
    uint32_t seq; /* number of the operation in which the worker waits; 0 if it waits in none */
    uint32_t peer;           /* if state is PROGRESS_MESSAGE: rank of the other end in the group */
    /* time (ns, monotonic clock) at which the worker last entered an operation; 0 = never */
    int64_t since_ns;
};

/* ---- the worker's side: values for `collective` and `message` of struct channel_group ---- */

#define PROGRESS_BEHIND_MAX 0xffffU

/* Returns the value of `collective` for a worker that has entered `begun` collectives. If `waits`,
 * the worker waits in the collective with the number begun - 1 - back (the first one has the number
 * 0), which is of this kind. If `open`, it has started operations that may not be over. */
uint64_t progress_collective(uint32_t begun, uint32_t back, enum progress_kind kind, bool waits,
                             bool open);

/* Returns the value of `message`. If `waits`, the worker waits in the send or receive with the
 * number `seq`, whose other end is rank `peer` of the group. */
uint64_t progress_message(uint32_t seq, uint32_t peer, enum progress_kind kind, bool waits);

/* ---- the agent's side ---- */

/* Returns the kind in a value of progress_collective(). */
enum progress_kind progress_kind_of(uint64_t collective);

/* Reads the entry of one group. The worker may have written anything, so every value is checked or
 * limited; in the name, other bytes than printable ASCII are replaced by '?'. Returns false if the
 * entry is not in use, or if the worker's rank in the group is not smaller than the group's
 * size. */
bool progress_read(const struct channel_group *g, struct progress *out);

const char *progress_kind_name(enum progress_kind kind);

#endif
