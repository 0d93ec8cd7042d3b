/* The table between process groups and their backends. A backend is a module lib/crunrt/<name>.so
 * that exports one struct crunrt_backend with the name `crunrt_backend`. It is loaded when the
 * first group needs it, and stays loaded.
 *
 * A backend only connects ranks, runs a described operation within a timeout, and aborts. The group
 * does everything else: it checks arguments, numbers the calls, fills in default timeouts, finds
 * out which ranks are missing, and keeps track of whether it is broken. */
#ifndef CRUNRT_BACKEND_H
#define CRUNRT_BACKEND_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#include <stdbool.h>

#define CRUNRT_BACKEND_ABI 5

/* The group's keys in the store, for the backend. All functions return 0 or a negative errno with a
 * text. */
struct backend_store {
    void *arg;
    int (*set)(void *arg, const char *key, const void *value, size_t len, struct cr_error *err);
    /* Waits for the key. The caller frees *value with free(). */
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
    int rank, size;     /* rank -1: this rank is not in the group; only in split() */
    int64_t timeout_ms; /* of each phase of open() */
    int device;         /* -1: none was given, and the local rank is not known */
    void *stream;
    bool is_foreign;          /* other ranks may be torch.distributed's */
    const char *bind_address; /* numeric address of this host at which the others reach it */
    struct backend_store store;
};

struct backend_call {
    const crunrt_op *op; /* checked, its timeout filled in */
    uint32_t seq;        /* number of this call in the group; same on all ranks for a collective */
    uint32_t signature;  /* the same on ranks that make the same call (kind, type, count …) */
    size_t element_size; /* bytes */
};

struct crunrt_backend {
    uint32_t abi; /* CRUNRT_BACKEND_ABI */
    const char *name;

    /* Fails if open() could not succeed on this machine whatever the peers do (no GPU, no library),
     * so that no rank waits first. May be NULL. */
    int (*probe)(const struct backend_group *group, struct cr_error *err);

    /* Connects all ranks of the group. `group` is borrowed until this returns. */
    int (*open)(const struct backend_group *group, void **state, struct cr_error *err);

    /* Runs one operation to its end. After any failure but -EINVAL and -ENOTSUP the group calls
     * abort(). */
    int (*run)(void *state, const struct backend_call *call, struct cr_error *err);

    /* Runs sends and receives at the same time, to their end. */
    int (*batch)(void *state, const struct backend_call *calls, size_t count, struct cr_error *err);

    /* Starts an operation. What `call` points to is copied; the buffers are borrowed until the work
     * is over. Returns what run() returns. */
    int (*start)(void *state, const struct backend_call *call, void **work, struct cr_error *err);

    /* Waits until the work is over, at most for timeout_ms (0: does not wait). -EINPROGRESS: it is
     * not over; else its outcome, on every further call too. */
    int (*wait)(void *work, int64_t timeout_ms, struct cr_error *err);

    /* Frees a work that is over, or whose group was aborted. */
    void (*release)(void *work);

    /* Ends the connections: peers must notice, and no call may block for long. Afterwards the group
     * calls only close(). */
    void (*abort)(void *state);

    void (*close)(void *state);

    /* Returns what crunrt_nccl_comm() returns. May be NULL. */
    void *(*native)(void *state);

    /* Both NULL: this backend cannot split. can_split returns at once whether this rank could take
     * part in a split of `parent`. split is called on all ranks of `parent` at the same time, while
     * it has no operation under way; a rank that is not in the group (group->rank -1) gets *state =
     * NULL. After a failure the group aborts the parent. */
    int (*can_split)(void *parent, const struct backend_group *group);
    int (*split)(void *parent, const struct backend_group *group, void **state,
                 struct cr_error *err);

    /* 0: the peers of a rank that aborts notice by their connections. Else they notice only when
     * they look into the store, this often: a failure is then reported before abort() is called,
     * and living ranks have at least this long to answer. */
    int64_t looks_every_ms;
};

#define CRUNRT_BACKEND_SYMBOL "crunrt_backend"

#ifdef __cplusplus
}
#endif

#endif
