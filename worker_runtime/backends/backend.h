/* The table of functions through which a process group uses its backend. A backend is a module
 * lib/crunrt/<name>.so that exports one struct crunrt_backend with the name `crunrt_backend`. The
 * module is loaded when the first group needs it, and stays loaded.
 *
 * A backend has three tasks: connect ranks, run an operation within a timeout, and abort. The group
 * does everything else: it checks arguments, numbers the calls, fills in default timeouts, finds
 * out which ranks are missing, and records whether it is broken. */
#ifndef CRUNRT_BACKEND_H
#define CRUNRT_BACKEND_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#include <stdbool.h>

#define CRUNRT_BACKEND_ABI 6

/* Access to the group's keys in the store. Each function returns 0, or a negative errno and sets
 * err. */
struct backend_store {
    void *arg;
    int (*set)(void *arg, const char *key, const void *value, size_t len, struct cr_error *err);
    /* Waits until the key exists. The caller frees *value with free(). */
    int (*get)(void *arg, const char *key, int64_t timeout_ms, void **value, size_t *len,
               struct cr_error *err);
    int (*wait)(void *arg, const char *const *keys, size_t key_count, int64_t timeout_ms,
                struct cr_error *err);
    int (*add)(void *arg, const char *key, int64_t delta, int64_t *total, struct cr_error *err);
    int (*remove)(void *arg, const char *key, struct cr_error *err);
    /* Returns 0; or -ECONNRESET, and sets err, if another rank has reported a failure of the
     * group. */
    int (*failed)(void *arg, struct cr_error *err);
    /* As failed(), but may be called by another thread than the group's, and never waits: if the
     * store is in use by another thread, it returns 0. */
    int (*peek)(void *arg, struct cr_error *err);
    /* Reports to the other ranks that this rank has failed, and why. May be called by another
     * thread than the group's, and never waits: if the store is in use, it does nothing. */
    void (*report)(void *arg, const char *text);
};

struct backend_group {
    const char *name;   /* name of the group in messages */
    int rank, size;     /* rank -1: this rank is outside the group, which happens only in split() */
    int64_t timeout_ms; /* timeout of each phase of open(), in ms */
    /* number of the GPU; -1 if no device was given and the local rank is not known */
    int device;
    void *stream;
    bool is_foreign;          /* true if other ranks may run torch.distributed instead of crunrt */
    const char *bind_address; /* numeric address of this host at which the other ranks reach it */
    struct backend_store store;
};

struct backend_call {
    const crunrt_op *op; /* the operation; the group has checked it and filled in its timeout */
    /* number of this call in the group; for a collective, the same on all ranks */
    uint32_t seq;
    uint32_t signature;  /* hash of kind, type, count, …; equal on all ranks that make the same
                          * call */
    size_t element_size; /* bytes of one element */
};

struct crunrt_backend {
    uint32_t abi; /* version of this struct, CRUNRT_BACKEND_ABI */
    const char *name;

    /* Fails if open() could not succeed on this machine whatever the other ranks do, for example
     * because there is no GPU. The group calls it before it waits for the other ranks, so that they
     * do not wait in vain. May be NULL. */
    int (*probe)(const struct backend_group *group, struct cr_error *err);

    /* Connects all ranks of the group. `group` is valid only until open() returns. */
    int (*open)(const struct backend_group *group, void **state, struct cr_error *err);

    /* Runs one operation to its end. After any failure except -EINVAL and -ENOTSUP the group calls
     * abort(). */
    int (*run)(void *state, const struct backend_call *call, struct cr_error *err);

    /* Runs calls[count], all of them sends and receives, at the same time, and returns when all are
     * done. */
    int (*batch)(void *state, const struct backend_call *calls, size_t count, struct cr_error *err);

    /* Starts an operation. The backend copies what `call` points to; the buffers must stay valid
     * until the work is over. Returns what run() returns. */
    int (*start)(void *state, const struct backend_call *call, void **work, struct cr_error *err);

    /* Waits until the work is over, at most timeout_ms (0: does not wait). Returns -EINPROGRESS if
     * the work is not over. Otherwise returns the work's result, also if it is called again. */
    int (*wait)(void *work, int64_t timeout_ms, struct cr_error *err);

    /* Frees a work that is over or whose group has been aborted. */
    void (*release)(void *work);

    /* Ends the connections, so that the peers notice the failure and no running call blocks for
     * long. The group starts no operation after this. */
    void (*abort)(void *state);

    void (*close)(void *state);

    /* Returns the handle that crunrt_nccl_comm() returns. May be NULL. */
    void *(*native)(void *state);

    /* If both are NULL, the backend cannot split. can_split() returns at once whether this rank
     * could take part in a split of `parent`. split() is called on all ranks of `parent` at the
     * same time, while `parent` has no unfinished operation. On a rank outside the new group
     * (group->rank is -1) it sets *state to NULL. If split() fails, the group aborts the parent. */
    int (*can_split)(void *parent, const struct backend_group *group);
    int (*split)(void *parent, const struct backend_group *group, void **state,
                 struct cr_error *err);

    /* 0 if a rank's connections show its peers that it has aborted. Otherwise, the interval in ms
     * at which this backend checks the store for failures of other ranks, because its connections
     * show none. The group then reports a failure in the store before it calls abort(), and gives
     * the other ranks at least this long to answer. */
    int64_t looks_every_ms;

    /* Starts calls[count], all of them sends and receives, as one work. If this is NULL, the group
     * starts each of them with start(). */
    int (*start_batch)(void *state, const struct backend_call *calls, size_t count, void **work,
                       struct cr_error *err);

    /* Makes the stream wait for the work, and returns at once. If this is NULL, the backend has no
     * streams, and the group waits for the work itself. */
    int (*wait_stream)(void *work, void *stream, struct cr_error *err);

    /* Returns 0; or -ENOTRECOVERABLE, and sets err, if this process can make no group on this
     * backend any more, so that a new process must replace it. May be NULL. */
    int (*recoverable)(struct cr_error *err);
};

#define CRUNRT_BACKEND_SYMBOL "crunrt_backend"

#ifdef __cplusplus
}
#endif

#endif
