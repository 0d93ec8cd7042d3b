/* What a communication backend is to the runtime: a module lib/crunrt/<name>.so that exports one
 * table of functions, `crunrt_backend`. A module is loaded when the first group asks for it and
 * stays.
 *
 * Everything above bytes on the wire is the process group's: numbering, arguments, deadlines'
 * defaults, who is missing, what is broken. A backend connects, runs one described operation within
 * a timeout, and breaks off. */
#ifndef CRUNRT_BACKEND_H
#define CRUNRT_BACKEND_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#define CRUNRT_BACKEND_ABI 3

/* The group's corner of the store; keys are relative to it. 0 or a negative errno with a text. */
struct backend_store {
    void *arg;
    int (*set)(void *arg, const char *key, const void *value, size_t len, struct cr_error *err);
    /* Waits for the key. *value is malloc'ed. */
    int (*get)(void *arg, const char *key, int64_t timeout_ms, void **value, size_t *len,
               struct cr_error *err);
    int (*wait)(void *arg, const char *const *keys, size_t key_count, int64_t timeout_ms,
                struct cr_error *err);
    int (*add)(void *arg, const char *key, int64_t delta, int64_t *total, struct cr_error *err);
    int (*remove)(void *arg, const char *key, struct cr_error *err);
    /* 0, or -ECONNRESET with a text if another rank has reported that the group failed. */
    int (*failed)(void *arg, struct cr_error *err);
};

struct backend_group {
    const char *name;   /* for messages */
    int rank, size;     /* rank -1: no member, in split() alone */
    int64_t timeout_ms; /* of each phase of open() */
    int device;         /* -1: none given and no local rank known */
    void *stream;
    int foreign;              /* the peers may be torch.distributed's */
    const char *bind_address; /* numeric address of this host by which the others reach it */
    struct backend_store store;
};

/* `seq` is the group's number of this collective, the same on all ranks; op has been checked and
 * its timeout filled in. */
struct backend_call {
    const crunrt_op *op;
    uint32_t seq;
    uint32_t signature;  /* the same where the ranks make the same call: kind, type, count … */
    size_t element_size; /* bytes */
};

struct crunrt_backend {
    uint32_t abi; /* CRUNRT_BACKEND_ABI */
    const char *name;

    /* What would make open() fail on this machine whatever the peers do (no GPU, no library), so
     * that it is said before anybody waits. May be NULL. */
    int (*probe)(const struct backend_group *group, struct cr_error *err);

    /* Connects all ranks of the group. `group` is borrowed during the call. */
    int (*open)(const struct backend_group *group, void **state, struct cr_error *err);

    /* Runs one operation to its end. After anything but 0, -EINVAL and -ENOTSUP, abort()
     * follows. */
    int (*run)(void *state, const struct backend_call *call, struct cr_error *err);

    /* Sends and receives at the same time, to their end. */
    int (*batch)(void *state, const struct backend_call *calls, size_t count, struct cr_error *err);

    /* Begins an operation. What `call` points to is copied, the buffers are borrowed until the work
     * is over. Outcomes are as run()'s. */
    int (*start)(void *state, const struct backend_call *call, void **work, struct cr_error *err);

    /* Waits until the work is over, for at most timeout_ms (0 = look once).
     * -EINPROGRESS: it is not; else its outcome, again and again. */
    int (*wait)(void *work, int64_t timeout_ms, struct cr_error *err);

    /* After the work is over, or after abort(). */
    void (*release)(void *work);

    /* Breaks off: peers must notice, nothing may block for long. Only close() follows. */
    void (*abort)(void *state);

    void (*close)(void *state);

    /* What crunrt_nccl_comm() gives out; may be NULL. */
    void *(*native)(void *state);

    /* Both NULL: this backend makes every group afresh. can_split: whether this rank could take
     * part in a split of `parent`; local, at once. split: called by all ranks of the idle
     * `parent` at once; those with group->rank -1 are no members and get *state = NULL. After a
     * failure the parent is of no more use, and broken off. */
    int (*can_split)(void *parent, const struct backend_group *group);
    int (*split)(void *parent, const struct backend_group *group, void **state,
                 struct cr_error *err);
};

#define CRUNRT_BACKEND_SYMBOL "crunrt_backend"

#ifdef __cplusplus
}
#endif

#endif
