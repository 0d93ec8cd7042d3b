/* crunrt.h: the worker runtime of crun, for programs in C and C++. With it a worker
 * learns its rank, shares small values in the job's store, makes process groups, and reports its
 * failures.
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
 * Errors. A function that can fail returns an int: 0 on success, or a negative errno (-ETIMEDOUT,
 * -ECONNRESET …, see <errno.h>). After a failure crunrt_last_error() returns a text that explains
 * the failure. Results are written only on success. The library prints nothing, never ends the
 * process and raises no signal. If an argument that must not be NULL is NULL, a function that can
 * fail returns -EINVAL, a function that returns a number returns -1, and a function that returns a
 * pointer returns NULL. Arguments that may be NULL are marked below.
 *
 * Threads. Different threads may use different objects at the same time. Threads may share a
 * crunrt_store: its calls run one after the other, so a call that waits delays the calls of other
 * threads. Only one thread at a time may use a crunrt_group, because all ranks must make the
 * group's collectives in the same order. Several groups on nccl have a further rule, see "Streams"
 * below.
 *
 * Fork. A child that was forked after crunrt_init() must not call this library.
 *
 * A timeout argument is in milliseconds on the monotonic clock: a positive number; 0 (check once,
 * do not wait); CRUNRT_TIMEOUT_DEFAULT; or CRUNRT_FOREVER. In a struct of options, 0 has the
 * meaning that is stated there.
 *
 * Structs of options begin with their size, so that a later version can add fields without breaking
 * compiled programs. Initialise them with their ..._INIT macro; or, from a language without macros
 * of C, with their ..._init() function, which does the same for the loaded library's version of the
 * struct. The memory that is given to such a function must have the size that the matching
 * ..._size() function returns.
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

#define CRUNRT_FOREVER         INT64_MAX      /* no time limit */
/* the timeout that was given when the store, group or operation was made */
#define CRUNRT_TIMEOUT_DEFAULT ((int64_t) -1)

/* The version of the loaded library, for example "0.1.0", as a static string. It may differ from
 * the macros above, which are the version of this header. */
CRUNRT_API const char *crunrt_version(void);

/* Returns the text of the last failure on this thread: one line without a newline, or "" if no call
 * on this thread has failed. The text names what was tried, on what, the reason, and what the user
 * can do. It is valid until the next call of this library on this thread. */
CRUNRT_API const char *crunrt_last_error(void);

/* ---- this process's place in the job ---- */

typedef struct crunrt crunrt;
typedef struct crunrt_store crunrt_store;

typedef struct crunrt_init_options {
    size_t size; /* sizeof(crunrt_init_options) */

    /* The method by which this process finds its rank and the store.
     * NULL or "env://": rank, world size and the store's address come from the environment, see
     * crunrt_init().
     * "tcp://HOST:PORT": rank 0 hosts the store at this address. Rank and world size come from the
     * query ("?rank=R&world_size=N") or from the two fields below; if neither has them, from the
     * environment.
     * "file:///PATH": the store is a file that all ranks can open, in the format of torch's
     * FileStore. A file that an earlier run has left at PATH must be deleted first. */
    const char *method;

    /* this process's rank; -1 means: take it from the query of `method` or from the environment */
    int rank;
    /* number of processes in the job; -1 means: take it from the query of `method` or from the
     * environment */
    int world_size;
    /* The longest time to connect to the store, and the default timeout of calls on the store, in
     * ms. 0 means 300,000 ms. */
    int64_t timeout_ms;
} crunrt_init_options;

#define CRUNRT_INIT_OPTIONS_INIT                                                                   \
    { sizeof(crunrt_init_options), NULL, -1, -1, 0 }

/* Makes a runtime: determines this process's rank, the world size and the address of the job's
 * store, and connects to the store.
 *
 *   options   read during the call only; NULL means that all options have their defaults
 *   out       receives the new runtime, which the caller destroys with crunrt_destroy()
 *
 * With env://, rank and size come from the first of these launchers whose variables for both are
 * set:
 *   RANK WORLD_SIZE (LOCAL_RANK LOCAL_WORLD_SIZE)                              crun, torchrun
 *   OMPI_COMM_WORLD_RANK _SIZE (_LOCAL_RANK _LOCAL_SIZE)                       Open MPI
 *   PMI_RANK PMI_SIZE (MPI_LOCALRANKID MPI_LOCALNRANKS)                        MPICH, Intel MPI
 *   SLURM_PROCID SLURM_NTASKS (SLURM_LOCALID)                                  Slurm
 * The store is at MASTER_ADDR:MASTER_PORT. If TORCHELASTIC_USE_AGENT_STORE is exactly "True", the
 * launcher's agent hosts it. Otherwise rank 0 hosts it, with the module lib/crunrt/store_host.so,
 * which needs libuv.
 *
 * A process may make several runtimes, one after the other or at the same time. All ranks must make
 * their runtimes in the same order. Of the runtimes that exist at the same time, only the first has
 * a channel to crun's agent.
 *
 * Returns 0, or
 *   -EINVAL      a variable or option is missing or wrong; the text lists the variables that were
 *                read and which of them are set
 *   -ETIMEDOUT   the store did not answer in time, or the name of its host could not be resolved
 *   -ENOENT      this is rank 0, which must host the store, and the module store_host cannot be
 *                loaded; or, with file://, the file's folder does not exist
 *   -ENOTSUP     the method is unknown
 *   -EADDRINUSE  this is rank 0, which must host the store, and the port is in use
 *   -EACCES      this is rank 0, which must host the store, and the system does not permit it to
 *                use the port
 *   -EBADMSG     with file://: the file has not the format of a store, or is incomplete
 *   -EPROTO      the server at the address is not a store
 *   -ECONNRESET  the connection was lost
 *   -ENOMEM
 *   other errors of the file system, with file://
 * Source: torch.distributed's env:// rendezvous. */
CRUNRT_API int crunrt_init(const crunrt_init_options *options, crunrt **out);

/* Closes the connection to the store, and frees the runtime and the store that crunrt_job_store()
 * returned. Destroy all groups before this call. If this process is rank 0 and hosts the store, the
 * call first waits, for at most 5 seconds, until all other ranks have called crunrt_destroy(). If
 * rt is NULL, nothing happens.
 *
 * This call reports in the store that this rank has ended. So does the normal end of a process that
 * has not made this call (exit(), or a return from main()). Ranks that wait for this rank get
 * -ECONNRESET at once: in crunrt_group_new(), in a monitored barrier, and in a collective that this
 * rank has not made. If the store does not answer, the report takes at most a second. */
CRUNRT_API void crunrt_destroy(crunrt *rt);

/* Each of these functions returns -1 if rt is NULL. */
CRUNRT_API int crunrt_rank(const crunrt *rt);             /* 0 … world size - 1 */
CRUNRT_API int crunrt_world_size(const crunrt *rt);       /* processes in the job, at least 1 */
CRUNRT_API int crunrt_local_rank(const crunrt *rt);       /* rank on this node; -1 if unknown */
CRUNRT_API int crunrt_local_world_size(const crunrt *rt); /* ranks on this node; -1 if unknown */
CRUNRT_API int crunrt_restart_count(const crunrt *rt);    /* restarts of the job so far */
/* After crunrt_rejoin(): the number of ranks of this round, over all nodes and with this one, that
 * waited in crunrt_rejoin() when the round formed. The others are new processes, which come later.
 * Example: 4 ranks on 2 nodes; a node is lost, and another one takes its place: 2. -1 if it is
 * unknown: in a new process, or if an agent of the job is of an older build. */
CRUNRT_API int crunrt_kept_ranks(const crunrt *rt);

typedef struct crunrt_rejoin_options {
    size_t size;        /* sizeof(crunrt_rejoin_options) */
    /* The longest time to wait for the next round, in ms. 0 means no time limit: the call waits
     * until the next round begins or the agent is gone. */
    int64_t timeout_ms;
} crunrt_rejoin_options;

#define CRUNRT_REJOIN_OPTIONS_INIT                                                                 \
    { sizeof(crunrt_rejoin_options), 0 }

/* Takes this process into the next round, after a group broke or a change was announced. Works only
 * in workers that crun started. Destroy all groups before this call. It waits until the agent
 * begins the next round. After it has returned 0, rank, world size, local rank, restart count and
 * the job's store are those of the new round, the keys of the old round's store are gone, and new
 * groups can be made. All ranks of the round, whether they rejoined or were newly started, must
 * make their groups in the same order.
 *
 *   options   read during the call; NULL means no time limit
 *
 * When another worker fails, crun keeps this process alive only if the process has called
 * crunrt_can_rejoin(rt, 1) before. After an announced change crun keeps every worker that calls
 * crunrt_rejoin(). If no worker has failed and no change is announced, a call of crunrt_rejoin()
 * ends the round on all ranks, and costs a restart.
 *
 * Returns 0, or
 *   -ETIMEDOUT   the next round has not begun in time; the call may be repeated
 *   -ENOTCONN    this process has no agent, or the agent is gone; end the process
 *   -EPROTO      the agent sent a rank and a world size that contradict each other
 *   -ENOTRECOVERABLE  this process can use its GPU no more: the CUDA context is lost, or the call
 *                that aborts a communicator of NCCL does not return. End the process; its agent
 *                replaces it
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
 * When a node joins the job or is about to leave, crun announces this change to the workers, and
 * all ranks stop after the same number of steps. In a process that has no agent, because another
 * launcher started it, these functions do nothing and return 0. */

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
    int64_t left_ms;  /* time in ms until crun stops this process, whether it is ready or not */
    uint64_t step;    /* number of steps that this rank has made in this round; equal on all ranks
                       * that call crunrt_step() */
    char reason[256]; /* why the change happens, as one line of text */
} crunrt_change;

#define CRUNRT_CHANGE_INIT                                                                         \
    { sizeof(crunrt_change), CRUNRT_CHANGE_JOIN, 0, 0, "" }

/* Counts one step. Every rank calls this after each of its steps, always from the same thread.
 * Between two collectives all ranks must make the same number of steps. A call takes about ten
 * nanoseconds. If a change has been announced, a call waits a few milliseconds until the ranks have
 * agreed on the step after which all of them stop; this rank then goes on up to that step.
 *
 *   change   filled in when crunrt_step() returns CRUNRT_CHANGE; may be NULL
 *
 * Returns 0 (go on), CRUNRT_CHANGE, or
 *   -ECONNRESET   the round has ended because a worker failed; call crunrt_rejoin(), or end
 *   -EINVAL       rt is NULL
 * If it returns CRUNRT_CHANGE, stop training and save; after that call crunrt_rejoin() or
 * crunrt_change_done(), or end with status 0. Until then, further calls of crunrt_step() return
 * CRUNRT_CHANGE, too. */
CRUNRT_API int crunrt_step(crunrt *rt, crunrt_change *change);

/* The first half of crunrt_step(): counts the step, and never waits. The halves are for a language
 * such as Python, which has a global lock: it can keep the lock during this call, and release it
 * for crunrt_step_settle(), which may wait. Returns 0 (go on), 1 (call crunrt_step_settle() now),
 * or -EINVAL. */
CRUNRT_API int crunrt_step_count(crunrt *rt);

/* The second half of crunrt_step(): reads what the agent has sent and, if a change is announced,
 * waits until the agreed step is known. If crunrt_step_count() has returned 1, call this from the
 * same thread before the next step. Arguments and results are those of crunrt_step(). */
CRUNRT_API int crunrt_step_settle(crunrt *rt, crunrt_change *change);

/* Waits until the agent has ended this round without an agreed step, because a worker failed. If
 * the operations of a program do not notice the loss of a peer, the program can call this in a
 * separate thread, and end these operations when this call returns 1. Only one thread at a time may
 * call this function. While it waits, other threads may use the runtime, but must not destroy it.
 *
 *   timeout_ms   CRUNRT_TIMEOUT_DEFAULT and CRUNRT_FOREVER mean no time limit
 *
 * Returns 1 (the round is over; crunrt_rejoin() takes this process into the next round), or
 *   -ETIMEDOUT   the round has not ended within timeout_ms
 *   -ENOTCONN    this process has no agent, or the agent is gone
 *   -EINVAL, -EMFILE, -ENOMEM */
CRUNRT_API int crunrt_wait_for_round_end(crunrt *rt, int64_t timeout_ms);

typedef enum crunrt_answer {
    /* stop this worker after the agreed step; the default for a worker that has made a step */
    CRUNRT_AFTER_STEP = 0,
    /* stop this worker at any moment, because it has nothing to save */
    CRUNRT_NOW = 1,
    /* stop this worker after the agreed step; it needs needs_ms after that step, for example to
     * save */
    CRUNRT_NEEDS = 2
} crunrt_answer;

/* Sets how crun stops this worker for each change that is announced after this call. Without this
 * call, crun waits for the agreed step only if this worker has made a step before the change is
 * announced, or if another rank has made its first step and none has made two; otherwise crun stops
 * this worker at once. After this call with CRUNRT_AFTER_STEP or CRUNRT_NEEDS, crun waits for the
 * agreed step in all cases. If the first step takes long, call this before that step: otherwise, a
 * change that is announced before any rank has made its first step ends the round at once, and no
 * rank can save.
 *
 *   needs_ms   used only with CRUNRT_NEEDS: the time in ms that this worker needs after the agreed
 *              step. If nodes join, crun gives the workers this time, but at most the rendezvous's
 *              join_timeout. If a node leaves, the notice fixes the time, and needs_ms has no
 *              effect.
 *
 * Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_answer_changes(crunrt *rt, crunrt_answer how, int64_t needs_ms);

/* Reports to the agent that this worker has saved what it needs; after that crun can stop the
 * worker with SIGTERM at any moment. If a worker neither rejoins nor ends by itself after
 * crunrt_step() has returned CRUNRT_CHANGE, it must call this. Returns 0, -EINVAL (crunrt_step()
 * has not returned CRUNRT_CHANGE), or -ENOTCONN (the agent is gone). */
CRUNRT_API int crunrt_change_done(crunrt *rt);

/* Sets the step timeout of this worker to limit_ms, in place of crun's --step-timeout. If the
 * worker makes no step for that time, it writes its flight record, the agent ends it, and crun
 * counts it as failed. limit_ms 0 means that --step-timeout, if it was given, applies to this
 * worker. Returns 0, -EINVAL, or -ENOTCONN (the agent is gone). */
CRUNRT_API int crunrt_watch_steps(crunrt *rt, int64_t limit_ms);

/* Sets whether crun keeps this process alive when another worker fails: yes is 1 to keep it, 0 to
 * end it. A process that is kept gets an error from an operation or from crunrt_step(), and must
 * then destroy its groups and call crunrt_rejoin(). If the process does not call crunrt_rejoin()
 * within the time that stopped workers have between SIGTERM and SIGKILL, crun ends the process.
 * If this is called before a group of all ranks is made on nccl, and the loaded NCCL has
 * ncclCommRevoke() and ncclCommShrink(), a failure revokes the group's communicator instead of
 * aborting it, and the ranks make the communicator of the next round out of it where NCCL can do
 * that. CRUNRT_NCCL_REFORM=0 in the environment turns this off.
 * Returns 0, or -EINVAL. */
CRUNRT_API int crunrt_can_rejoin(crunrt *rt, int yes);

/* Returns the job's store, connected. The store belongs to the runtime and is valid until
 * crunrt_destroy(). After crunrt_rejoin() the same object is connected to the new round's store.
 * All processes of the job see the same keys; a Python process that opens the store with
 * torch.distributed.TCPStore sees them, too. Keys that begin with "crunrt/" belong to this library.
 * Returns NULL if rt is NULL. */
CRUNRT_API crunrt_store *crunrt_job_store(crunrt *rt);

/* ---- the store: small values that all processes of a job share ----
 *
 * A key is NUL-terminated text of at most 8,000 bytes, prefixes included. A value is a pointer and
 * a length of at most 64 MiB. After -ECONNRESET, -EPIPE or -EPROTO a store is broken: every later
 * call returns the same error. A timeout also breaks the store, with one exception: when a call
 * that waits for keys or elements times out, the store stays usable if the server answers within 5
 * more seconds.
 *
 * Besides the errors listed at each call, all calls can return
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

/* Opens a connection to any server that speaks TCPStore's protocol: crun-store, torch's server, or
 * the store of an agent.
 *
 *   host, port    the server's address; a refused connection is tried again until the timeout
 *   timeout_ms    timeout for connecting, and default timeout of every call on the store, in ms;
 *                 torch uses 300,000 by default
 *   out           the new store; the caller closes it with crunrt_store_close()
 *
 * Returns 0, -EINVAL, -ETIMEDOUT (the text has the last reason: refused, host unknown …), -EPROTO,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_open(const char *host, int port, int64_t timeout_ms,
                                 crunrt_store **out);

/* Closes a store from crunrt_store_open() or a view from crunrt_store_prefix(). If store is NULL,
 * nothing happens. */
CRUNRT_API void crunrt_store_close(crunrt_store *store);

/* Makes a view of a store: an object that puts "<prefix>/" in front of every key, as torch's
 * PrefixStore does. The view uses `store`, which must not be closed before the view. A view can be
 * made of a view. The caller closes it with crunrt_store_close(). Returns 0, -EINVAL, -ENOMEM. */
CRUNRT_API int crunrt_store_prefix(crunrt_store *store, const char *prefix, crunrt_store **out);

/* Sets a key to a copy of value[len]. The server sends no reply, so 0 means only that the kernel
 * has accepted the bytes for sending. Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_set(crunrt_store *store, const char *key, const void *value,
                                size_t len);

/* Waits until the key exists. Sets *value to a new copy of the key's value, which the caller frees
 * with crunrt_free(), and *len to its length in bytes. A NUL follows the copy and is not counted in
 * *len. len may be NULL.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms,
                                void **value, size_t *len);

/* Atomically adds delta to the decimal number that the key holds; an absent key counts as 0. Sets
 * *total to the sum; total may be NULL. Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (also if the
 * value is not a number: the server then closes the connection). */
CRUNRT_API int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta,
                                int64_t *total);

/* Atomically sets the key to desired[desired_len] if the key holds expected[expected_len], or if
 * the key is absent and expected_len is 0. Sets *value to a new copy of what the key holds
 * afterwards, which the caller frees with crunrt_free(), and *len to its length. If the key is
 * absent and expected_len is not 0, the key is not set, and *value is a copy of `expected`. value
 * and len may be NULL.
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

/* Deletes a key. Sets *deleted to 1 if the key existed, else to 0; deleted may be NULL. Returns 0,
 * -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_delete(crunrt_store *store, const char *key, int *deleted);

/* Sets *count to the number of keys in the whole store; a view's prefix does not limit it. Returns
 * 0, -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_num_keys(crunrt_store *store, int64_t *count);

/* Appends value[len] to the key's value; if the key is absent, creates it with value[len]. The
 * server sends no reply, so 0 means only that the kernel has accepted the bytes for sending.
 * Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_append(crunrt_store *store, const char *key, const void *value,
                                   size_t len);

/* Waits until all of keys[key_count] exist, with one request for all keys. Sets values[i] to a new
 * copy of the value of keys[i], which the caller frees with crunrt_free(), and lens[i] to its
 * length in bytes. A NUL follows each copy and is not counted. lens may be NULL.
 * Returns 0, -EINVAL, -ETIMEDOUT (the keys do not exist), -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_get(crunrt_store *store, const char *const *keys,
                                      size_t key_count, int64_t timeout_ms, void **values,
                                      size_t *lens);

/* Sets each keys[i] to a copy of the lens[i] bytes at values[i], in order, with one request for all
 * keys. The server sends no reply, so 0 means only that the kernel has accepted the bytes for
 * sending. Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT, -ENOMEM. */
CRUNRT_API int crunrt_store_multi_set(crunrt_store *store, const char *const *keys,
                                      const void *const *values, const size_t *lens,
                                      size_t key_count);

/* Lists the keys of a store in no particular order. For a view it lists only the keys that begin
 * with the view's prefix, without the prefix. *keys points to one block of memory that holds *count
 * texts and a final NULL; the caller frees the block with one crunrt_free(). A key that contains a
 * NUL byte is cut at the NUL. Returns 0, -EINVAL, -ENOTSUP (the server is older than torch 2.10),
 * -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_list_keys(crunrt_store *store, char ***keys, size_t *count);

/* Waits until world_size callers have called this function with the same name. A name can be used
 * for one barrier only. After a timeout the barrier still counts this caller as arrived.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET. */
CRUNRT_API int crunrt_store_barrier(crunrt_store *store, const char *name, int world_size,
                                    int64_t timeout_ms);

/* Queues of values, first in, first out. A queue and a key may have the same name. Each element
 * goes to one caller only. crunrt_store_queue_push() appends an element; the server sends no reply.
 * crunrt_store_queue_pop() waits for an element, removes it from the queue, and stores it in *value
 * and *len as crunrt_store_get() does; with timeout_ms 0 it does not wait, and returns -ENOENT if
 * the queue is empty. crunrt_store_queue_len() sets *count to the number of elements. The three
 * functions return 0, -EINVAL, -ENOTSUP (the store is a file, or a server without queues: only
 * crun's server and torch's libuv server since 2.8 have them), -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_queue_push(crunrt_store *store, const char *name, const void *value,
                                       size_t len);
CRUNRT_API int crunrt_store_queue_pop(crunrt_store *store, const char *name, int64_t timeout_ms,
                                      void **value, size_t *len);
CRUNRT_API int crunrt_store_queue_len(crunrt_store *store, const char *name, int64_t *count);

/* Frees memory that a function of this library returned and that the caller must free. If memory is
 * NULL, nothing happens. */
CRUNRT_API void crunrt_free(void *memory);

/* ---- process groups ----
 *
 * A group is a set of ranks that communicate through one backend. In calls on a group, ranks are
 * the group's own, 0 … size - 1, in the order of the list with which the group was made.
 *
 * All operations but send and receive are collectives: all ranks of the group call them, in the
 * same order, with the same counts, types and roots. Send and receive are matched by peer and tag.
 * A call that runs an operation returns when this rank's part is done and its buffers may be used
 * again.
 *
 * If an operation fails, its call returns an error within the group's timeout; if the connection to
 * a peer breaks, the call returns at once. The text names the operation, its number, the group, and
 * the ranks that give no sign of life. After a failure the group is broken: its connections are
 * closed, so that the other ranks fail promptly, too, and every later call returns -EPIPE. A broken
 * group can only be destroyed.
 *
 * Streams. On nccl an operation runs on a stream of the group's own, after everything that is on
 * the caller's stream at the time of the call. The caller's stream is the one that the operation
 * names; if it names none, the one that the group's options name; if these name none, CUDA's
 * default stream. No operation runs on the caller's stream. cudaStreamLegacy names the default
 * stream, cudaStreamPerThread the stream of the thread that makes the call. crunrt_group_run() and
 * its short forms wait until the operation is done. crunrt_group_enqueue() and
 * crunrt_work_wait_stream() return at once, and make a stream wait for the operation. The
 * operations of one group run one after the other.
 *
 * An operation on a stream that is being captured becomes part of the CUDA graph. Such an operation
 * has no timeout, because CUDA does not report when a graph runs; if another rank fails, it ends.
 * The library cannot order the operations of a graph and the group's other operations; only a
 * stream does. So launch the graph on the stream that is the caller's stream of the other
 * operations: then the order is the same on all ranks.
 *
 * A call leaves the thread's current device, its last CUDA error and other threads' captures as
 * they were. If two groups on nccl use one GPU, all ranks must call their operations in the same
 * order, also if different threads do so, because a kernel of one group may wait for a kernel of
 * the other. If one thread makes the calls, NCCL_LAUNCH_ORDER_IMPLICIT=1 in the environment keeps
 * that order on the GPU, with NCCL 2.26 or later. */

typedef struct crunrt_group crunrt_group;

/* Data types. The number in each comment is the size of one element in bytes. */
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
    CRUNRT_BFLOAT16 = 9, /* 2, the upper half of a FLOAT32 */
    CRUNRT_FLOAT8_E4M3 = 10, /* 1 byte, with 4 bits of exponent; nccl only, from NCCL 2.24 */
    CRUNRT_FLOAT8_E5M2 = 11  /* 1 byte, with 5 bits of exponent; nccl only, from NCCL 2.24 */
} crunrt_dtype;

typedef enum crunrt_reduce_op {
    CRUNRT_SUM = 0,
    CRUNRT_PRODUCT = 1,
    CRUNRT_MAX = 2,
    CRUNRT_MIN = 3,
    CRUNRT_AVG = 4,  /* the sum divided by the group's size; only for floating types, but on nccl
                      * also for integers, rounded towards zero */
    CRUNRT_BAND = 5, /* BAND, BOR and BXOR are bitwise: only for integers, not on nccl */
    CRUNRT_BOR = 6,
    CRUNRT_BXOR = 7,
    /* every rank multiplies its elements by its own factor (`factor` of crunrt_op); the products
     * are added. Only for floating types, and only on nccl */
    CRUNRT_PREMUL_SUM = 8
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

/* The configuration of one group's communicator of NCCL. If a field is -1 or NULL, NCCL uses its
 * environment variable or its own default. NCCL's manual describes the fields of similar names in
 * ncclConfig_t; each comment names the first version of NCCL that has the field. `blocking` and
 * `commName` are set by this library. `splitShare` and `shrinkShare` are never set, because groups
 * that share resources have one abort flag: a failure of one would end operations of the other as
 * if they had succeeded. */
typedef struct crunrt_nccl_config {
    size_t size;               /* sizeof(crunrt_nccl_config) */
    int min_ctas, max_ctas;    /* smallest and largest number of thread blocks of one kernel;
                                * NCCL 2.17 */
    int cga_cluster_size;      /* number of thread blocks in one cluster, 0 … 8; NCCL 2.17 */
    const char *net_name;      /* name of the network plugin; NCCL 2.17 */
    int traffic_class;         /* traffic class of the network; NCCL 2.26 */
    int collnet;               /* 1: use collective offloading of the network; NCCL 2.27 */
    int cta_policy;            /* policy for thread blocks: 0 default, 1 efficiency, 2 zero; NCCL
                                * 2.27 */
    int nvls_ctas;             /* number of thread blocks for NVLink SHARP; NCCL 2.27 */
    int channels_per_net_peer; /* NCCL 2.28 */
    int nvlink_centric_sched;  /* 1: schedule for NVLink; NCCL 2.28 */
    int graph_usage_mode;      /* CUDA graphs: 0 none, 1 one, 2 several or mixed; NCCL 2.29 */
    int rma_contexts;          /* numRmaCtx: contexts of one-sided operations; NCCL 2.29 */
    int max_p2p_peers;         /* with how many peers at most a rank exchanges messages at a
                                * time; NCCL 2.30 */
    int graph_stream_ordering; /* 0: captured operations run on the captured stream; NCCL 2.30 */
    int launch_order_implicit; /* 1: operations of several groups run in the order of the calls;
                                * NCCL 2.31 */
} crunrt_nccl_config;

#define CRUNRT_NCCL_CONFIG_INIT                                                                    \
    {                                                                                              \
        sizeof(crunrt_nccl_config), -1, -1, -1, NULL, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1   \
    }

typedef struct crunrt_group_options {
    size_t size; /* sizeof(crunrt_group_options) */

    /* "gloo": buffers in host memory. "nccl": buffers in GPU memory. "rccl": buffers in the memory
     * of AMD's GPUs; what this file says of nccl and CUDA holds for rccl and HIP. "mpi": buffers in
     * host memory, in a program that mpirun, mpiexec or srun started. If this is NULL, the
     * environment variable CRUNRT_BACKEND names the backend; if that is not set, the backend is
     * "gloo". If the backend cannot be used, crunrt_group_new() fails; it tries no other backend,
     * except that "nccl" means "rccl" where only the module for AMD's GPUs is installed. */
    const char *backend;

    const char *name; /* the group's name in messages; NULL means "world" or "group <n>" */
    const int *ranks; /* ranks[rank_count]: ranks of the job, each once; NULL means all ranks */
    size_t rank_count;
    /* Timeout of every operation, and of each of the three phases of crunrt_group_new(), in ms.
     * 0 means 600,000 ms. */
    int64_t timeout_ms;
    int device; /* nccl only: number of the CUDA device; -1 means the local rank */
    /* nccl only: the caller's cudaStream_t; see "Streams" above. NULL means CUDA's default stream.
     * The stream must stay valid until the group is destroyed. */
    void *stream;

    /* gloo only: NULL if all ranks use crunrt. If some ranks use another library instead, such as
     * torch.distributed, this is the prefix of that library's keys in the job's store; the group
     * uses only keys with this prefix. If that library expects more of a rank, such as setting
     * torch's barrier key, the caller must do it; docs/worker-runtime.md has an example. */
    const char *foreign_prefix;

    /* nccl only: NULL, or NCCL's configuration of this group. The loaded NCCL must have the fields
     * that are set; else crunrt_group_new() fails with -ENOTSUP. */
    const crunrt_nccl_config *nccl;
} crunrt_group_options;

#define CRUNRT_GROUP_OPTIONS_INIT                                                                  \
    { sizeof(crunrt_group_options), NULL, NULL, NULL, 0, 0, -1, NULL, NULL, NULL }

/* Makes a group. All ranks of the job make their groups in the same order. A rank that is not in
 * `ranks` calls this too, and gets 0 and *out = NULL.
 *
 *   options   read during the call; NULL means a group of all ranks, on the default backend
 *   out       the new group; destroy it with crunrt_group_destroy() before crunrt_destroy()
 *
 * The call has three phases, each with the full timeout: all ranks of the group report in the store
 * that they have come; they exchange addresses through the store; they connect.
 *
 * On nccl, a later group is split from the first group of all ranks (ncclCommSplit, NCCL 2.18 and
 * later), if that group is intact, has no unfinished work, and uses the same device, on every rank.
 * For a split, a rank that is not in `ranks` waits for the other ranks, for at most 10 s. A split
 * that fails also breaks the first group. CRUNRT_NCCL_SPLIT=0 in the environment turns splits off.
 *
 * Returns 0, or
 *   -EINVAL      the options are wrong, or list ranks that the job does not have
 *   -ENOENT      the backend's module cannot be found or loaded; the text lists the places
 *   -ENODEV      nccl: there is no usable GPU; the text has the CUDA error code. mpi: the process
 *                was not started by MPI
 *   -ETIMEDOUT   a phase took longer than the timeout; the text names the phase and the absent
 *                ranks
 *   -ECONNRESET  the store or a peer went away, or another rank gave up; the text quotes
 *                that rank's error
 *   -ENOTSUP     mpi: the program uses another MPI library than the one for which the module mpi
 *                was built
 *   -ENOTSUP     nccl: the loaded NCCL lacks a field of options->nccl that is set
 *   -EPROTO      the ranks give different lists; the text has both. gloo with foreign_prefix: the
 *                other ranks use a later version of Gloo. mpi: the ranks belong to two jobs
 *   -ENOTRECOVERABLE  nccl: after an earlier failure this process can use its GPU no more; end the
 *                process
 *   -EIO         the backend failed; the text quotes its message
 *   -ENOMEM */
CRUNRT_API int crunrt_group_new(crunrt *rt, const crunrt_group_options *options,
                                crunrt_group **out);

/* Closes the group's connections and frees the group. It does not wait for the other ranks. An
 * operation may have ended on this rank while another rank is still in it: data that this rank has
 * sent and the network has not delivered yet are lost, and the other rank gets -ECONNRESET. To
 * avoid this, call crunrt_group_barrier() after the last operation, as MPI_Finalize() does.
 *
 * If works of the group are unfinished, they fail with -ECONNRESET, and the group fails on the
 * other ranks, too; the works can still be waited for and must be freed. On nccl the call waits for
 * at most 90 seconds until NCCL has freed the communicator. If CUDA graphs contain operations of
 * the group, destroy the graphs before the group. If group is NULL, nothing happens. */
CRUNRT_API void crunrt_group_destroy(crunrt_group *group);

/* This rank in the group, the number of ranks, and the name of the backend. A rank outside the
 * group has NULL as its group; for NULL these three functions return -1, -1 and NULL. */
CRUNRT_API int crunrt_group_rank(const crunrt_group *group);
CRUNRT_API int crunrt_group_size(const crunrt_group *group);
CRUNRT_API const char *crunrt_group_backend(const crunrt_group *group); /* "gloo", … */

/* Returns the size of one element in bytes, or 0 if there is no such type. */
CRUNRT_API size_t crunrt_dtype_size(crunrt_dtype dtype);

/* The description of one operation, for crunrt_group_run() and crunrt_group_start(). The functions
 * below, such as crunrt_group_all_reduce(), fill in such a description and run it. */
typedef struct crunrt_op {
    size_t size; /* sizeof(crunrt_op) */
    crunrt_op_kind kind;
    crunrt_dtype dtype;
    crunrt_reduce_op reduce;
    int root; /* root rank of broadcast, reduce, gather, scatter; peer rank of send and receive */
    uint32_t tag; /* used by send and receive only; both sides must give the same tag */
    /* The buffers, which must stay valid until the operation is done. */
    const void *send;
    void *recv;
    /* Number of elements. The comment at the function of each kind, such as
     * crunrt_group_all_gather(), says which buffer has this many. */
    size_t count;
    /* Used only by CRUNRT_OP_ALL_TO_ALL_COUNTS: number of elements sent to each rank, and received
     * from each rank. Both arrays have one number per rank of the group. */
    const size_t *send_counts, *recv_counts;
    int64_t timeout_ms; /* timeout in ms; CRUNRT_TIMEOUT_DEFAULT means the group's timeout */
    void *stream; /* nccl only: the caller's cudaStream_t; NULL means the group's stream */
    /* CRUNRT_PREMUL_SUM only: this rank's factor, one element of `dtype`, in host memory or in
     * memory of the GPU. In host memory it may change after the call has returned, in memory of the
     * GPU after the operation is done. */
    const void *factor;
} crunrt_op;

#define CRUNRT_OP_INIT                                                                             \
    {                                                                                              \
        sizeof(crunrt_op), CRUNRT_OP_BARRIER, CRUNRT_UINT8, CRUNRT_SUM, 0, 0, NULL, NULL, 0, NULL, \
            NULL, CRUNRT_TIMEOUT_DEFAULT, NULL, NULL                                               \
    }

/* Each ..._init() function initialises a struct of options as the ..._INIT macro does; if the
 * argument is NULL, nothing happens. Each ..._size() function returns the size in bytes that the
 * struct has in the loaded library. */
CRUNRT_API size_t crunrt_init_options_size(void);
CRUNRT_API void crunrt_init_options_init(crunrt_init_options *options);
CRUNRT_API size_t crunrt_rejoin_options_size(void);
CRUNRT_API void crunrt_rejoin_options_init(crunrt_rejoin_options *options);
CRUNRT_API size_t crunrt_change_size(void);
CRUNRT_API void crunrt_change_init(crunrt_change *change);
CRUNRT_API size_t crunrt_group_options_size(void);
CRUNRT_API void crunrt_group_options_init(crunrt_group_options *options);
CRUNRT_API size_t crunrt_nccl_config_size(void);
CRUNRT_API void crunrt_nccl_config_init(crunrt_nccl_config *config);
CRUNRT_API size_t crunrt_op_size(void);
CRUNRT_API void crunrt_op_init(crunrt_op *op);

/* Runs one operation to its end. The short forms below return what this call returns: 0, or
 *   -EINVAL      rank, type, operation or pointers are wrong; nothing was sent, the group is intact
 *   -ENOTSUP     the backend does not have this type or operation; nothing was sent, the group is
 *                intact
 *   -ETIMEDOUT   not done in time: a peer hangs or has not made the call, or the ranks made
 *                different calls (the text names them); the group is broken
 *   -ECONNRESET  a peer or the store went away, or another rank failed; the group is broken
 *   -EIO         the backend failed; the group is broken
 *   -EPROTO      with CRUNRT_DEBUG=1 in the environment: the ranks made different calls, and the
 *                text names both; on mpi also: a message was longer than its receive; the group is
 *                broken
 *   -EPIPE       the group was already broken; the text repeats the first failure
 *   -ENOTRECOVERABLE  nccl: the CUDA context is lost, for example because a kernel of the program
 *                has failed; only a new process helps; the group is broken
 *   -ENOMEM      out of memory; the group is broken
 *
 * On nccl, if the caller's stream is being captured into a CUDA graph, the operation becomes part
 * of the graph, and the call returns at once.
 *
 * After a timeout the call waits for one more second, in which the other ranks report that they are
 * alive; the text names the ranks that have not reported. If the store does not answer, the call
 * waits for 6 seconds instead. */
CRUNRT_API int crunrt_group_run(crunrt_group *group, const crunrt_op *op);

/* Sets recv[count], on every rank, to the reduction over all ranks of send[count]. send and recv
 * may be the same buffer. On gloo, for a given group size the order of the additions, and therefore
 * every bit of the result, is the same in every run. On mpi the MPI library chooses the order, on
 * nccl NCCL does. If NCCL uses NVLink SHARP, its default between GPUs on an NVSwitch, the results
 * of two runs can differ; with NCCL_ALGO=Ring in the environment they are equal. */
CRUNRT_API int crunrt_group_all_reduce(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype, crunrt_reduce_op reduce);

/* Sets recv[count] on `root` to the reduction over all ranks of send[count]. On the other ranks
 * recv is not touched and may be NULL. */
CRUNRT_API int crunrt_group_reduce(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, crunrt_reduce_op reduce, int root);

/* Copies buffer[count] of `root` to all ranks. */
CRUNRT_API int crunrt_group_broadcast(crunrt_group *group, void *buffer, size_t count,
                                      crunrt_dtype dtype, int root);

/* Sets recv[size * count], on every rank, to send[count] of all ranks, in rank order. To work in
 * place, let send point to element rank * count of recv. */
CRUNRT_API int crunrt_group_all_gather(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* Sets recv[size * count] on `root` to send[count] of all ranks, in rank order. On the other ranks
 * recv may be NULL. */
CRUNRT_API int crunrt_group_gather(crunrt_group *group, const void *send, void *recv, size_t count,
                                   crunrt_dtype dtype, int root);

/* Sets recv[count] to this rank's part of the root's send[size * count], which has one part per
 * rank, in rank order. On ranks other than `root`, send may be NULL. */
CRUNRT_API int crunrt_group_scatter(crunrt_group *group, const void *send, void *recv, size_t count,
                                    crunrt_dtype dtype, int root);

/* Reduces send[size * count] over all ranks, and sets recv[count] to this rank's part of the
 * result: elements rank * count and following. */
CRUNRT_API int crunrt_group_reduce_scatter(crunrt_group *group, const void *send, void *recv,
                                           size_t count, crunrt_dtype dtype,
                                           crunrt_reduce_op reduce);

/* Exchanges parts between all ranks. send and recv have size * count elements, one part of `count`
 * elements per rank. Part i of send goes to rank i; part i of recv comes from rank i. send and recv
 * must be different buffers. */
CRUNRT_API int crunrt_group_all_to_all(crunrt_group *group, const void *send, void *recv,
                                       size_t count, crunrt_dtype dtype);

/* Sends send_counts[i] elements to rank i and receives recv_counts[i] elements from it, for all
 * ranks i. In send and recv the ranks' parts follow each other without gaps. send and recv must be
 * different buffers. */
CRUNRT_API int crunrt_group_all_to_all_counts(crunrt_group *group, const void *send,
                                              const size_t *send_counts, void *recv,
                                              const size_t *recv_counts, crunrt_dtype dtype);

/* Gathers parts of different lengths. Sets recv, on `root`, to send[send_count] of all ranks, in
 * rank order and without gaps; recv_counts[i] must be the send_count of rank i. On the other ranks
 * recv and recv_counts may be NULL. send and recv must be different buffers. Error texts and flight
 * records call this operation all_to_all_counts, because the library carries it out as one. */
CRUNRT_API int crunrt_group_gather_counts(crunrt_group *group, const void *send, size_t send_count,
                                          void *recv, const size_t *recv_counts,
                                          crunrt_dtype dtype, int root);

/* Scatters parts of different lengths: the reverse of crunrt_group_gather_counts(). On ranks other
 * than `root`, send and send_counts may be NULL. */
CRUNRT_API int crunrt_group_scatter_counts(crunrt_group *group, const void *send,
                                           const size_t *send_counts, void *recv,
                                           size_t recv_count, crunrt_dtype dtype, int root);

/* Gathers parts of different lengths on all ranks, in place: the parts follow each other in
 * `buffer` in rank order and without gaps, part i has counts[i] elements, and before the call each
 * rank has put its own part there. All ranks give the same counts. The library carries this out as
 * one broadcast from each rank, so error texts name a broadcast. */
CRUNRT_API int crunrt_group_all_gather_counts(crunrt_group *group, void *buffer,
                                              const size_t *counts, crunrt_dtype dtype);

/* Reduces `send` over all ranks, and sets recv[counts[r]] on each rank r to its part of the result.
 * The parts follow each other in rank order and without gaps. All ranks give the same counts. send
 * and recv must be different buffers. The library carries this out as one reduce to each rank, so
 * error texts name a reduce. */
CRUNRT_API int crunrt_group_reduce_scatter_counts(crunrt_group *group, const void *send,
                                                  void *recv, const size_t *counts,
                                                  crunrt_dtype dtype, crunrt_reduce_op reduce);

/* Waits until every rank of the group has called this function. */
CRUNRT_API int crunrt_group_barrier(crunrt_group *group);

/* A barrier through the store, which works on any backend and can name the absent ranks. It is
 * slower than crunrt_group_barrier(). If a rank does not come in time, the barrier fails on all
 * ranks, and the text names the ranks that did not come. A failure breaks the group. Returns 0,
 * -EINVAL, -ETIMEDOUT, -ECONNRESET (another rank timed out first or failed, or the store went
 * away), -EPIPE (the group was already broken), -ENOMEM. */
CRUNRT_API int crunrt_group_monitored_barrier(crunrt_group *group, int64_t timeout_ms);

/* Returns the group's ncclComm_t, or NULL if the backend is not nccl. The communicator is valid
 * until the group breaks or is destroyed; the program must not destroy it. It is a blocking
 * communicator, unless the environment has CRUNRT_NCCL_BLOCKING=0 or NCCL_COMM_BLOCKING=0.
 * Operations that the program starts on it with NCCL's own functions have no timeout. If such an
 * operation is captured in a CUDA graph, destroy the graph before the group. */
CRUNRT_API void *crunrt_nccl_comm(crunrt_group *group);

/* ---- memory for fast operations ----
 *
 * NCCL reaches memory without copies if it is registered with the group's communicator. On gloo and
 * mpi these functions work, too, but have no effect on speed. */

/* Allocates `size` bytes of memory that suits the group's backend: with ncclMemAlloc() on nccl, in
 * host memory on gloo and mpi. The caller frees it with crunrt_group_memory_free(), on the same
 * group or on another group of the same backend and device. Returns 0, -EINVAL, -ENOTSUP (NCCL is
 * older than 2.19), -EIO or -ENOTRECOVERABLE (as crunrt_group_run(), but the group stays intact),
 * or -ENOMEM. */
CRUNRT_API int crunrt_group_memory_new(crunrt_group *group, size_t size, void **out);
CRUNRT_API void crunrt_group_memory_free(crunrt_group *group, void *memory);

typedef struct crunrt_registration crunrt_registration;

typedef enum crunrt_register_kind {
    /* for operations of this rank, with ncclCommRegister(); a rank may call this even if the other
     * ranks do not */
    CRUNRT_REGISTER_LOCAL = 0,
    /* as a window for symmetric memory, with ncclCommWindowRegister(): all ranks call this in the
     * same order, each with memory of crunrt_group_memory_new() of the same size; NCCL 2.27 */
    CRUNRT_REGISTER_SYMMETRIC = 1
} crunrt_register_kind;

/* Registers buffer[size], in bytes, with the group.
 *
 *   out   the registration; free it with crunrt_registration_free() before the memory is freed and
 *         before crunrt_group_destroy()
 *
 * Returns 0, -EINVAL, -EPIPE (the group is broken), -ENOTSUP (the loaded NCCL is too old; nothing
 * was done, the group is intact), -ENOMEM; or, if NCCL fails or another rank does not come in time,
 * what crunrt_group_run() returns, and the group is broken. */
CRUNRT_API int crunrt_group_register(crunrt_group *group, void *buffer, size_t size,
                                     crunrt_register_kind kind, crunrt_registration **out);

/* Ends a registration. If `registration` is NULL, nothing happens. */
CRUNRT_API void crunrt_registration_free(crunrt_registration *registration);

/* Sends to, or receives from, one other rank. Two messages with the same tag between the same ranks
 * keep their order. The counts of both sides must be the same. nccl ignores tags. */
CRUNRT_API int crunrt_group_send(crunrt_group *group, const void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);
CRUNRT_API int crunrt_group_recv(crunrt_group *group, void *buffer, size_t count,
                                 crunrt_dtype dtype, int peer, uint32_t tag);

/* Runs ops[count], which must all be sends and receives, at the same time. Ranks that exchange data
 * need this to avoid a deadlock, because a crunrt_group_send() does not always return before the
 * peer has called the matching crunrt_group_recv(). If count is 0, nothing happens. Returns what
 * crunrt_group_run() returns; also -EINVAL if an operation is not a send or receive, or if count is
 * greater than CRUNRT_WORKS_MAX. */
CRUNRT_API int crunrt_group_batch(crunrt_group *group, const crunrt_op *ops, size_t count);

/* ---- asynchronous operations: works ---- */

typedef struct crunrt_work crunrt_work;

/* the largest number of unfinished works of one group, and of operations of one batch */
#define CRUNRT_WORKS_MAX 256

/* Starts an operation and returns at once, with one exception: on nccl the first operation of a
 * kind, or with a peer, connects the ranks, and waits until the other ranks start it, too. Buffers
 * and arrays of counts must stay valid until the operation is done. All ranks must start their
 * collectives in the same order. gloo runs the operation in a separate thread. nccl puts it on a
 * stream; see "Streams" above. mpi makes progress only while this process is in a call of MPI, for
 * example inside crunrt_work_test(); after a failure MPI may still write to the buffers.
 *
 *   out   the new work; free it with crunrt_work_free() before crunrt_group_destroy()
 *
 * Returns 0, or -EINVAL, -ENOTSUP and -EPIPE as crunrt_group_run() does, -EAGAIN (too many
 * unfinished works), -ENOMEM. With CRUNRT_DEBUG=1 it waits until all ranks start the operation, and
 * may also return -ETIMEDOUT, -ECONNRESET, -EPROTO. */
CRUNRT_API int crunrt_group_start(crunrt_group *group, const crunrt_op *op, crunrt_work **out);

/* Starts one send, or one receive, as crunrt_group_start() does. On nccl, sends and receives that
 * are started one after the other are put on the stream together, as soon as the program calls
 * anything else on the group, or tests one of them or waits for it. Sends and receives that are put
 * on the stream together do not wait for each other. But a collective waits for all operations
 * that were started before it. So if a send is started before a collective, its receive must be
 * started before that collective, too; otherwise both ranks hang until the timeout. */
CRUNRT_API int crunrt_group_isend(crunrt_group *group, const void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);
CRUNRT_API int crunrt_group_irecv(crunrt_group *group, void *buffer, size_t count,
                                  crunrt_dtype dtype, int peer, uint32_t tag, crunrt_work **out);

/* Starts ops[count], which must all be sends and receives, at the same time, as one work. Returns
 * what crunrt_group_start() returns; also -EINVAL if an operation is not a send or receive, or if
 * count is 0 or greater than CRUNRT_WORKS_MAX. */
CRUNRT_API int crunrt_group_start_batch(crunrt_group *group, const crunrt_op *ops, size_t count,
                                        crunrt_work **out);

/* Sets *done to 1 if the operation is over, else to 0. Does not wait. Returns 0; or, if the
 * operation has failed, the error that crunrt_group_run() would return (*done is 1); or -EINVAL. */
CRUNRT_API int crunrt_work_test(crunrt_work *work, int *done);

/* Waits until the operation is over. Returns the operation's result, as crunrt_group_run() would;
 * -EAGAIN if the operation is not over after timeout_ms (with CRUNRT_TIMEOUT_DEFAULT the wait ends
 * with the operation's own timeout); or -EINVAL. */
CRUNRT_API int crunrt_work_wait(crunrt_work *work, int64_t timeout_ms);

/* Makes a stream wait for the operation, and returns at once: what is put on the stream after this
 * call runs after the operation. `stream` is a cudaStream_t; NULL means the stream of the group's
 * options. After this call the work can be freed before the operation is over; if the operation
 * fails after the work was freed, a later call on the group returns the failure. On gloo and mpi,
 * which have no streams, this call waits until the operation is over. Returns 0, or what
 * crunrt_work_wait() returns. */
CRUNRT_API int crunrt_work_wait_stream(crunrt_work *work, void *stream);

/* Starts one operation and returns at once. The operation runs after what is on the caller's
 * stream, and what is put on that stream after this call runs after the operation. The call does
 * the same as crunrt_group_start(), crunrt_work_wait_stream() and crunrt_work_free() one after the
 * other; if CRUNRT_WORKS_MAX operations are unfinished, it first waits for the oldest. If the
 * operation fails, a later call on the group returns the failure. If the operation's timeout is
 * over, the communicator is aborted even if the program makes no call, so that
 * cudaStreamSynchronize() returns. On gloo and mpi, which have no streams, the call does the same
 * as crunrt_group_run(). Returns what crunrt_group_start() returns. */
CRUNRT_API int crunrt_group_enqueue(crunrt_group *group, const crunrt_op *op);

/* Waits until all operations that crunrt_group_enqueue() has started are over. Call this after
 * cudaStreamSynchronize() to find out whether the results are valid. Returns 0, the first failure,
 * -EPIPE (the group was already broken), -EAGAIN (an operation is not over after timeout_ms), or
 * -EINVAL. */
CRUNRT_API int crunrt_group_wait(crunrt_group *group, int64_t timeout_ms);

/* Waits until the operation is over, ignores its result, and frees the work. If
 * crunrt_work_wait_stream() has made a stream wait for the operation, this call does not wait. If
 * work is NULL, nothing happens. */
CRUNRT_API void crunrt_work_free(crunrt_work *work);

/* ---- workers without a launcher ---- */

/* The code of one worker; its return value is the worker's exit status. */
typedef int (*crunrt_spawn_fn)(int rank, void *arg);

/* Starts nprocs (1 … 1,024) workers on this host and waits until all have ended. Each worker is a
 * forked copy of this process that calls fn(rank, arg). Its environment has the variables that
 * crunrt_init(NULL, …) reads. The calling process hosts the workers' store, with the module
 * store_host. When a worker fails, the other workers get SIGTERM, and SIGKILL 5 seconds later. If
 * the calling process dies, its workers are killed.
 *
 * Call this before this process starts threads, uses CUDA or NCCL, or takes a lock: threads and the
 * state of CUDA do not exist in a forked process, and a lock of another thread stays locked there.
 *
 * Returns 0 if all workers returned 0; -ECHILD (the text names the first to fail, and how, and
 * quotes that worker's last error in this library); -EINVAL (also if the program ignores SIGCHLD,
 * because the workers' exit statuses are then lost); -ENOENT (the module is missing); -EAGAIN,
 * -EMFILE, -ENOMEM. Source: torch.multiprocessing.spawn. */
CRUNRT_API int crunrt_spawn(crunrt_spawn_fn fn, int nprocs, void *arg);

/* ---- error reports ---- */

/* Writes this worker's error file, as torch's @record does. The launcher shows the file's text in
 * its failure report. The path of the file is in TORCHELASTIC_ERROR_FILE. A complete file replaces
 * an earlier one by rename(), so a reader never sees an incomplete file.
 *
 *   message   one line, "kind: what happened"; NULL means the text of crunrt_last_error()
 *   detail    further lines, for example a stack; NULL means that there are none
 *
 * Bytes that are not UTF-8 are written as U+FFFD. Each text is cut at 64 KiB.
 *
 * Returns 0; -ENOENT (TORCHELASTIC_ERROR_FILE is unset or empty: the launcher wants no error file);
 * -ENOMEM; or the file system's error. On success crunrt_last_error() stays as it was. */
CRUNRT_API int crunrt_report_error(const char *message, const char *detail);

/* Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. A handler writes the error
 * file, with the signal and the faulting address, and ends the process by the same signal. Call
 * this once, from the main thread. If the program later installs its own handler for a signal, that
 * handler replaces this one. Returns 0, -ENOENT (TORCHELASTIC_ERROR_FILE is unset, empty or too
 * long), -ENOMEM. */
CRUNRT_API int crunrt_report_fatal_signals(void);

/* Writes the flight record: the last 2,000 operations of this process, as JSON.
 *
 *   path   NULL means the default path: $CRUNRT_FLIGHT_FILE + rank + ".json"; or, if that variable
 *          is not set, flight.json in the folder of $TORCHELASTIC_ERROR_FILE
 *
 * If one of the two variables is set at crunrt_init(), the library also writes the record to the
 * default path by itself: when a group breaks; when crun's agent requests the record (SIGUSR2 to
 * crun); and on a fatal signal, if crunrt_report_fatal_signals() has been called. The record is
 * renamed to the default path when it is complete, so a reader never sees half of it. The agent
 * requests the record by a signal, whose number is in the environment variable CRUNRT_DUMP_SIGNAL,
 * by default SIGRTMIN+5; 0 turns requests off. If the program has its own handler of that signal
 * at crunrt_init(), the library installs none.
 *
 * Returns 0, -ENOENT (there is no path), or the file system's error. */
CRUNRT_API int crunrt_flight_dump(const char *path);

#ifdef __cplusplus
}
#endif

#endif
