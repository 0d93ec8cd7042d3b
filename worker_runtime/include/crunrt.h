/* crunrt.h: the worker runtime of crun, for programs in C and C++.
 *
 *     crunrt *rt;
 *     crunrt_group *world;
 *     if (crunrt_init(NULL, &rt) < 0 || crunrt_group_new(rt, NULL, &world) < 0) {
 *         fprintf(stderr, "%s\n", crunrt_last_error());
 *         crunrt_report_error(NULL, NULL);
 *         return 1;
 *     }
 *     crunrt_group_all_reduce(world, gradients, gradients, count, CRUNRT_FLOAT32, CRUNRT_SUM);
 *
 * Errors. A function that can fail returns an int: 0, or a negative errno (-ETIMEDOUT, -ECONNRESET
 * …, see <errno.h>). crunrt_last_error() then gives the text. Results are written only on success.
 * The library prints nothing, never ends the process and raises no signal. An argument that must
 * not be NULL and is gives -EINVAL; functions that return a number or a pointer give -1 or NULL
 * instead. Arguments that may be NULL are marked below.
 *
 * Threads. Different threads may use different objects at the same time. Threads may share a
 * crunrt_store: calls on it take turns, so a call that waits holds up the others. A crunrt_group
 * takes one call at a time, because its collectives must come in the same order on every rank.
 *
 * Fork. A child that was forked after crunrt_init() must not call this library.
 *
 * Timeouts are in milliseconds on the monotonic clock: a positive number; 0 (look once, do not
 * wait); CRUNRT_TIMEOUT_DEFAULT; or CRUNRT_FOREVER.
 *
 * Structs of options begin with their size, so that a later version can add fields without breaking
 * compiled programs. Initialise them with their ..._INIT macro.
 *
 * The header is plain C11 and also compiles as C++. The library needs only libc. */
#ifndef CRUNRT_H
#define CRUNRT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CRUNRT_API __attribute__((visibility("default")))
#else
#define CRUNRT_API
#endif

#define CRUNRT_VERSION_MAJOR 0
#define CRUNRT_VERSION_MINOR 1
#define CRUNRT_VERSION_PATCH 0

#define CRUNRT_FOREVER         INT64_MAX      /* no limit */
#define CRUNRT_TIMEOUT_DEFAULT ((int64_t) -1) /* the timeout with which the object was made */

/* The version of the loaded library, for example "0.1.0"; the macros above are the version of the
 * header. Static storage. */
CRUNRT_API const char *crunrt_version(void);

/* The text of the last failure on this thread: one line without a newline, or "" if there was none.
 * It names what was tried, on what, the reason, and what can be done. Valid until the next call of
 * this library on this thread. */
CRUNRT_API const char *crunrt_last_error(void);

/* ---- this process's place in the job ---- */

typedef struct crunrt crunrt;
typedef struct crunrt_store crunrt_store;

typedef struct crunrt_init_options {
    size_t size; /* sizeof(crunrt_init_options) */

    /* NULL or "env://": rank, world size and the store's address come from the environment, see
     * crunrt_init().
     * "tcp://HOST:PORT": the store is there, and rank 0 hosts it. Rank and world size come from the
     * query ("?rank=R&world_size=N"), from the two fields below, or from the environment.
     * "file:///PATH": the store is a file that all ranks can open, in the format of torch's
     * FileStore. A file that an earlier run has left there must be deleted first. */
    const char *method;

    int rank;           /* -1: from the environment */
    int world_size;     /* -1: from the environment */
    int64_t timeout_ms; /* of connecting, and of the store's calls by default; 0: 300,000 ms */
} crunrt_init_options;

#define CRUNRT_INIT_OPTIONS_INIT                                                                   \
    { sizeof(crunrt_init_options), NULL, -1, -1, 0 }

/* Finds out this process's rank and the job's store, and connects to the store.
 *
 *   options   borrowed; NULL: all defaults
 *   out       the new runtime; the caller destroys it with crunrt_destroy()
 *
 * env:// takes the first of these sets of variables of which rank and size are both set:
 *   RANK WORLD_SIZE (LOCAL_RANK LOCAL_WORLD_SIZE)                              crun, torchrun
 *   OMPI_COMM_WORLD_RANK _SIZE (_LOCAL_RANK _LOCAL_SIZE)                       Open MPI
 *   PMI_RANK PMI_SIZE (MPI_LOCALRANKID MPI_LOCALNRANKS)                        MPICH, Intel MPI
 *   SLURM_PROCID SLURM_NTASKS (SLURM_LOCALID)                                  Slurm
 * The store is at MASTER_ADDR:MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE is exactly "True", the
 * launcher's agent hosts it. Otherwise rank 0 hosts it, with the module lib/crunrt/store_host.so,
 * which needs libuv.
 *
 * A process may make several runtimes, one after the other or at the same time. All ranks then make
 * them in the same order. Only the first has a channel to crun's agent.
 *
 * Returns 0, or
 *   -EINVAL      a variable or option is missing or wrong; the text says which were looked for and
 *                what was found
 *   -ETIMEDOUT   the store did not answer in time, or the name of its host could not be resolved
 *   -ENOENT      rank 0 has to host the store and its module cannot be loaded; or, with file://,
 *                the file's folder does not exist
 *   -ENOTSUP     the method is unknown
 *   -EADDRINUSE  rank 0 has to host the store and the port is in use
 *   -EACCES      rank 0 has to host the store and may not use the port
 *   -EBADMSG     with file://: the file is not a store, or is cut off
 *   -EPROTO      the server at the address is not a store
 *   -ECONNRESET  the connection was lost
 *   -ENOMEM
 *   other errors of the file system, with file://
 * Source: torch.distributed's env:// rendezvous. */
CRUNRT_API int crunrt_init(const crunrt_init_options *options, crunrt **out);

/* Closes the store's connection and frees the runtime. Groups must be destroyed before. The store
 * from crunrt_job_store() ends with it. A rank 0 that hosts the store first waits for the other
 * ranks to call this, for at most 5 seconds. NULL does nothing. */
CRUNRT_API void crunrt_destroy(crunrt *rt);

/* Each returns -1 for NULL. */
CRUNRT_API int crunrt_rank(const crunrt *rt);             /* 0 … world size - 1 */
CRUNRT_API int crunrt_world_size(const crunrt *rt);       /* processes in the job, at least 1 */
CRUNRT_API int crunrt_local_rank(const crunrt *rt);       /* on this node; -1: not known */
CRUNRT_API int crunrt_local_world_size(const crunrt *rt); /* on this node; -1: not known */
CRUNRT_API int crunrt_restart_count(const crunrt *rt);    /* restarts of the job so far */

typedef struct crunrt_rejoin_options {
    size_t size;        /* sizeof(crunrt_rejoin_options) */
    int64_t timeout_ms; /* for the next round to begin; 0: no limit as long as the agent lives */
} crunrt_rejoin_options;

#define CRUNRT_REJOIN_OPTIONS_INIT                                                                 \
    { sizeof(crunrt_rejoin_options), 0 }

/* Goes on in this process in the next round, after a group broke or a change was announced. Only
 * for workers that crun started. Destroy all groups before. The call waits until the agent begins
 * the next round. Then rank, world size, local rank, restart count and the job's store are those of
 * the new round, keys of the old round's store are gone, and new groups can be made. All ranks of
 * the round, rejoined or newly started, make their groups in the same order.
 *
 *   options   borrowed; NULL: no limit
 *
 * After a failure of another worker, crun keeps this process alive for the call only if
 * crunrt_can_rejoin() was called before. After an announced change it keeps every worker that makes
 * this call. A call with neither ends the round on all ranks, and costs a restart.
 *
 * Returns 0, or
 *   -ETIMEDOUT   the next round has not begun in time; the call may be repeated
 *   -ENOTCONN    this process has no agent, or the agent is gone; end the process
 *   -EPROTO      the agent sent a place that contradicts itself
 *   -EINVAL, -ECONNRESET, -ENOMEM */
CRUNRT_API int crunrt_rejoin(crunrt *rt, const crunrt_rejoin_options *options);

/* ---- steps, and changes with notice ----
 *
 *     crunrt_change change = CRUNRT_CHANGE_INIT;
 *     while (step < last) {
 *         train(step++);
 *         if (crunrt_step(rt, &change) == CRUNRT_CHANGE) {
 *             save();
 *             return 0;            // or destroy the groups, call crunrt_rejoin(), and go on
 *         }
 *     }
 *
 * crun announces it to the workers when a node joins the job or is about to leave: all ranks then
 * stop after the same number of steps. In a process without an agent (started by another launcher)
 * these functions do nothing and return 0. */

#define CRUNRT_CHANGE 1

typedef enum crunrt_change_kind {
    CRUNRT_CHANGE_JOIN = 1,       /* nodes join the job */
    CRUNRT_CHANGE_LEAVE = 2,      /* a node leaves */
    CRUNRT_CHANGE_PREEMPTION = 3, /* a node is taken away */
    CRUNRT_CHANGE_MAINTENANCE = 4 /* a node is to be repaired */
} crunrt_change_kind;

typedef struct crunrt_change {
    size_t size; /* sizeof(crunrt_change) */
    crunrt_change_kind kind;
    int64_t left_ms;  /* until crun stops this process in any case */
    uint64_t step;    /* steps made in this round; the same on every rank that counts steps */
    char reason[256]; /* one line */
} crunrt_change;

#define CRUNRT_CHANGE_INIT                                                                         \
    { sizeof(crunrt_change), CRUNRT_CHANGE_JOIN, 0, 0, "" }

/* Counts one step. Every rank calls this after each of its steps, always from the same thread, and
 * equally often between two collectives. The call costs some ten nanoseconds. When a change is
 * announced it waits until the ranks have agreed after which step they stop (a few milliseconds),
 * and then lets this rank go on to that step.
 *
 *   change   filled in when CRUNRT_CHANGE is returned; may be NULL
 *
 * Returns 0 (go on), CRUNRT_CHANGE, or
 *   -ECONNRESET   the round has ended because a worker failed; call crunrt_rejoin(), or end
 *   -EINVAL       rt is NULL
 * CRUNRT_CHANGE means: stop here and save; then call crunrt_rejoin() or crunrt_change_done(), or
 * end with status 0. Further calls return CRUNRT_CHANGE again. */
CRUNRT_API int crunrt_step(crunrt *rt, crunrt_change *change);

typedef enum crunrt_answer {
    CRUNRT_AFTER_STEP = 0, /* stop this worker after a step; the default from its first step on */
    CRUNRT_NOW = 1,        /* stop this worker at any time; it has nothing to save */
    CRUNRT_NEEDS = 2       /* stop this worker after a step and needs_ms more */
} crunrt_answer;

/* Sets how this worker is to be stopped for changes from now on.
 *
 *   needs_ms   with CRUNRT_NEEDS: how long this worker needs after its last step. crun announces a
 *              change at least that long before, if it can choose the time: it can when nodes join,
 *              and cannot when a node is taken away.
 *
 * Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_answer_changes(crunrt *rt, crunrt_answer how, int64_t needs_ms);

/* Reports that this worker has done what the change needs, and that crun may stop it (SIGTERM). For
 * workers that neither rejoin nor end by themselves. Returns 0, -EINVAL (crunrt_step() has not
 * returned CRUNRT_CHANGE), or -ENOTCONN (the agent is gone). */
CRUNRT_API int crunrt_change_done(crunrt *rt);

/* Has the agent end this worker if it makes no step for limit_ms. The worker first writes its
 * flight record; crun counts it as failed. 0 removes the limit; crun's --step-timeout then applies,
 * if it was given. Returns 0, -EINVAL, or -ENOTCONN (the agent is gone). */
CRUNRT_API int crunrt_watch_steps(crunrt *rt, int64_t limit_ms);

/* Sets whether crun leaves this process alive when another worker fails (yes = 1). The process then
 * gets an error from an operation or from crunrt_step(), destroys its groups and calls
 * crunrt_rejoin(). crun ends it if it has not done so within the grace that stopped workers have.
 * Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_can_rejoin(crunrt *rt, int yes);

/* The job's store, connected. Borrowed: it ends with the runtime. After crunrt_rejoin() the same
 * object is connected to the new round's store. All processes of the job share its keys, with
 * torch.distributed.TCPStore in Python too. Keys that begin with "crunrt/" belong to this library.
 * NULL for NULL. */
CRUNRT_API crunrt_store *crunrt_job_store(crunrt *rt);

/* ---- the store: small values that all processes of a job share ----
 *
 * A key is NUL-terminated text of at most 8,000 bytes, prefixes included. A value is a pointer and
 * a length of at most 64 MiB. After -ECONNRESET, -EPIPE or -EPROTO a store is broken: every later
 * call returns the same error. A timeout also breaks it, with one exception: a call that waits for
 * keys or elements may time out and leave the store usable, if the server answers within 5 seconds
 * more.
 *
 * Besides what is listed at each call, all of them return
 *   -ECONNRESET, -EPIPE   the connection is lost
 *   -ETIMEDOUT            the server does not answer
 *   -EPROTO               the server's bytes are not an answer
 *   -EMSGSIZE             the value is too long; nothing was sent
 *   -EBADMSG              with file://: the file is not a store
 *   -EFBIG                with file://: the file has grown beyond 4 GiB
 *   -ENOMEM
 *   other errors of the file system, with file://
 *
 * Source: torch's TCPStore; the protocol is in docs/protocols/store.md. */

/* Opens a connection to any server that speaks TCPStore's protocol: crun-store, torch's, an
 * agent's.
 *
 *   host, port    the server's address; a refused connection is tried again until the time is up
 *   timeout_ms    of connecting, and of every call by default; torch's default is 300,000
 *   out           the new store; the caller closes it with crunrt_store_close()
 *
 * Returns 0, -EINVAL, -ETIMEDOUT (the text has the last reason: refused, host unknown …), -EPROTO,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_open(const char *host, int port, int64_t timeout_ms,
                                 crunrt_store **out);

/* Closes a store from crunrt_store_open() or a view from crunrt_store_prefix(). NULL does nothing.
 * */
CRUNRT_API void crunrt_store_close(crunrt_store *store);

/* Makes a view of a store that puts "<prefix>/" in front of every key, as torch's PrefixStore does.
 * It borrows `store`, which must outlive it. Views may be nested. The caller closes it with
 * crunrt_store_close(). Returns 0, -EINVAL, -ENOMEM. */
CRUNRT_API int crunrt_store_prefix(crunrt_store *store, const char *prefix, crunrt_store **out);

/* Sets a key to value[len], which is copied. The server does not acknowledge: 0 means that the
 * bytes were handed to the kernel. Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_set(crunrt_store *store, const char *key, const void *value,
                                size_t len);

/* Waits until the key exists and returns a new copy of its value; the caller frees it with
 * crunrt_free(). A NUL follows the value and is not counted in *len. len may be NULL.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms,
                                void **value, size_t *len);

/* Adds delta to the decimal number that the key holds, atomically; an absent key counts as 0.
 * *total is the sum; total may be NULL. Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (also if the
 * value is not a number: the server then closes the connection). */
CRUNRT_API int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta,
                                int64_t *total);

/* Sets the key to desired[desired_len] if it holds expected[expected_len], or if it is absent and
 * expected_len is 0; atomically. *value is a new copy of what the key holds afterwards, and the
 * caller frees it with crunrt_free(). If the key is absent and `expected` is not empty, nothing is
 * set and *value is a copy of `expected`. value and len may be NULL.
 * Returns 0 (also if nothing was set), -EINVAL, -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_compare_set(crunrt_store *store, const char *key, const void *expected,
                                        size_t expected_len, const void *desired,
                                        size_t desired_len, void **value, size_t *len);

/* Waits until all of keys[key_count] exist. Returns 0, -EINVAL, -ETIMEDOUT (the text names the
 * keys), -ECONNRESET. */
CRUNRT_API int crunrt_store_wait(crunrt_store *store, const char *const *keys, size_t key_count,
                                 int64_t timeout_ms);

/* Sets *present to 1 if all of keys[key_count] exist now, else to 0. Returns 0, -EINVAL,
 * -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_check(crunrt_store *store, const char *const *keys, size_t key_count,
                                  int *present);

/* Deletes a key. *deleted is 1 if it existed, else 0; deleted may be NULL. Returns 0, -EINVAL,
 * -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_delete(crunrt_store *store, const char *key, int *deleted);

/* Sets *count to the number of keys in the whole store; a view's prefix does not limit it. Returns
 * 0, -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_num_keys(crunrt_store *store, int64_t *count);

/* Appends value[len] to the key's value, or creates the key. Not acknowledged, like
 * crunrt_store_set(). Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_append(crunrt_store *store, const char *key, const void *value,
                                   size_t len);

/* Waits until all of keys[key_count] exist, and returns new copies of their values in
 * values[key_count]. The caller frees each with crunrt_free(). A NUL follows each value.
 * lens[key_count] gets the lengths and may be NULL. One request for all keys.
 * Returns 0, -EINVAL, -ETIMEDOUT (the store stays usable, as after get), -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_get(crunrt_store *store, const char *const *keys,
                                      size_t key_count, int64_t timeout_ms, void **values,
                                      size_t *lens);

/* Sets each keys[i] to values[i][lens[i]], in order, in one request. The values are copied. Not
 * acknowledged. Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_set(crunrt_store *store, const char *const *keys,
                                      const void *const *values, const size_t *lens,
                                      size_t key_count);

/* Lists the keys of a store in no particular order. On a view it lists the keys below its prefix,
 * without the prefix. keys[count] and a NULL after them are one block of memory, which the caller
 * frees with one crunrt_free(). A key that contains a NUL is cut there.
 * Returns 0, -EINVAL, -ENOTSUP (the server is older than torch 2.10), -ETIMEDOUT, -ECONNRESET,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_list_keys(crunrt_store *store, char ***keys, size_t *count);

/* Waits until world_size callers have come to the barrier of this name. A name serves one barrier
 * only. After a timeout the store stays usable, and this caller stays counted.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_barrier(crunrt_store *store, const char *name, int world_size,
                                    int64_t timeout_ms);

/* Queues of values, first in, first out; their names are separate from keys. Each element is given
 * to one caller only. push is not acknowledged. pop waits for an element and returns it as
 * crunrt_store_get() does; with timeout_ms 0 it does not wait, and returns -ENOENT if the queue is
 * empty. len sets *count to the number of elements.
 * Return 0, -EINVAL, -ENOTSUP (the store is a file, or a server without queues: only crun's and
 * torch's libuv server from 2.8 on have them), -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_queue_push(crunrt_store *store, const char *name, const void *value,
                                       size_t len);
CRUNRT_API int crunrt_store_queue_pop(crunrt_store *store, const char *name, int64_t timeout_ms,
                                      void **value, size_t *len);
CRUNRT_API int crunrt_store_queue_len(crunrt_store *store, const char *name, int64_t *count);

/* Frees what this library returned as new. NULL does nothing. */
CRUNRT_API void crunrt_free(void *memory);

/* ---- process groups ----
 *
 * A group is a set of ranks that communicate through one backend. Its calls use the group's own
 * ranks, 0 … size - 1, in the order of the list that made the group.
 *
 * All operations but send and receive are collectives: all ranks of the group call them, in the
 * same order, with the same counts, types and roots. Send and receive are matched by peer and tag.
 * Each call returns when this rank's part is done and its buffers may be used again.
 *
 * A failure is a return value, within the group's timeout; a peer whose connection breaks is
 * reported at once. The text names the operation, the group, the operation's number and the ranks
 * that give no sign of life. The group is then broken: its connections are closed, so that the
 * other ranks fail promptly too, and every later call returns -EPIPE. Destroy it. */

typedef struct crunrt_group crunrt_group;

/* Data types; the comments give the bytes of one element. */
typedef enum crunrt_dtype {
    CRUNRT_INT8 = 0,    /* 1 */
    CRUNRT_UINT8 = 1,   /* 1 */
    CRUNRT_INT32 = 2,   /* 4 */
    CRUNRT_UINT32 = 3,  /* 4 */
    CRUNRT_INT64 = 4,   /* 8 */
    CRUNRT_UINT64 = 5,  /* 8 */
    CRUNRT_FLOAT16 = 6, /* 2, IEEE binary16 */
    CRUNRT_FLOAT32 = 7, /* 4 */
    CRUNRT_FLOAT64 = 8, /* 8 */
    CRUNRT_BFLOAT16 = 9 /* 2, the upper half of a FLOAT32 */
} crunrt_dtype;

typedef enum crunrt_reduce_op {
    CRUNRT_SUM = 0,
    CRUNRT_PRODUCT = 1,
    CRUNRT_MAX = 2,
    CRUNRT_MIN = 3,
    CRUNRT_AVG = 4,  /* sum / size; floating types (nccl: integers too, rounded towards zero) */
    CRUNRT_BAND = 5, /* bitwise; integer types; not on nccl */
    CRUNRT_BOR = 6,
    CRUNRT_BXOR = 7
} crunrt_reduce_op;

typedef enum crunrt_op_kind {
    CRUNRT_OP_ALL_REDUCE = 0,
    CRUNRT_OP_REDUCE = 1,
    CRUNRT_OP_BROADCAST = 2,
    CRUNRT_OP_ALL_GATHER = 3,
    CRUNRT_OP_GATHER = 4,
    CRUNRT_OP_SCATTER = 5,
    CRUNRT_OP_REDUCE_SCATTER = 6,
    CRUNRT_OP_ALL_TO_ALL = 7,
    CRUNRT_OP_ALL_TO_ALL_COUNTS = 8,
    CRUNRT_OP_BARRIER = 9,
    CRUNRT_OP_SEND = 10,
    CRUNRT_OP_RECV = 11
} crunrt_op_kind;

typedef struct crunrt_group_options {
    size_t size; /* sizeof(crunrt_group_options) */

    /* "gloo": buffers in host memory. "nccl": buffers in GPU memory. "mpi": buffers in host memory,
     * in a program that mpirun, mpiexec or srun started. NULL: CRUNRT_BACKEND from the environment,
     * or "gloo". If the backend cannot be used, the call fails; no other one is taken instead. */
    const char *backend;

    const char *name; /* for messages; NULL: "world" or "group <n>" */
    const int *ranks; /* ranks[rank_count] of the job, each once; NULL: all ranks */
    size_t rank_count;
    int64_t timeout_ms; /* of every operation and of each phase of creation; 0: 600,000 ms */
    int device;         /* nccl: the CUDA device; -1: the local rank */
    void *stream;       /* nccl: cudaStream_t of the operations, borrowed; NULL: a new stream */

    /* gloo: communicate with ranks of other programs, such as torch.distributed's. The group uses
     * exactly these keys of the job's store, as the other program does, and none of crunrt's. The
     * program itself does what else the others expect, such as torch's barrier key;
     * docs/worker-runtime.md has an example. NULL: all ranks use crunrt. */
    const char *foreign_prefix;
} crunrt_group_options;

#define CRUNRT_GROUP_OPTIONS_INIT                                                                  \
    { sizeof(crunrt_group_options), NULL, NULL, NULL, 0, 0, -1, NULL, NULL }

/* Makes a group. All ranks of the job make their groups in the same order. A rank that is not in
 * `ranks` calls this too, and gets 0 and *out = NULL.
 *
 *   options   borrowed; NULL: all ranks, on the default backend
 *   out       the new group; destroy it with crunrt_group_destroy() before crunrt_destroy()
 *
 * There are three phases, each with the full timeout: all ranks of the group arrive in the store;
 * they exchange addresses through the store; they connect.
 *
 * On nccl, a later group is split from the first group of all ranks (ncclCommSplit, NCCL 2.18 and
 * later), if that group is intact, has no unfinished work, and uses the same device, on every rank.
 * A rank that is not in `ranks` then waits for the others, for at most 10 s. A split that fails
 * also breaks the first group. CRUNRT_NCCL_SPLIT=0 in the environment turns splitting off.
 *
 * Returns 0, or
 *   -EINVAL      the options are wrong, or list ranks that the job does not have
 *   -ENOENT      the backend's module cannot be found or loaded; the text lists the places
 *   -ENODEV      nccl: there is no usable GPU; the text has the CUDA error code. mpi: the process
 *                was not started by MPI
 *   -ETIMEDOUT   a phase took too long; the text names the phase and the absent ranks
 *   -ECONNRESET  the store or a peer went away, or another rank gave up; the text has its words
 *   -ENOTSUP     mpi: the program uses another MPI than the module was built for
 *   -EPROTO      gloo with foreign_prefix: the others use a later Gloo. mpi: the ranks belong to
 *                two jobs
 *   -EIO         the backend failed; the text has its words
 *   -ENOMEM */
CRUNRT_API int crunrt_group_new(crunrt *rt, const crunrt_group_options *options,
                                crunrt_group **out);

/* Closes the group's connections and frees it. It does not wait for the other ranks: one that still
 * waits for this rank fails with -ECONNRESET. So call crunrt_group_barrier() before. NULL does
 * nothing. */
CRUNRT_API void crunrt_group_destroy(crunrt_group *group);

/* -1, -1 and NULL for NULL, which is what a rank that is not in the group has. */
CRUNRT_API int crunrt_group_rank(const crunrt_group *group);
CRUNRT_API int crunrt_group_size(const crunrt_group *group);
CRUNRT_API const char *crunrt_group_backend(const crunrt_group *group); /* "gloo", … */

/* Bytes of one element; 0 if the type does not exist. */
CRUNRT_API size_t crunrt_dtype_size(crunrt_dtype dtype);

/* The description of one operation. The functions below are short forms of it. */
typedef struct crunrt_op {
    size_t size; /* sizeof(crunrt_op) */
    crunrt_op_kind kind;
    crunrt_dtype dtype;
    crunrt_reduce_op reduce;
    int root;         /* of broadcast, reduce, gather, scatter; the peer of send and receive */
    uint32_t tag;     /* of send and receive */
    const void *send; /* borrowed until the operation is done */
    void *recv;
    size_t count;                            /* elements; see the functions */
    const size_t *send_counts, *recv_counts; /* [group size], elements; all-to-all with counts */
    int64_t timeout_ms;                      /* CRUNRT_TIMEOUT_DEFAULT: the group's */
    void *stream;                            /* nccl; NULL: the group's */
} crunrt_op;

#define CRUNRT_OP_INIT                                                                             \
    {                                                                                              \
        sizeof(crunrt_op), CRUNRT_OP_BARRIER, CRUNRT_UINT8, CRUNRT_SUM, 0, 0, NULL, NULL, 0, NULL, \
            NULL, CRUNRT_TIMEOUT_DEFAULT, NULL                                                     \
    }

/* Runs one operation to its end. The short forms below return what this call returns: 0, or
 *   -EINVAL      rank, type, operation or pointers are wrong; nothing was sent, the group is intact
 *   -ENOTSUP     the backend does not have this type or operation; nothing was sent, the group is
 *                intact
 *   -ETIMEDOUT   not done in time: a peer hangs or never came, or the ranks made different calls,
 *                which the text then names; the group is broken
 *   -ECONNRESET  a peer or the store went away, or another rank failed; the group is broken
 *   -EIO         the backend failed; the group is broken
 *   -EPROTO      with CRUNRT_DEBUG=1 in the environment: the ranks made different calls, and the
 *                text names both; on mpi also: a message was longer than its receive; the group is
 *                broken
 *   -EPIPE       the group was already broken; the text repeats the first failure
 *   -ENOMEM      the group is broken
 *
 * After a timeout the other ranks have one more second to show that they are alive, before it is
 * reported; 6 seconds if the store does not answer either. */
CRUNRT_API int crunrt_group_run(crunrt_group *group, const crunrt_op *op);

/* recv[count] = the reduction over all ranks of send[count]. In place if send == recv. For a given
 * group size the order of the additions, and so every bit of the result, is the same in every run
 * (on mpi the MPI decides). */
CRUNRT_API int crunrt_group_all_reduce(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype, crunrt_reduce_op reduce);

/* The same, with the result on `root` only. The other ranks' recv is not touched and may be NULL.
 * */
CRUNRT_API int crunrt_group_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, crunrt_reduce_op reduce, int root);

/* Copies buffer[count] of `root` to all ranks. */
CRUNRT_API int crunrt_group_broadcast(crunrt_group *group, void *buffer, size_t count,
                                      crunrt_dtype dtype, int root);

/* recv[size * count] = send[count] of every rank, in rank order. In place if send points to element
 * rank * count of recv. */
CRUNRT_API int crunrt_group_all_gather(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* The same, with the result on `root` only; recv may be NULL on the other ranks. */
CRUNRT_API int crunrt_group_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, int root);

/* recv[count] = this rank's part of send[size * count] of `root`; send may be NULL on the others.
 * */
CRUNRT_API int crunrt_group_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                                    crunrt_dtype dtype, int root);

/* recv[count] = this rank's part of the reduction over all ranks of send[size * count]. */
CRUNRT_API int crunrt_group_reduce_scatter(crunrt_group *group, const void *send, void *recv,
                                           size_t count, crunrt_dtype dtype,
                                           crunrt_reduce_op reduce);

/* send and recv are [size * count]. Part i of send goes to rank i; part i of recv comes from rank
 * i. Not in place. */
CRUNRT_API int crunrt_group_all_to_all(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* The same with send_counts[i] elements to rank i and recv_counts[i] elements from it. The parts
 * follow each other without gaps. Not in place. */
CRUNRT_API int crunrt_group_all_to_all_counts(crunrt_group *group, const void *send,
                                              const size_t *send_counts, void *recv,
                                              const size_t *recv_counts, crunrt_dtype dtype);

/* Returns when every rank has called it. */
CRUNRT_API int crunrt_group_barrier(crunrt_group *group);

/* A barrier through the store, on any backend, which finds out who is missing. It is slower than
 * crunrt_group_barrier(). On a timeout it fails on all ranks, and the text names the ranks that did
 * not come. A failure breaks the group.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (another rank timed out first or failed, or the store
 * went away), -EPIPE (the group was already broken), -ENOMEM. */
CRUNRT_API int crunrt_group_monitored_barrier(crunrt_group *group, int64_t timeout_ms);

/* The group's ncclComm_t; NULL if the backend is not nccl. Borrowed until the group breaks or is
 * destroyed. It is a nonblocking communicator, unless CRUNRT_NCCL_BLOCKING=1 in the environment. */
CRUNRT_API void *crunrt_nccl_comm(crunrt_group *group);

/* Sends to, or receives from, one other rank. Two messages with the same tag between the same ranks
 * keep their order. The counts of both sides must be the same. nccl ignores tags. */
CRUNRT_API int crunrt_group_send(crunrt_group *group, const void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);
CRUNRT_API int crunrt_group_recv(crunrt_group *group, void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);

/* Runs ops[count], all of them sends and receives, at the same time. Ranks that exchange data need
 * this to avoid a deadlock, because a send may wait for its receive. Returns what
 * crunrt_group_run() returns; -EINVAL also for other kinds of operations, and for more than
 * CRUNRT_WORKS_MAX. */
CRUNRT_API int crunrt_group_batch(crunrt_group *group, const crunrt_op *ops, size_t count);

/* ---- asynchronous operations: works ---- */

typedef struct crunrt_work crunrt_work;

#define CRUNRT_WORKS_MAX 256 /* unfinished works of one group; operations of one batch */

/* Starts an operation and returns at once. The buffers and arrays of counts are borrowed until it
 * is done. Collectives are ordered by their starts. gloo runs the operation in a thread of its own.
 * nccl puts it on the stream, after what is already there. mpi makes progress only while this
 * process is in a call of MPI, such as crunrt_work_test(); after a failure MPI may still write to
 * the buffers.
 *
 *   out   the new work; free it with crunrt_work_free() before crunrt_group_destroy()
 *
 * Returns 0, or -EINVAL, -ENOTSUP and -EPIPE as crunrt_group_run() does, -EAGAIN (too many
 * unfinished works), -ENOMEM. With CRUNRT_DEBUG=1 it waits until all ranks start the operation, and
 * may also return -ETIMEDOUT, -ECONNRESET, -EPROTO. */
CRUNRT_API int crunrt_group_start(crunrt_group *group, const crunrt_op *op, crunrt_work **out);

/* Start one send or one receive. */
CRUNRT_API int crunrt_group_isend(crunrt_group *group, const void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);
CRUNRT_API int crunrt_group_irecv(crunrt_group *group, void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);

/* Sets *done to 1 if the operation is over, else to 0. Does not wait. Returns 0, or the operation's
 * failure as crunrt_group_run() would (*done is then 1), or -EINVAL. */
CRUNRT_API int crunrt_work_test(crunrt_work *work, int *done);

/* Waits until the operation is over. Returns its outcome as crunrt_group_run() would; -EAGAIN if
 * timeout_ms passed before (with CRUNRT_TIMEOUT_DEFAULT the operation's own timeout ends the wait);
 * -EINVAL. */
CRUNRT_API int crunrt_work_wait(crunrt_work *work, int64_t timeout_ms);

/* Waits until the operation is over, ignores its outcome, and frees the work. NULL does nothing. */
CRUNRT_API void crunrt_work_free(crunrt_work *work);

/* ---- workers without a launcher ---- */

/* The code of one worker; its return value is the worker's exit status. */
typedef int (*crunrt_spawn_fn)(int rank, void *arg);

/* Starts nprocs (1 … 1,024) workers on this host and waits until all have ended. Each is a forked
 * copy of this process that calls fn(rank, arg), with a worker's environment, so that
 * crunrt_init(NULL, …) works in it. This process hosts their store, with the module store_host.
 * When a worker fails, the others get SIGTERM, and SIGKILL 5 seconds later. If this process dies,
 * they are killed.
 *
 * Call it before this process starts threads, uses CUDA or NCCL, or takes a lock, because fork()
 * copies none of these properly.
 *
 * Returns 0 if all workers returned 0; -ECHILD (the text names the first to fail, and how); -EINVAL
 * (also if the program ignores SIGCHLD, because the workers' exit statuses are then lost); -ENOENT
 * (the module is missing); -EAGAIN, -EMFILE, -ENOMEM. Source: torch.multiprocessing.spawn. */
CRUNRT_API int crunrt_spawn(crunrt_spawn_fn fn, int nprocs, void *arg);

/* ---- error reports ---- */

/* Writes the error file, which the launcher shows in its failure report, as torch's @record does.
 * Its path is TORCHELASTIC_ERROR_FILE. An earlier file is replaced; a reader never sees half a
 * file.
 *
 *   message   one line, "kind: what happened"; NULL: crunrt_last_error()
 *   detail    more lines (a stack, what the program was doing); NULL: none
 *
 * Bytes that are not UTF-8 are written as U+FFFD. Each text is cut at 64 KiB.
 *
 * Returns 0; -ENOENT (TORCHELASTIC_ERROR_FILE is unset or empty: the launcher wants no error file);
 * -ENOMEM; or the file system's error. Does not change crunrt_last_error() on success. */
CRUNRT_API int crunrt_report_error(const char *message, const char *detail);

/* Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT that write the error file (the
 * signal and the address) and then end the process as the signal would have. Call it once, from the
 * main thread. A handler that the program installs later replaces it. Returns 0, -ENOENT
 * (TORCHELASTIC_ERROR_FILE is unset, empty or too long), -ENOMEM. */
CRUNRT_API int crunrt_report_fatal_signals(void);

/* Writes the flight record: the last 2,000 operations of this process, as JSON.
 *
 *   path   NULL: CRUNRT_FLIGHT_FILE + rank + ".json", or else flight.json beside the error file
 *
 * The library also writes it by itself, to the place for NULL, if crunrt_init() found one of the
 * two variables: when a group breaks; when crun's agent asks for it (SIGUSR2 to crun); and on a
 * fatal signal after crunrt_report_fatal_signals(). A reader never sees half a file there. The
 * agent asks with the signal CRUNRT_DUMP_SIGNAL, by default SIGRTMIN+5; 0 means never. The library
 * handles that signal unless the program does.
 *
 * Returns 0, -ENOENT (there is no path), or the file system's error. */
CRUNRT_API int crunrt_flight_dump(const char *path);

#ifdef __cplusplus
}
#endif

#endif
