/* The table of functions through which a process group uses its backend. A backend is a module
 * lib/crunrt/<name>.so that exports one struct crunrt_backend with the name `crunrt_backend`. The
 * library loads the module when the first group needs it, and never unloads it.
 *
 * A backend connects the ranks of a group, runs operations within a timeout, and aborts a group.
 * The code in worker_runtime/group does everything else: it checks arguments, numbers the calls,
 * fills in default timeouts, finds out which ranks are missing, and records which groups are
 * broken. */
#ifndef CRUNRT_BACKEND_H
#define CRUNRT_BACKEND_H

#include <crunrt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "base/error.h"

#include <stdbool.h>

#define CRUNRT_BACKEND_ABI 8

/* The functions with which a backend uses the group's keys in the store. Each function that returns
 * an int returns 0. On error it returns a negative errno and sets err. */
struct backend_store {
    void *arg;
    int (*set)(void *arg, const char *key, const void *value, size_t len, struct cr_error *err);
    /* Waits at most timeout_ms until the key exists, and stores its value and the value's length in
     * bytes in *value and *len. The caller frees *value with free(). */
    int (*get)(void *arg, const char *key, int64_t timeout_ms, void **value, size_t *len,
               struct cr_error *err);
    int (*wait)(void *arg, const char *const *keys, size_t key_count, int64_t timeout_ms,
                struct cr_error *err);
    int (*add)(void *arg, const char *key, int64_t delta, int64_t *total, struct cr_error *err);
    int (*remove)(void *arg, const char *key, struct cr_error *err);
    /* Checks whether another rank has reported in the store that the group failed. Returns 0 if no
     * rank has reported one. Otherwise returns a negative errno, usually -ECONNRESET, and sets err
     * to the reported failure. */
    int (*failed)(void *arg, struct cr_error *err);
    /* Does what failed() does, with two differences: any thread may call peek(); and if another
     * thread is using the store, peek() does not wait for that thread, but returns 0 at once. */
    int (*peek)(void *arg, struct cr_error *err);
    /* Writes to the store that this rank has failed, with `text` as the reason, so that the other
     * ranks fail soon. Any thread may call this. If another thread is using the store, this
     * function does nothing. */
    void (*report)(void *arg, const char *text);
    /* Returns true if the agent has ended the round. After the end of the round failed() returns a
     * failure. is_over() only reads memory, so a loop that waits can afford to call it each time.
     * Any thread may call this. */
    bool (*is_over)(void *arg);
};

struct backend_group {
    const char *name; /* name of the group in messages */
    /* This rank's number in the group, and the number of ranks. In a call of split() on a rank that
     * is not in the new group, `rank` is -1. */
    int rank, size;
    int64_t timeout_ms; /* time limit in ms of each phase of open(), and of split() */
    /* number of the GPU to use; -1 if the program gave none and the local rank is not known */
    int device;
    void *stream;
    bool is_foreign;          /* true if other ranks may run torch.distributed instead of crunrt */
    const char *bind_address; /* numeric address of this host at which other ranks reach it */
    struct backend_store store;
    /* A descriptor that becomes readable when the agent has sent something; -1 if there is no
     * agent. When the descriptor is readable, call is_over(store.arg), which returns true if the
     * agent has ended the round. A group never works again after the end of its round, so waits for
     * other ranks can end at once. Any thread may call is_over(). */
    int agent_fd;
    bool (*is_over)(void *arg);
    bool is_whole;   /* true if all ranks of the job are in the group */
    const crunrt_nccl_config *nccl; /* options of NCCL; NULL if the program gave none */
    bool can_rejoin; /* true if this process may make groups of a later round, see
                      * crunrt_can_rejoin() */
};

struct backend_call {
    const crunrt_op *op; /* the operation; its arguments are checked and its timeout is set */
    /* number of this call in the group; for a collective, all ranks have the same number */
    uint32_t seq;
    uint32_t signature;  /* hash of kind, type, count, …; ranks that make the same call have the
                          * same hash */
    size_t element_size; /* bytes of one element */
};

struct crunrt_backend {
    uint32_t abi; /* version of this struct, CRUNRT_BACKEND_ABI */
    const char *name;

    /* Checks what the backend needs on this machine, for example a GPU. Returns 0; or a negative
     * errno, and sets err, if open() could not succeed whatever the other ranks do. The group calls
     * this before it waits for the other ranks, so that a rank without a GPU fails at once. NULL if
     * the backend has nothing to check. */
    int (*probe)(const struct backend_group *group, struct cr_error *err);

    /* Connects all ranks of the group, and stores the backend's data of the group in *state.
     * `group` is valid only until open() returns. */
    int (*open)(const struct backend_group *group, void **state, struct cr_error *err);

    /* Runs one operation and returns when it is done: 0, or a negative errno. -EINVAL and -ENOTSUP
     * mean that the backend has refused the operation and the group is usable. After any other
     * failure the group calls abort(). */
    int (*run)(void *state, const struct backend_call *call, struct cr_error *err);

    /* Runs calls[count], all of them sends and receives, at the same time. Returns when all are
     * done, with the same values as run(). */
    int (*batch)(void *state, const struct backend_call *calls, size_t count, struct cr_error *err);

    /* Starts an operation, stores its handle in *work, and does not wait for its end. The backend
     * copies *call and the operation; the operation's buffers must stay valid until the work is
     * over. Returns 0; or a failure, as run() does. */
    int (*start)(void *state, const struct backend_call *call, void **work, struct cr_error *err);

    /* Waits until the work is over, at most timeout_ms; if timeout_ms is 0, it does not wait.
     * Returns -EINPROGRESS if the work is not over. Otherwise returns the work's result, 0 or a
     * negative errno, in this call and in every later one. */
    int (*wait)(void *work, int64_t timeout_ms, struct cr_error *err);

    /* Frees a work. Call this only when the work is over or its group has been aborted. */
    void (*release)(void *work);

    /* Ends the group after a failure: closes its connections if the backend's library can do this,
     * so that other ranks notice the failure and calls that still run return soon. The group starts
     * no operation after this. */
    void (*abort)(void *state);

    void (*close)(void *state);

    /* Returns the handle that crunrt_nccl_comm() returns. NULL in a backend that has no such
     * handle. */
    void *(*native)(void *state);

    /* can_split() and split() are NULL in a backend that cannot split. can_split() returns not 0 if
     * this rank can take part in a split of `parent`; it never waits. split() makes a group from
     * ranks of `parent`. All ranks of `parent` call it at the same time, while `parent` has no
     * unfinished operation. On a rank that is not in the new group (group->rank is -1) it sets
     * *state to NULL. If split() fails, the group code aborts `parent`. */
    int (*can_split)(void *parent, const struct backend_group *group);
    int (*split)(void *parent, const struct backend_group *group, void **state,
                 struct cr_error *err);

    /* Time in ms between two checks of the store for failures of other ranks. 0 if the backend
     * makes no such checks, because the other ranks notice an abort() by themselves. If this is not
     * 0, the group reports a failure in the store before it calls abort(), because abort() may take
     * long; and it waits at least this time for the reports of the other ranks. */
    int64_t looks_every_ms;

    /* Starts calls[count], all of them sends and receives, as one work. NULL in a backend without
     * this function; the group then starts each call with start(). */
    int (*start_batch)(void *state, const struct backend_call *calls, size_t count, void **work,
                       struct cr_error *err);

    /* Makes later operations on the stream wait for the work, and returns at once. NULL in a
     * backend that has no streams; the group then waits for the work itself. */
    int (*wait_stream)(void *work, void *stream, struct cr_error *err);

    /* Returns 0 if this process can make new groups on this backend. Otherwise returns
     * -ENOTRECOVERABLE and sets err: only a new process can go on with the job. NULL in a backend
     * whose groups can always be made again. */
    int (*recoverable)(struct cr_error *err);

    /* Allocate and free memory that suits the backend. NULL in a backend on host memory. */
    int (*memory_new)(void *state, size_t size, void **out, struct cr_error *err);
    void (*memory_free)(void *state, void *memory);

    /* Registers memory with the group and stores a handle in *out. Returns 0; -ENOTSUP, and the
     * group is usable; or any other negative errno, after which the group calls abort(). NULL in a
     * backend that registers no memory. */
    int (*register_memory)(void *state, void *buffer, size_t size, crunrt_register_kind kind,
                           void **out, struct cr_error *err);
    void (*deregister_memory)(void *state, crunrt_register_kind kind, void *handle);
};

#define CRUNRT_BACKEND_SYMBOL "crunrt_backend"

#ifdef __cplusplus
}
#endif

#endif
