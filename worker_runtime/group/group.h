/* A process group, for the files of this chamber. Programs use groups through crunrt.h.
 *
 * One call goes through these steps: prepare (check the arguments, fill in defaults, number the
 * call), begin (record it; with CRUNRT_DEBUG=1 compare it with the other ranks), the backend, and
 * outcome (a failure breaks the group). */
#ifndef RUNTIME_GROUP_H
#define RUNTIME_GROUP_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/runtime/runtime.h"

#define GROUP_TIMEOUT_MS INT64_C(600000)

struct crunrt_group {
    struct crunrt *rt;
    struct crunrt_store *store; /* view of this group's keys, see group_store.c */
    uint64_t number;            /* of the groups that the runtime has made, from 0 */
    char name[64];
    int rank, size; /* rank -1: this rank is not in the group, and only takes part in its split */
    int64_t timeout_ms;
    void *stream;
    const struct crunrt_backend *backend;
    void *state;             /* the backend's */
    uint32_t collective_seq; /* number of the next collective; the same on all ranks */
    uint32_t p2p_seq;        /* number of the next send or receive; local */
    uint32_t barriers;       /* monitored barriers so far; the same on all ranks */
    uint32_t unfinished;     /* works */
    bool is_foreign;         /* other ranks may not use crunrt: they have none of our keys */
    bool compares_calls;     /* CRUNRT_DEBUG=1 */
    struct cr_error broken;  /* why the group is broken; code 0: it is intact */
};

/* ---- group_run.c: one call ---- */

struct group_call {
    crunrt_op op;
    char what[48]; /* "all_reduce #17" */
    struct backend_call backend;
    uint64_t flight; /* its number in the flight recorder */
};

/* 0, or -EINVAL, -EPIPE (the group is broken) with the thread's text. The call's number is the next
 * one; group_call_count() moves on to the following number, once the call has been accepted. */
int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out);
void group_call_count(struct crunrt_group *g, const struct group_call *call);

/* Records that the call begins and, with CRUNRT_DEBUG=1, compares it with the other ranks. */
int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err);

/* Takes the backend's result `rc`. 0 and refusals (-EINVAL, -ENOTSUP, -EAGAIN) leave the group
 * intact; anything else breaks it. Returns what the caller of the operation gets. */
int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err);

/* ---- group_check.c: comparing calls ---- */

/* With CRUNRT_DEBUG=1, waits until all ranks are about to make this call. 0; -EPROTO with a
 * sentence that names two different calls; or the store's failure. Without it returns 0 at once. */
int group_check_call(struct crunrt_group *g, const struct group_call *call, struct cr_error *err);

/* ---- group_store.c: the group's keys ---- */

/* Limits every request of the group to the store to timeout_ms, but at least 5 seconds: a server
 * that works answers at once. */
void group_limit_store(struct crunrt_group *g, int64_t timeout_ms);

struct backend_store group_backend_store(struct crunrt_group *g);

/* Copies the thread's text to *err after a failed call on the store. Returns rc. */
int group_store_failure(int rc, struct cr_error *err);

/* Waits for one key. Also ends, with -ECONNRESET, when another rank has given up on the group. */
int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err);

/* 0; or -ECONNRESET if another rank has reported that the group failed, with that rank's words, or
 * if the agent has reported that the round is over. */
int group_failed(struct crunrt_group *g, struct cr_error *err);

#define GROUP_NAMED_MAX 16 /* a text lists so many ranks; for more it gives their number */

/* Writes the ranks without a key "<phase>/<rank>" to `out` ("1, 4"). Returns how many there are, or
 * the store's failure. */
int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size);

/* ---- group_arrival.c ---- */

/* Waits until all ranks of the group have called this for `phase`. A phase's name serves only once
 * per group. 0; -ETIMEDOUT with a text that names the absent ranks; or the store's failure. */
int group_arrive(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                 struct cr_error *err);

/* ---- group_split.c ---- */

/* Connects the group by splitting the first group of all ranks, if all ranks can do so. 1: done (a
 * rank that is not in the group then has no state); 0: not possible, connect the group by itself;
 * or a negative errno. */
int group_split(struct crunrt_group *g, const struct backend_group *b, struct cr_error *err);

/* A new group calls the first, so that later groups may be split from it; a group that is destroyed
 * calls the second. */
void group_split_offer(struct crunrt_group *g);
void group_split_withdraw(struct crunrt_group *g);

/* ---- group_failure.c ---- */

/* Writes to the store why this rank gave up. Only the first rank's words stay there; `first` gets
 * them, or "" if they are this rank's. */
void group_report_failure(struct crunrt_group *g, const char *words, char *first,
                          size_t first_size);

/* Breaks the group: aborts its connections, reports the failure to the other ranks through the
 * store, finds out which ranks give no sign of life and which are in another call, and completes
 * the text in *err, which begins with the cause.
 *
 *   what    "all_reduce #17", for messages
 *   doing   the same in full, to be compared with what the other ranks are doing
 *
 * Returns err->code. */
int group_break(struct crunrt_group *g, const char *what, const char *doing, struct cr_error *err);

#endif
