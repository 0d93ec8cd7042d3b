/* The process group as the files of this chamber see it. Programs use groups through crunrt.h.
 *
 * Each call on a group has four stages. Prepare checks the arguments, fills in defaults and gives
 * the call its number. Begin records the call and, with CRUNRT_DEBUG=1, compares it with the calls
 * of the other ranks. Then the backend moves the data. Outcome records the result, and breaks the
 * group if the call has failed. */
#ifndef RUNTIME_GROUP_H
#define RUNTIME_GROUP_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/runtime/runtime.h"

#include <stdatomic.h>

#define GROUP_TIMEOUT_MS INT64_C(600000)

struct crunrt_group {
    struct crunrt *rt;
    /* view of the job's store that puts the group's prefix in front of each key (group_store.c) */
    struct crunrt_store *store;
    struct crunrt_store *side_store; /* the same keys, for other threads; its calls never wait */
    uint64_t number;            /* index of this group among the groups of its runtime, from 0 */
    char name[64];
    /* rank -1: this rank is not in the group and only takes part in the split that makes it */
    int rank, size;
    int64_t timeout_ms;
    void *stream;
    const struct crunrt_backend *backend;
    void *state;             /* the backend's own data of this group */
    uint32_t collective_seq; /* number of the next collective; the same on all ranks */
    uint32_t p2p_seq;        /* number of the next send or receive of this rank */
    uint32_t barriers;       /* number of monitored barriers so far; the same on all ranks */
    uint32_t unfinished;     /* number of works that are not over */
    struct crunrt_work *works; /* all works of this group that are not freed */
    /* works that the program has handed to a stream and no longer owns, oldest first */
    struct crunrt_work *handed, *handed_last;
    /* What this rank waits for, so that it can be seen that a rank which has left will never take
     * part in it: how many collectives this rank has begun, and the peer of its last send or
     * receive (-1: its last operation is a collective). */
    _Atomic uint32_t begun;
    _Atomic int peer;
    _Atomic int64_t peer_left_ms; /* when this rank saw that this peer had left; 0 = it has not */
    /* other ranks may be of another program, which does not use our keys in the store */
    bool is_foreign;
    bool compares_calls;     /* true if CRUNRT_DEBUG=1 is set: each call is compared with the calls
                              * of the other ranks */
    struct cr_error broken;  /* why the group is broken; code 0 if the group is intact */
};

/* ---- group_run.c: one call ---- */

struct group_call {
    crunrt_op op;
    char what[48]; /* name of the call for messages: "all_reduce #17" */
    struct backend_call backend;
    uint64_t flight; /* number of this call in the flight recorder */
};

/* Checks `given` and fills in *out. Returns 0; or -EINVAL or -EPIPE (the group is broken), and sets
 * the thread's error text. The call gets the next number, but the number is used up only by
 * group_call_count(), when the backend has accepted the call. */
int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out);
void group_call_count(struct crunrt_group *g, const struct group_call *call);

/* Records that the call begins. With CRUNRT_DEBUG=1, compares it with the calls of the other
 * ranks. */
int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err);

/* Records what this rank waits for from now on; see the members `begun` and `peer`. */
void group_call_announce(struct crunrt_group *g, const struct group_call *call);

/* Prepares each operation of a batch. Operations that have elements are also stored in list[], and
 * *used is their number. */
int group_prepare_batch(struct crunrt_group *g, const crunrt_op *ops, size_t count,
                        struct group_call *calls, struct backend_call *list, size_t *used);

/* Records the backend's result `rc`. 0 and refusals (-EINVAL, -ENOTSUP, -EAGAIN) leave the group
 * intact; any other result breaks it. Returns the error that the caller of the operation gets. */
int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err);

/* ---- group_check.c: comparing calls ---- */

/* With CRUNRT_DEBUG=1, waits until all ranks are about to make this call. Returns 0; -EPROTO if two
 * ranks make different calls, and sets err to a sentence that names both; or the store's failure.
 * Without CRUNRT_DEBUG=1 returns 0 at once. */
int group_check_call(struct crunrt_group *g, const struct group_call *call, struct cr_error *err);

/* ---- group_store.c: the group's keys ---- */

/* Sets the timeout of the group's requests to the store: timeout_ms, but at least 5 seconds. A
 * store that works answers at once, so one that is silent for longer is gone. */
void group_limit_store(struct crunrt_group *g, int64_t timeout_ms);

struct backend_store group_backend_store(struct crunrt_group *g);

/* Call this with the result `rc` of a call on g->store. If `rc` is an error, it copies the error
 * text, which that call has left in crunrt_last_error(), to *err. Returns `rc`. */
int group_store_failure(int rc, struct cr_error *err);

/* Waits until a key of the group exists in the store. Returns 0; -ETIMEDOUT; -ECONNRESET as soon as
 * group_failed() returns it; or the store's failure. */
int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err);

/* Checks whether the group has failed elsewhere. Returns 0; -EPROTO if the ranks give different
 * lists for the group; or -ECONNRESET if another rank has reported a failure of the group (err
 * quotes its report), if the agent has reported that the round is over, or if a rank has left the
 * group that this rank waits for. */
int group_failed(struct crunrt_group *g, struct cr_error *err);

/* most ranks that an error text lists; of further ranks it gives only the number */
#define GROUP_NAMED_MAX 16

/* Writes to `out` the ranks that have not set their key "<phase>/<rank>", for example "1, 4".
 * Returns the number of these ranks, or the store's failure. */
int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size);

/* ---- group_arrival.c ---- */

/* Waits until all ranks of the group have called this function with the same `phase`. A phase can
 * be used once per group. Returns 0; -ETIMEDOUT, and sets err to a text that names the absent
 * ranks; or the store's failure. */
int group_arrive(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                 struct cr_error *err);

/* Checks that all ranks give the same list of ranks for this group: ranks[count], or all ranks if
 * it is NULL. Returns 0; -EPROTO, and sets err to a text with both lists; or the store's failure.
 */
int group_compare_lists(struct crunrt_group *g, const int *ranks, size_t count,
                        struct cr_error *err);

/* The first words of the text with which group_compare_lists() fails. */
#define GROUP_LISTS_DIFFER "the ranks give different lists"

/* Reports to the ranks that stay that this rank leaves the group. */
void group_leave(struct crunrt_group *g);

/* ---- group_work.c ---- */

/* Ends all works of a group that is being destroyed. Works that are not over get an error. The
 * program can still test, wait for and free them. */
void group_end_works(struct crunrt_group *g);

/* ---- group_split.c ---- */

/* Connects the group by splitting the first group of all ranks, if all ranks can do so. Returns 1
 * if the split is done (on a rank outside the group, g->state stays NULL); 0 if a split is not
 * possible and the group must be connected without it; or a negative errno. */
int group_split(struct crunrt_group *g, const struct backend_group *b, struct cr_error *err);

/* group_split_offer() makes a new group available as the parent of later splits, if it contains all
 * ranks and its backend can split. Before the group is destroyed, group_split_withdraw() must be
 * called. */
void group_split_offer(struct crunrt_group *g);
void group_split_withdraw(struct crunrt_group *g);

/* ---- group_failure.c ---- */

/* Writes this rank's reason of failure, `words`, to the store, unless another rank has written a
 * reason before. Sets `first` to that other reason, or to "" if this rank is the first. */
void group_report_failure(struct crunrt_group *g, const char *words, char *first,
                          size_t first_size);

/* Breaks the group: aborts its connections, and reports the failure to the other ranks through the
 * store. On entry, *err contains the cause. The function adds to its text which ranks give no sign
 * of life and which ranks are in another call.
 *
 *   what    a short name of the failed call for messages, such as "all_reduce #17"
 *   doing   the full description of the call, to be compared with those of the other ranks
 *
 * Returns err->code. */
int group_break(struct crunrt_group *g, const char *what, const char *doing, struct cr_error *err);

#endif
