/* A process group, as its own files see it. */
#ifndef RUNTIME_GROUP_H
#define RUNTIME_GROUP_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/runtime/runtime.h"

#define GROUP_TIMEOUT_MS INT64_C(600000)

struct crunrt_group {
    struct crunrt *rt;
    struct crunrt_store *store; /* view on "crunrt/<attempt>/pg/<number>/" */
    uint64_t number;
    char name[64];
    int rank, size; /* rank -1: no member, only asked for a split */
    int64_t timeout_ms;
    void *stream;
    const struct crunrt_backend *backend;
    void *state;             /* of the backend */
    uint32_t collective_seq; /* of the next one; the same on all ranks */
    uint32_t p2p_seq;        /* sends and receives so far; local */
    int foreign;             /* the peers may be no crunrt: their keys, none of ours */
    uint32_t barriers;       /* monitored ones so far */
    uint32_t unfinished;     /* works */
    int checks;              /* CRUNRT_DEBUG=1: compare every collective with the other ranks */
    struct cr_error broken;  /* code 0 while the group is whole */
};

/* An operation on its way through the group: checked, numbered, with the defaults filled in. */
struct group_call {
    crunrt_op op;
    char what[48]; /* "all_reduce #17" */
    struct backend_call backend;
    uint64_t flight; /* its number in the flight recorder */
};

/* 0, or -EPIPE, -EINVAL with the thread's text. The number is taken by group_call_count(). */
int group_call_prepare(struct crunrt_group *g, const crunrt_op *given, struct group_call *out);
/* Records the beginning and, with checks on, compares it with the other ranks. */
int group_call_begin(struct crunrt_group *g, struct group_call *call, struct cr_error *err);
void group_call_count(struct crunrt_group *g, const struct group_call *call);

int group_call_is_empty(const struct group_call *call); /* no elements: nothing to do */

/* What a backend's outcome means for the group: 0 and refusals leave it whole, the rest breaks
 * it. */
int group_outcome(struct crunrt_group *g, const struct group_call *call, int rc,
                  struct cr_error *err);

/* ---- group_check.c ---- */

/* With checks on: 0 once all ranks are about to make the same call, -EPROTO with one sentence that
 * names both calls, or the store's failure. */
int group_check_call(struct crunrt_group *g, const struct group_call *call, struct cr_error *err);

/* ---- group_store.c: the group's keys ---- */

/* No request of the group to the store waits longer than timeout_ms, or 5 seconds: the server answers
 * at once or hangs. */
void group_limit_store(struct crunrt_group *g, int64_t timeout_ms);

struct backend_store group_backend_store(struct crunrt_group *g);

/* Waits until all ranks of the group have called this for `phase`, each name once a group.
 * 0, or -ETIMEDOUT with a text that names the absent ranks, or the store's failure. */
int group_arrive(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                 struct cr_error *err);

/* Waits for one key, and looks now and then whether another rank has given up on the group. */
int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err);

/* 0, or -ECONNRESET with its words if another rank has reported that the group failed. */
int group_failed(struct crunrt_group *g, struct cr_error *err);

#define GROUP_NAMED_MAX 16 /* ranks that a text lists; of more it gives the number */

/* Writes the ranks without a key <phase>/<rank>, "1, 4", and returns how many they are. */
int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size);

/* ---- group_split.c ---- */

/* Connects the group by splitting the one of all ranks, if all of them can.
 * 1: done (a rank that is no member has nothing now); 0: make it afresh; or a negative errno. */
int group_split(struct crunrt_group *g, const struct backend_group *b, struct cr_error *err);

/* A group was made: later ones may be split from it. / It goes away. */
void group_split_offer(struct crunrt_group *g);
void group_split_withdraw(struct crunrt_group *g);

/* ---- group_failure.c ---- */

/* Tells the others why this rank gave up; the first one's words stay. `first` gets them, or "" if
 * they are ours. */
void group_tell_failure(struct crunrt_group *g, const char *words, char *first, size_t first_size);

/* The group cannot go on: breaks it off, tells the others through the store, finds out who gives no
 * sign, and who was in another call, and completes the text in *err, which begins with the cause.
 *
 *   what    "all_reduce #17", for messages
 *   doing   the same in full, to be compared with the other ranks' words
 *
 * Returns err->code. */
int group_break(struct crunrt_group *g, const char *what, const char *doing, struct cr_error *err);

#endif
