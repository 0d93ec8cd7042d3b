/* The process group, as the files of this chamber use it. Programs use groups through crunrt.h.
 *
 * Each operation on a group has four stages. 1. group_call_prepare() checks the arguments, fills in
 * defaults and gives the operation its number. 2. group_call_begin() records the operation and,
 * with CRUNRT_DEBUG=1, compares it with the operations of the other ranks. 3. The backend moves the
 * data. 4. group_outcome() records the result, and breaks the group if the operation has failed. */
#ifndef RUNTIME_GROUP_H
#define RUNTIME_GROUP_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/runtime/runtime.h"

#include <stdatomic.h>

#define GROUP_TIMEOUT_MS INT64_C(600000)

struct crunrt_group {
    struct crunrt *rt;
    struct crunrt_group *next; /* in the list of groups of `rt` */
    int *ranks;                /* [size] the ranks of the group in the job; NULL if all are in it */
    bool in_monitored_barrier;
    /* view of the job's store that puts the group's prefix in front of each key (group_store.c) */
    struct crunrt_store *store;
    /* like `store`, but for other threads: if another thread uses the connection, a call with one
     * key does not wait, but returns -EBUSY */
    struct crunrt_store *side_store;
    uint64_t number;            /* index of this group among the groups of its runtime, from 0 */
    char name[64];
    /* own rank in the group; -1 if this rank is not in it and only takes part in the split */
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
    /* the works that were handed over, the oldest one first: the program has freed them, but a
     * stream waits for their end, so the group has to find out how they end */
    struct crunrt_work *handed, *handed_last;
    /* the group's entry in the page that this process shares with its agent; NULL if there is none
     */
    struct channel_group *entry;
    /* number of collectives that this rank has begun */
    _Atomic uint32_t begun;
    /* the other rank of this rank's last operation, if it is a send or a receive; -1 if it is a
     * collective */
    _Atomic int peer;
    /* time in ms at which this rank noticed that `peer` has left the group; 0 if it has not noticed
     * this */
    _Atomic int64_t peer_left_ms;
    /* true if some ranks use another library than this one, which does not know the keys that this
     * library has in the store (foreign_prefix in crunrt.h) */
    bool is_foreign;
    bool compares_calls;     /* true if CRUNRT_DEBUG=1 is set: the calls of all ranks are
                              * compared */
    struct cr_error broken;  /* why the group is broken; code 0 if the group is intact */
};

/* ---- group_run.c: one call ---- */

struct group_call {
    crunrt_op op;
    char what[48]; /* name of the call in messages, such as "all_reduce #17" */
    struct backend_call backend;
    uint64_t flight; /* number of this call in the flight recorder */
};

/* Checks `given` and fills in *out, with the next free number. Returns 0; -EINVAL; or -EPIPE if the
 * group is broken. On error, sets the thread's error text. Call group_call_count() when the backend
 * has accepted the call; before that, a further call of this function gives out the same number. */
int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out);
void group_call_count(struct crunrt_group *g, const struct group_call *call);

/* Records that the call begins. With CRUNRT_DEBUG=1, also compares it with the calls of the other
 * ranks. Returns the result of group_check_call(). */
int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err);

/* Stores in `begun` and `peer` the call that this rank is going to wait for. */
void group_call_announce(struct crunrt_group *g, const struct group_call *call);

/* ---- group_progress.c: shows in the page which call this rank is in ---- */

/* Shows in the page that this rank is making the group. Call group_progress_leave() when the group
 * is made. */
void group_progress_make(struct crunrt_group *g);

/* Writes to the page that this rank is in `call`. Call this when this rank enters `call`, or when
 * it begins to wait for the end of a `call` that it has started before. `since_ns` is the present
 * time in ns of the monotonic clock. */
void group_progress_enter(struct crunrt_group *g, const struct group_call *call, int64_t since_ns);

/* Writes to the page that this rank is in no call any more. Call this when this rank has left a
 * call, or has stopped waiting for the end of one. If a failure has broken the group, do not call
 * it: the page then goes on showing the call that failed. `open` is true if operations that this
 * rank has started may not have ended. */
void group_progress_leave(struct crunrt_group *g, bool open);

/* Prepares each operation ops[i] of a batch and stores it in calls[i]. Operations that have
 * elements are also stored in list[], and *used is increased by their number. Returns 0, -EINVAL or
 * -EPIPE. */
int group_prepare_batch(struct crunrt_group *g, const crunrt_op *ops, size_t count,
                        struct group_call *calls, struct backend_call *list, size_t *used);

/* Records `rc`, the result of the backend for this call. If `rc` is 0 or a refusal (-EINVAL,
 * -ENOTSUP, -EAGAIN), the group stays intact; any other result breaks it. Returns the value that
 * the program's call must return. */
int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err);

/* ---- group_check.c: comparing calls ---- */

/* With CRUNRT_DEBUG=1, waits until all ranks have come to this call, and compares their calls.
 * Returns 0; -EPROTO if two ranks make different calls, and sets err to a sentence that names both
 * calls; or the store's error. Without CRUNRT_DEBUG=1, returns 0 at once. */
int group_check_call(struct crunrt_group *g, const struct group_call *call, struct cr_error *err);

/* ---- group_store.c: the group's keys ---- */

/* Sets the timeout of the group's requests to the store to timeout_ms. But the timeout is at least
 * 5 s, because a store that works answers within this time, and at most the timeout of the job's
 * store. */
void group_limit_store(struct crunrt_group *g, int64_t timeout_ms);

struct backend_store group_backend_store(struct crunrt_group *g);

/* Returns true if the agent has ended the round of the group. A backend calls it as is_over()
 * (worker_runtime/backends/backend.h). */
bool group_is_over(void *group);

/* Call this with the result `rc` of a call on g->store. If `rc` is an error, copies to *err the
 * error text that the call has left in crunrt_last_error(). Returns `rc`. */
int group_store_failure(int rc, struct cr_error *err);

/* Waits until a key of the group exists in the store. During the wait, calls group_failed() from
 * time to time. Returns 0; -ETIMEDOUT; the error of group_failed(); or the store's error. */
int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err);

/* Checks whether the group can still work. Returns 0 if no failure is known. Returns -EPROTO if a
 * rank has written to the store that the ranks give different lists for the group. Returns
 * -ECONNRESET if another rank has written another failure to the store (err quotes it), if the
 * agent has ended the round, or if this rank waits for a rank that has left the group. */
int group_failed(struct crunrt_group *g, struct cr_error *err);

/* largest number of ranks that an error text lists; further ranks are only counted */
#define GROUP_NAMED_MAX 16

/* Writes to `out` the ranks whose key "<phase>/<rank>" is not set, for example "1, 4". Returns the
 * number of these ranks, or a negative error of the store. */
int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size);

/* ---- group_arrival.c ---- */

/* Waits until all ranks of the group have called this function with the same `phase`. Each phase
 * may be used only once in a group. Returns 0; -ETIMEDOUT, and sets err to a text that names the
 * absent ranks; the error of group_failed(); or the store's error. */
int group_arrive(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                 struct cr_error *err);

/* Checks that all ranks give the same list of ranks for this group. This rank's list is
 * ranks[count], or all ranks if `ranks` is NULL. Returns 0; -EPROTO, and sets err to a text with
 * both lists; or the store's error. */
int group_compare_lists(struct crunrt_group *g, const int *ranks, size_t count,
                        struct cr_error *err);

/* group_failed() searches for these words in a failure, to recognise that it comes from
 * group_compare_lists() */
#define GROUP_LISTS_DIFFER "the ranks give different lists"

/* Writes to the store that this rank leaves the group, so that no other rank waits for it in
 * vain. */
void group_leave(struct crunrt_group *g);

/* ---- group_work.c ---- */

/* Call this when the group is being destroyed. It ends all works of the group; the result of a work
 * that is not over becomes an error. The program may still test, wait for and free each work. */
void group_end_works(struct crunrt_group *g);

/* ---- group_split.c ---- */

/* Connects the group by splitting the first group of all ranks, if all ranks are able to do so.
 * Returns 1 if the group was made by the split (on a rank outside the group, g->state stays NULL);
 * 0 if no split is possible, so that the ranks must connect without it; or a negative errno. */
int group_split(struct crunrt_group *g, const struct backend_group *b, struct cr_error *err);

/* If `g` contains all ranks and its backend can split, group_split_offer() records `g` as the group
 * from which later groups are split. group_split_withdraw() removes this record; call it before the
 * group is destroyed. */
void group_split_offer(struct crunrt_group *g);
void group_split_withdraw(struct crunrt_group *g);

/* ---- group_failure.c ---- */

/* Writes `words`, which say why this rank has failed, to the group's key `failure`, unless another
 * rank has written the key before. Sets `first` to the words of that other rank; or to "" if no
 * other rank was first, or if the store does not answer. */
void group_report_failure(struct crunrt_group *g, const char *words, char *first,
                          size_t first_size);

/* Breaks the group: aborts its connections, and writes the failure to the store, for the other
 * ranks. On entry, *err contains the cause. The function appends to its text which ranks give no
 * sign of life and, after a timeout, which ranks are in another call.
 *
 *   what    a short name of the failed call for messages, such as "all_reduce #17"
 *   doing   the full description of the call, which is compared with those of the other ranks
 *
 * Returns err->code. */
int group_break(struct crunrt_group *g, const char *what, const char *doing, struct cr_error *err);

#endif
