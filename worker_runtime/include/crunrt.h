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
 * Errors. What can fail returns an int: 0, or a negative errno (-ETIMEDOUT, -ECONNRESET …, see
 * <errno.h>). crunrt_last_error() gives the text of the last failure on the calling thread. Outputs
 * are written only on success. Nothing is printed, nothing exits, no signal is raised. NULL where an
 * object or the place of a result is needed is -EINVAL, and -1 or NULL from the functions that give
 * a number or a pointer; what may be NULL says so.
 *
 * Threads. Different objects may be used by different threads at the same time. One crunrt_store is
 * safe to share (calls on it take turns, so a long wait holds the others up). One crunrt_group
 * takes one call at a time: the collectives of a group must come in the same order on every rank
 * anyway.
 *
 * Fork. Do not call this library in a child forked after crunrt_init().
 *
 * Timeouts are milliseconds on the monotonic clock: CRUNRT_TIMEOUT_DEFAULT, 0 (look once),
 * a positive number, or CRUNRT_FOREVER.
 *
 * Structs of options begin with their size, so that they can grow without breaking a compiled
 * program: start from their ..._INIT macro.
 *
 * Plain C11, C++ clean; needs no other library than libc. */
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
#define CRUNRT_TIMEOUT_DEFAULT ((int64_t) -1) /* what the object was opened with */

/* "0.1.0": the version of the library that is loaded, to compare with the macros above.
 * Static storage. */
CRUNRT_API const char *crunrt_version(void);

/* The text of the last failure on this thread, one line without a newline; "" if none. It names
 * what was tried, on what, why it failed and what can be done. Valid until the next call of this
 * library on this thread. */
CRUNRT_API const char *crunrt_last_error(void);

/* ---- this process's place in the job ---- */

typedef struct crunrt crunrt;
typedef struct crunrt_store crunrt_store;

typedef struct crunrt_init_options {
    size_t size; /* sizeof(crunrt_init_options) */

    /* NULL or "env://": rank, world size and address from the environment, see crunrt_init();
     * "tcp://HOST:PORT": that store, hosted by rank 0, with rank and world size from "?rank=R",
     * "&world_size=N", the fields below, or the environment;
     * "file:///PATH": a store in a file that all ranks share, torch's file store among them. The
     * file must not be left over from an earlier run. */
    const char *method;

    int rank;           /* -1: from the environment */
    int world_size;     /* -1: from the environment */
    int64_t timeout_ms; /* of connecting, and the default of the store; 0: 300,000 ms */
} crunrt_init_options;

#define CRUNRT_INIT_OPTIONS_INIT                                                                   \
    { sizeof(crunrt_init_options), NULL, -1, -1, 0 }

/* Finds this process's rank and the job's store, and connects to it.
 *
 *   options   borrowed; NULL = all defaults
 *   out       the new runtime, to be given to crunrt_destroy()
 *
 * env:// takes, in this order of precedence, the first complete set of
 *   RANK WORLD_SIZE (LOCAL_RANK LOCAL_WORLD_SIZE)                              crun, torchrun
 *   OMPI_COMM_WORLD_RANK _SIZE (_LOCAL_RANK _LOCAL_SIZE)                       Open MPI
 *   PMI_RANK PMI_SIZE (MPI_LOCALRANKID MPI_LOCALNRANKS)                        MPICH, Intel MPI
 *   SLURM_PROCID SLURM_NTASKS (SLURM_LOCALID)                                  Slurm
 * and the store at MASTER_ADDR:MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE is exactly "True" the
 * launcher's agent hosts the store and every rank is a client; otherwise rank 0 hosts it, through
 * the module lib/crunrt/store_host.so, which needs libuv.
 *
 * A second runtime in one process, also one after crunrt_destroy(), counts as a process started anew
 * in the same place: all ranks of the job make it together, within a minute.
 *
 * Returns 0, or
 *   -EINVAL      a variable or option is missing or makes no sense; the text says which were looked
 *                for and what was found
 *   -ETIMEDOUT   the store did not answer in time, or its host's name was not known until then; or,
 *                for a process started anew, too few of the other ranks came
 *   -ENOENT      rank 0 is to host the store and has no module for it; the file's folder is not there
 *   -ENOTSUP     the method is not known
 *   -EADDRINUSE  rank 0 is to host the store and the port is taken (-EACCES: not ours to take)
 *   -ESTALE      the others went on without this rank; end the process
 *   -EBADMSG     the file is no store file, or cut off; or what else the file system said
 *   -ENOMEM, -ECONNRESET, -EPROTO (what answers there is no store)
 * Source: torch.distributed's env:// rendezvous. */
CRUNRT_API int crunrt_init(const crunrt_init_options *options, crunrt **out);

/* Closes the store's connection and frees. Groups must have been destroyed before; stores from
 * crunrt_job_store() end here. NULL is fine. A rank 0 that hosts
 * the store first waits until the others have called this too, for at most 5 seconds. */
CRUNRT_API void crunrt_destroy(crunrt *rt);

/* -1 for NULL. */
CRUNRT_API int crunrt_rank(const crunrt *rt);             /* 0 … world size - 1 */
CRUNRT_API int crunrt_world_size(const crunrt *rt);       /* processes in the job, at least 1 */
CRUNRT_API int crunrt_local_rank(const crunrt *rt);       /* on this node; -1 = not known */
CRUNRT_API int crunrt_local_world_size(const crunrt *rt); /* on this node; -1 = not known */
CRUNRT_API int crunrt_restart_count(const crunrt *rt);    /* attempts before this one */

typedef struct crunrt_rejoin_options {
    size_t size;        /* sizeof(crunrt_rejoin_options) */
    int min_size;       /* go on with so many ranks; 0 = as many as the job began with */
    int64_t wait_ms;    /* once min_size ranks are there: how long to wait for more; 0 = not */
    int64_t timeout_ms; /* for min_size ranks to come; 0: 60,000 ms */
} crunrt_rejoin_options;

#define CRUNRT_REJOIN_OPTIONS_INIT                                                                 \
    { sizeof(crunrt_rejoin_options), 0, 0, 0 }

/* Goes on in this process after a group broke: meets the other ranks that are left, and those that
 * a launcher started anew (they come in through crunrt_init()), and numbers them afresh, in the
 * order of their first ranks. Destroy the groups before; afterwards crunrt_rank() and
 * crunrt_world_size() are new, and new groups can be made, all ranks in the same order as ever.
 *
 *   options   borrowed; NULL = wait for as many ranks as the job began with. The first to come
 *   decides
 *             by its own options, so give the same everywhere
 *
 * Under crun the agent holds the round: this waits until the next one begins, with as many ranks as
 * it has (options but timeout_ms are ignored, and timeout_ms 0 waits as long as the agent lives);
 * local rank, restart count and the job's store are new, too, and what was in the store is gone.
 * crun leaves a worker alive for this after a failure if it has called crunrt_can_rejoin(), and after
 * an announced change if it calls this. To call it with no failure and no change gives up the round
 * for all, and costs a restart.
 *
 * Returns 0, or
 *   -ETIMEDOUT   too few ranks came, or the first to come died; may be called again
 *   -ESTALE      the others went on without this rank; end the process
 *   -ENOTCONN    the agent is gone; end the process
 *   -EINVAL, -ECONNRESET, -EPROTO, -ENOMEM
 * Without crun, only for launchers that let the other workers live when one fails; torchrun restarts
 * them all. */
CRUNRT_API int crunrt_rejoin(crunrt *rt, const crunrt_rejoin_options *options);

/* ---- steps, and changes with notice ----
 *
 *     crunrt_change change = CRUNRT_CHANGE_INIT;
 *     while (step < last) {
 *         train(step++);
 *         if (crunrt_step(rt, &change) == CRUNRT_CHANGE) {
 *             save();
 *             return 0;            // or destroy the groups, crunrt_rejoin(), and go on
 *         }
 *     }
 *
 * Under crun, a node that joins, or that goes away with notice, is announced: all ranks are stopped
 * after the same number of steps. Without crun's agent all of this does nothing and returns 0. */

#define CRUNRT_CHANGE 1

typedef enum crunrt_change_kind {
    CRUNRT_CHANGE_JOIN = 1,       /* nodes are let in */
    CRUNRT_CHANGE_LEAVE = 2,      /* a node leaves */
    CRUNRT_CHANGE_PREEMPTION = 3, /* a node is taken away */
    CRUNRT_CHANGE_MAINTENANCE = 4 /* a node is to be repaired */
} crunrt_change_kind;

typedef struct crunrt_change {
    size_t size; /* sizeof(crunrt_change) */
    crunrt_change_kind kind;
    int64_t left_ms;  /* until this process is stopped regardless */
    uint64_t step;    /* steps made in this round, the same on every rank that counts them */
    char reason[256]; /* one line */
} crunrt_change;

#define CRUNRT_CHANGE_INIT                                                                         \
    { sizeof(crunrt_change), CRUNRT_CHANGE_JOIN, 0, 0, "" }

/* One step is made. To be called by every rank after each of its steps, from one thread, the same
 * number of times between two collectives; costs some ten nanoseconds. With a change announced it
 * waits until it is known after which step all stop (a few milliseconds), then lets this rank go on to
 * that step.
 *
 *   change   filled in when a change takes place; NULL is fine
 *
 * Returns 0 (go on), CRUNRT_CHANGE (stop here: save, then crunrt_rejoin(), crunrt_change_done(), or end
 * with status 0; further calls return it again), or
 *   -ECONNRESET   the round has ended, for a worker failed; crunrt_rejoin(), or end
 *   -EINVAL       rt is NULL */
CRUNRT_API int crunrt_step(crunrt *rt, crunrt_change *change);

typedef enum crunrt_answer {
    CRUNRT_AFTER_STEP = 0, /* stop me when a step is done; what holds from the first step on */
    CRUNRT_NOW = 1,        /* stop me at any time, I have nothing to save */
    CRUNRT_NEEDS = 2       /* when a step is done, and then I need needs_ms */
} crunrt_answer;

/* How this worker answers changes from now on. needs_ms (with CRUNRT_NEEDS) lengthens the time that a
 * change is announced for where that is ours to choose: for nodes that join, not for a node that is
 * taken away. Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_answer_changes(crunrt *rt, crunrt_answer how, int64_t needs_ms);

/* What the change asked for is done, and this process may be stopped (SIGTERM). For workers that
 * neither rejoin nor end of themselves. Returns 0, -EINVAL (no change takes place), -ENOTCONN. */
CRUNRT_API int crunrt_change_done(crunrt *rt);

/* From now on the agent ends this worker if no step comes for limit_ms, after its flight record was
 * written; crun counts it as failed. 0 takes that back (crun's --step-timeout then holds, if given).
 * Returns 0, -EINVAL, -ENOTCONN. */
CRUNRT_API int crunrt_watch_steps(crunrt *rt, int64_t limit_ms);

/* When other workers fail, leave this process alive (yes = 1): it will notice by a failing operation
 * or crunrt_step(), destroy its groups and call crunrt_rejoin(). One that does not within the grace
 * that stopped workers get is ended. Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_can_rejoin(crunrt *rt, int yes);

/* The job's store, connected; borrowed, ends with the runtime; after crunrt_rejoin() under crun the same
 * object leads to the new round's store. Keys are shared with every process
 * of the job, torch.distributed.TCPStore in Python included. Keys that begin with "crunrt/" are the
 * library's own. */
CRUNRT_API crunrt_store *crunrt_job_store(crunrt *rt);

/* ---- the store: small values that all processes of a job share ----
 *
 * Keys are NUL-terminated text of at most 8,000 bytes; values are (pointer, length) of at most 64
 * MiB. After -ECONNRESET, -EPIPE or -EPROTO a store is broken: every later call returns the same
 * error. So it is after a timeout of any call that does not wait for keys, and of one that does if the
 * server itself does not answer within 5 seconds more. Besides what each call lists, all return
 *
 *   -ECONNRESET, -EPIPE   the connection is lost
 *   -ETIMEDOUT, -EPROTO   the server does not answer, or with bytes that are no answer
 *   -EMSGSIZE             the value is too long; nothing was sent
 *   -EBADMSG, -EFBIG      file:// alone: it is no store file, or has grown beyond 4 GiB; or what else the
 *                         file system said
 *   -ENOMEM
 *
 * Source: torch's TCPStore; the protocol is docs/protocols/store.md. */

/* One more connection, to any TCPStore-compatible server (crun-store, torch's, an agent's).
 *
 *   host, port    where it listens; refused connections are tried again until the time is up
 *   timeout_ms    of connecting, and the default of every call; 300,000 is torch's
 *
 * Returns 0, -EINVAL, -ETIMEDOUT (the text has the last reason: refused, host unknown …), -EPROTO,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_open(const char *host, int port, int64_t timeout_ms,
                                 crunrt_store **out);

/* Ends what crunrt_store_open() and crunrt_store_prefix() gave. NULL is fine. */
CRUNRT_API void crunrt_store_close(crunrt_store *store);

/* A view of a store whose keys get "<prefix>/" in front, as torch's PrefixStore does. Borrows
 * `store`, which must outlive it; may be nested. Returns 0, -EINVAL, -ENOMEM. */
CRUNRT_API int crunrt_store_prefix(crunrt_store *store, const char *prefix, crunrt_store **out);

/* Sets key to value[len]. Copied. The server does not acknowledge: 0 means handed to the kernel.
 * Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_set(crunrt_store *store, const char *key, const void *value,
                                size_t len);

/* Waits for the key and returns a new copy of its value, for crunrt_free(). One NUL stands behind
 * it, not counted in *len; len may be NULL. Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms,
                                void **value, size_t *len);

/* Adds delta to a decimal counter (absent = 0), atomically; *total gets the sum and may be NULL.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (also when the value is not a number: the server
 * closes the connection). */
CRUNRT_API int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta,
                                int64_t *total);

/* Sets key to desired[desired_len] if it holds expected[expected_len], or if it is absent and
 * expected_len is 0; atomically. *value gets a new copy of what the key holds afterwards, for
 * crunrt_free(); for an absent key and a non-empty `expected` it is `expected`, and nothing was
 * set. value and len may be NULL. Returns 0 (also when nothing was set), -EINVAL, -ETIMEDOUT,
 * -ECONNRESET,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_compare_set(crunrt_store *store, const char *key, const void *expected,
                                        size_t expected_len, const void *desired,
                                        size_t desired_len, void **value, size_t *len);

/* Waits until all of keys[key_count] exist. Returns 0, -EINVAL, -ETIMEDOUT (the text names the
 * keys),
 * -ECONNRESET. */
CRUNRT_API int crunrt_store_wait(crunrt_store *store, const char *const *keys, size_t key_count,
                                 int64_t timeout_ms);

/* *present = 1 if all of keys[key_count] exist now, else 0. Returns 0, -EINVAL, -ETIMEDOUT,
 * -ECONNRESET. */
CRUNRT_API int crunrt_store_check(crunrt_store *store, const char *const *keys, size_t key_count,
                                  int *present);

/* *deleted = 1 if the key existed; deleted may be NULL. Returns 0, -EINVAL, -ETIMEDOUT,
 * -ECONNRESET. */
CRUNRT_API int crunrt_store_delete(crunrt_store *store, const char *key, int *deleted);

/* *count = keys in the whole store, whatever the prefix. Returns 0, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_num_keys(crunrt_store *store, int64_t *count);

/* Appends value[len] to what the key holds, or creates it; not acknowledged, as set is not.
 * Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_append(crunrt_store *store, const char *key, const void *value,
                                   size_t len);

/* Waits for all of keys[key_count] and returns new copies in values[key_count], each for
 * crunrt_free(), one NUL behind each; lens[key_count] may be NULL. One request for all.
 * Returns 0, -EINVAL, -ETIMEDOUT (usable afterwards, as after get), -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_get(crunrt_store *store, const char *const *keys,
                                      size_t key_count, int64_t timeout_ms, void **values,
                                      size_t *lens);

/* Sets keys[i] to values[i][lens[i]], in order, in one request. Copied; not acknowledged.
 * Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_set(crunrt_store *store, const char *const *keys,
                                      const void *const *values, const size_t *lens,
                                      size_t key_count);

/* The keys, or those below the prefix of a view, without it: keys[count] in no order and a NULL
 * behind them, one block for one crunrt_free(). A key that holds a NUL is cut there.
 * Returns 0, -EINVAL, -ENOTSUP (the server is older than torch 2.10), -ETIMEDOUT, -ECONNRESET,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_list_keys(crunrt_store *store, char ***keys, size_t *count);

/* Returns when world_size callers have come to the barrier of this name; a name serves once. After
 * a timeout the store stays usable, and the arrival stays counted.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_barrier(crunrt_store *store, const char *name, int world_size,
                                    int64_t timeout_ms);

/* Queues live beside the keys: first in, first out, each element given to one caller only. push is
 * not acknowledged; pop waits for an element and returns it as get does, and with timeout_ms 0 only
 * looks (-ENOENT: empty); *count = elements in the queue.
 * Return 0, -EINVAL, -ENOTSUP (a file, or a server other than crun's and torch's libuv backend from
 * 2.8 on), -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_queue_push(crunrt_store *store, const char *name, const void *value,
                                       size_t len);
CRUNRT_API int crunrt_store_queue_pop(crunrt_store *store, const char *name, int64_t timeout_ms,
                                      void **value, size_t *len);
CRUNRT_API int crunrt_store_queue_len(crunrt_store *store, const char *name, int64_t *count);

/* Frees what this library returned as new. NULL is fine. */
CRUNRT_API void crunrt_free(void *memory);

/* ---- process groups ----
 *
 * A group is a set of ranks that communicate through one backend. Ranks in its calls are the
 * group's own, 0 … size - 1, in the order of the list that made it.
 *
 * Every operation is a collective of the group: all its ranks call it, in the same order, with the
 * same counts, types and roots; send and recv are matched by peer and tag. Each call returns when
 * this rank's part is done and its buffers may be used again.
 *
 * A failure is a return value, within the group's timeout; a peer whose connection breaks is
 * reported at once. The text names operation, group, sequence number and the ranks that gave no
 * sign. The connections of the group are then closed, so that the other ranks fail promptly too,
 * and every later call returns -EPIPE: destroy the group. */

typedef struct crunrt_group crunrt_group;

/* Data types; the comments give the bytes of an element. */
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
    CRUNRT_BAND = 5, /* bitwise, integer types; not on nccl */
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

    /* "gloo" (buffers in host memory), "nccl" (buffers in GPU memory), "mpi" (buffers in host
     * memory, in a program that mpirun, mpiexec or srun started), or NULL: CRUNRT_BACKEND from the
     * environment, else "gloo". A backend asked for by name is never replaced by another. */
    const char *backend;

    const char *name; /* for messages; NULL = "world" or "group <n>" */
    const int *ranks; /* ranks[rank_count] of the job, each once; NULL = all of them */
    size_t rank_count;
    int64_t timeout_ms; /* of every operation and of each phase of creation; 0 = 600,000 */
    int device;         /* nccl: CUDA device; -1 = the local rank */
    void *stream;       /* nccl: cudaStream_t of the operations, borrowed; NULL = one of its own */

    /* gloo: meet ranks that are no crunrt, such as torch.distributed's, under these keys of the
     * job's store, exactly. No arrival is noted then, and the peers' own rules (torch's barrier
     * key) are the program's business; docs/worker-runtime.md has an example. NULL = none. */
    const char *foreign_prefix;
} crunrt_group_options;

#define CRUNRT_GROUP_OPTIONS_INIT                                                                  \
    { sizeof(crunrt_group_options), NULL, NULL, NULL, 0, 0, -1, NULL, NULL }

/* Makes a group. Every rank of the job calls this in the same order, also those that are not in
 * `ranks`: they get *out = NULL and 0.
 *
 *   options   borrowed; NULL = all ranks on the default backend
 *   out       the new group, to be given to crunrt_group_destroy() before crunrt_destroy()
 *
 * Phases, each within the timeout: arrival of all its ranks in the store, exchange of addresses through
 * the store, connection. On nccl a later group is split from the first group of all ranks, where
 * that is whole, idle and on the same device on every rank (ncclCommSplit, NCCL 2.18; not with
 * CRUNRT_NCCL_SPLIT=0): then those that are not in `ranks` wait for the members, for 10 s at most,
 * and a split that fails breaks that first group, too. Returns 0, or
 *   -EINVAL      options, or ranks that are not ranks of the job
 *   -ENOENT      the backend's module cannot be found or loaded; the text lists the places
 *   -ENODEV      nccl: no usable GPU; the text has the CUDA error code. mpi: no MPI started this
 *                process
 *   -ETIMEDOUT   a phase took too long; the text names it and the absent ranks
 *   -ECONNRESET  the store or a peer went away, or another rank gave up; the text has its words
 *   -ENOTSUP     mpi: the program runs on another MPI than the module was built for
 *   -EPROTO      gloo with foreign ranks: their Gloo is a later one; mpi: the ranks are of two jobs
 *   -EIO         the backend's own failure; the text has its words
 *   -ENOMEM */
CRUNRT_API int crunrt_group_new(crunrt *rt, const crunrt_group_options *options,
                                crunrt_group **out);

/* Closes the connections and frees. Local: a rank that still waits for this one fails with
 * -ECONNRESET, so end with a barrier. NULL is fine. */
CRUNRT_API void crunrt_group_destroy(crunrt_group *group);

/* -1, -1 and NULL for NULL, which is what a rank that is no member has. */
CRUNRT_API int crunrt_group_rank(const crunrt_group *group);
CRUNRT_API int crunrt_group_size(const crunrt_group *group);
CRUNRT_API const char *crunrt_group_backend(const crunrt_group *group); /* "gloo", … */

/* Bytes of an element; 0 if there is no such type. */
CRUNRT_API size_t crunrt_dtype_size(crunrt_dtype dtype);

/* One operation, described. The functions below are short forms of it. */
typedef struct crunrt_op {
    size_t size; /* sizeof(crunrt_op) */
    crunrt_op_kind kind;
    crunrt_dtype dtype;
    crunrt_reduce_op reduce;
    int root;         /* of broadcast, reduce, gather, scatter; peer of send, recv */
    uint32_t tag;     /* send, recv */
    const void *send; /* borrowed until the operation is done */
    void *recv;
    size_t count;                            /* elements, see the functions */
    const size_t *send_counts, *recv_counts; /* [group size], elements; all-to-all with counts */
    int64_t timeout_ms;                      /* CRUNRT_TIMEOUT_DEFAULT = the group's */
    void *stream;                            /* nccl: NULL = the group's */
} crunrt_op;

#define CRUNRT_OP_INIT                                                                             \
    {                                                                                              \
        sizeof(crunrt_op), CRUNRT_OP_BARRIER, CRUNRT_UINT8, CRUNRT_SUM, 0, 0, NULL, NULL, 0, NULL, \
            NULL, CRUNRT_TIMEOUT_DEFAULT, NULL                                                     \
    }

/* Runs an operation to its end. All the functions below return what this does: 0, or
 *   -EINVAL      rank, type, operation or pointers make no sense; nothing was sent, the group is
 *   fine
 *   -ENOTSUP     the backend has no such type or operation; nothing was sent, the group is fine
 *   -ETIMEDOUT   not done in time: a peer hangs or never came, or the ranks made different calls, which
 *                the text names then; the group is broken
 *   -ECONNRESET  a peer or the store went away, or another rank failed; the group is broken
 *   -EIO         the backend's own failure; the group is broken
 *   -EPROTO      with CRUNRT_DEBUG=1 in the environment: the ranks made different calls; the text
 *                names both; on mpi also a message longer than its receive; the group is broken
 *   -EPIPE       the group was broken before; the text repeats the first failure
 *   -ENOMEM      the group is broken
 *
 * A timeout is reported up to a second after it, in which the others say that they are alive; up to
 * 6 seconds after it if the store hangs, too. */
CRUNRT_API int crunrt_group_run(crunrt_group *group, const crunrt_op *op);

/* recv[count] = the reduction over all ranks of send[count]. In place when send == recv. At a fixed
 * group size the order of the reduction, hence every bit of the result, is the same in every run
 * (mpi: as the MPI does it). */
CRUNRT_API int crunrt_group_all_reduce(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype, crunrt_reduce_op reduce);

/* The same, on `root` only; recv is not touched elsewhere and may be NULL there. */
CRUNRT_API int crunrt_group_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, crunrt_reduce_op reduce, int root);

/* buffer[count] of `root` is copied to all. */
CRUNRT_API int crunrt_group_broadcast(crunrt_group *group, void *buffer, size_t count,
                                      crunrt_dtype dtype, int root);

/* recv[size * count] = every rank's send[count], in rank order. In place when
 * send == recv + rank * count elements. */
CRUNRT_API int crunrt_group_all_gather(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* The same, on `root` only; recv may be NULL elsewhere. */
CRUNRT_API int crunrt_group_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, int root);

/* recv[count] = this rank's part of root's send[size * count]; send may be NULL elsewhere. */
CRUNRT_API int crunrt_group_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                                    crunrt_dtype dtype, int root);

/* recv[count] = this rank's part of the reduction over all ranks of send[size * count]. */
CRUNRT_API int crunrt_group_reduce_scatter(crunrt_group *group, const void *send, void *recv,
                                           size_t count, crunrt_dtype dtype,
                                           crunrt_reduce_op reduce);

/* send and recv are [size * count]: part i of send goes to rank i, part i of recv comes from it.
 * Not in place. */
CRUNRT_API int crunrt_group_all_to_all(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* The same with send_counts[i] elements to rank i and recv_counts[i] from it, packed one after the
 * other. Not in place. */
CRUNRT_API int crunrt_group_all_to_all_counts(crunrt_group *group, const void *send,
                                              const size_t *send_counts, void *recv,
                                              const size_t *recv_counts, crunrt_dtype dtype);

/* Returns when every rank has called it. */
CRUNRT_API int crunrt_group_barrier(crunrt_group *group);

/* The same through the store, whatever the backend; on a timeout the text names the ranks that did
 * not come, and none passes. For finding out who is missing, not for speed. Breaks the group on
 * failure. Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (another rank's time was up first, or it failed, or
 * the store went away), -EPIPE (the group was broken before), -ENOMEM. */
CRUNRT_API int crunrt_group_monitored_barrier(crunrt_group *group, int64_t timeout_ms);

/* The group's ncclComm_t, borrowed until the group breaks or is destroyed; NULL if the backend is
 * not nccl. It is a nonblocking communicator unless CRUNRT_NCCL_BLOCKING=1. */
CRUNRT_API void *crunrt_nccl_comm(crunrt_group *group);

/* To and from one other rank. Messages with the same tag between two ranks keep their order; counts
 * must match. nccl: no tags. */
CRUNRT_API int crunrt_group_send(crunrt_group *group, const void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);
CRUNRT_API int crunrt_group_recv(crunrt_group *group, void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);

/* Runs ops[count], all of them sends and receives, at the same time: the way to exchange with peers
 * without a deadlock, since a send may wait for its receive. Returns what crunrt_group_run() does;
 * -EINVAL also for another kind of operation, and for more than CRUNRT_WORKS_MAX of them. */
CRUNRT_API int crunrt_group_batch(crunrt_group *group, const crunrt_op *ops, size_t count);

/* ---- work that goes on meanwhile ---- */

typedef struct crunrt_work crunrt_work;

#define CRUNRT_WORKS_MAX 256 /* unfinished works of a group, operations of a batch */

/* Begins an operation and returns. The buffers (and arrays of counts) belong to it until it is
 * done. Collectives count in the order of their start. gloo: a thread of the backend runs it; nccl:
 * it is put on the stream, behind what is there; mpi: it goes on while this process is in a call of
 * MPI, such as crunrt_work_test(), and after a failure MPI may still write to the buffers.
 *
 *   out   the new work, to be given to crunrt_work_free() before crunrt_group_destroy()
 *
 * Returns 0, -EINVAL, -ENOTSUP, -EPIPE as crunrt_group_run() does, -EAGAIN (too many unfinished
 * works), -ENOMEM; with CRUNRT_DEBUG=1, where it waits until all ranks begin the operation, also
 * -ETIMEDOUT, -ECONNRESET, -EPROTO. */
CRUNRT_API int crunrt_group_start(crunrt_group *group, const crunrt_op *op, crunrt_work **out);

/* Short forms of it for messages. */
CRUNRT_API int crunrt_group_isend(crunrt_group *group, const void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);
CRUNRT_API int crunrt_group_irecv(crunrt_group *group, void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);

/* *done = 1 if the operation is over, else 0. Does not wait. Returns 0, or, once it is over, its
 * failure as crunrt_group_run() returns it (then *done is 1, too); -EINVAL. */
CRUNRT_API int crunrt_work_test(crunrt_work *work, int *done);

/* Waits until the operation is over. Returns its outcome as crunrt_group_run() does, or -EAGAIN if
 * timeout_ms passed before (CRUNRT_TIMEOUT_DEFAULT: the operation's own limit ends the wait);
 * -EINVAL. */
CRUNRT_API int crunrt_work_wait(crunrt_work *work, int64_t timeout_ms);

/* Waits for the operation if it is not over, forgets its outcome, and frees. NULL is fine. */
CRUNRT_API void crunrt_work_free(crunrt_work *work);

/* ---- workers without a launcher ---- */

/* What a worker does; its return value is its exit status. */
typedef int (*crunrt_spawn_fn)(int rank, void *arg);

/* Starts nprocs (1 … 1,024) processes on this host, each a copy of this one that calls fn(rank,
 * arg) with the environment of a worker, so that crunrt_init(NULL, …) works in it; hosts their
 * store (through the module store_host); waits for all. When one fails the others get SIGTERM, and
 * SIGKILL 5 seconds later. They end with this process, however it ends.
 *
 * The copies are made by fork(): call this early, before threads, CUDA or NCCL have been touched in
 * this process, and without a lock held.
 *
 * Returns 0 if all returned 0, -ECHILD (the text names the first to fail and how), -EINVAL (also where
 * the program ignores SIGCHLD: nobody would learn how they end), -ENOENT (no module), -EAGAIN,
 * -EMFILE, -ENOMEM. Source: torch.multiprocessing.spawn. */
CRUNRT_API int crunrt_spawn(crunrt_spawn_fn fn, int nprocs, void *arg);

/* ---- telling the launcher why ---- */

/* Writes the error file that the launcher shows in its failure report, as torch's @record does: to
 * the path in TORCHELASTIC_ERROR_FILE, whole or not at all, replacing an earlier one.
 *
 *   message   one line, "kind: what happened"; NULL = crunrt_last_error()
 *   detail    more lines (a stack, what was being done); NULL = none
 * Bytes that are not UTF-8 are written as U+FFFD; each text is cut at 64 KiB.
 *
 * Returns 0, -ENOENT (no launcher asked for one: TORCHELASTIC_ERROR_FILE is unset or empty), or
 * what the file system said. Does not change crunrt_last_error() on success. */
CRUNRT_API int crunrt_report_error(const char *message, const char *detail);

/* From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write the error file (signal, address)
 * before they end the process as they would have. Once per process, from the main thread; handlers
 * that the program installs later replace it. Returns 0, -ENOENT (no error file asked for),
 * -ENOMEM. */
CRUNRT_API int crunrt_report_fatal_signals(void);

/* Writes the flight record: the last 2,000 operations of this process, as JSON.
 *
 *   path   NULL = CRUNRT_FLIGHT_FILE + rank + ".json", or flight.json beside the error file
 *
 * The library does so itself when a group breaks, when crun's agent asks for it (SIGUSR2 to crun; it
 * sends signal CRUNRT_DUMP_SIGNAL, default SIGRTMIN+5, which the library handles unless the program
 * does, 0 = never), and, after crunrt_report_fatal_signals(), on a fatal signal, if one of these two
 * places is known from crunrt_init(); there it appears whole or not at all. Returns 0, -ENOENT (no path), or what the file
 * system said. */
CRUNRT_API int crunrt_flight_dump(const char *path);

#ifdef __cplusplus
}
#endif

#endif
