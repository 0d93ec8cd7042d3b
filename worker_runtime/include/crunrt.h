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
 * are written only on success. Nothing is printed, nothing exits, no signal is raised.
 *
 * Threads. Different objects may be used by different threads at the same time. One crunrt_store is
 * safe to share (calls on it take turns, so a long wait holds the others up). One crunrt_group takes
 * one call at a time: the collectives of a group must come in the same order on every rank anyway.
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

/* The text of the last failure on this thread, one line without a newline; "" if none. It names what
 * was tried, on what, why it failed and what can be done. Valid until the next call of this library
 * on this thread. */
CRUNRT_API const char *crunrt_last_error(void);

/* ---- this process's place in the job ---- */

typedef struct crunrt crunrt;
typedef struct crunrt_store crunrt_store;

typedef struct crunrt_init_options {
    size_t size; /* sizeof(crunrt_init_options) */

    /* NULL or "env://": rank, world size and address from the environment, see crunrt_init(). */
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
 * launcher's agent hosts the store and every rank is a client; otherwise rank 0 hosts it.
 *
 * Returns 0, or
 *   -EINVAL      a variable or option is missing or makes no sense; the text says which were looked
 *                for and what was found
 *   -ETIMEDOUT   the store did not answer in time
 *   -ENOENT      MASTER_ADDR cannot be resolved
 *   -ENOTSUP     the method is not known, or rank 0 would have to host the store and cannot
 *   -EADDRINUSE  rank 0 cannot host the store, the port is taken
 *   -ENOMEM, -ECONNRESET, -EPROTO
 * Source: torch.distributed's env:// rendezvous. */
CRUNRT_API int crunrt_init(const crunrt_init_options *options, crunrt **out);

/* Closes the store's connection and frees. Groups must have been destroyed before; stores from
 * crunrt_job_store() end here. NULL is fine. If this process hosts the store it is closed, so rank 0
 * should come last (a barrier before does it). */
CRUNRT_API void crunrt_destroy(crunrt *rt);

CRUNRT_API int crunrt_rank(const crunrt *rt);             /* 0 … world size - 1 */
CRUNRT_API int crunrt_world_size(const crunrt *rt);       /* processes in the job, at least 1 */
CRUNRT_API int crunrt_local_rank(const crunrt *rt);       /* on this node; -1 = not known */
CRUNRT_API int crunrt_local_world_size(const crunrt *rt); /* on this node; -1 = not known */
CRUNRT_API int crunrt_restart_count(const crunrt *rt);    /* attempts before this one */

/* The job's store, connected; borrowed, ends with the runtime. Keys are shared with every process of
 * the job, torch.distributed.TCPStore in Python included. Keys that begin with "crunrt/" are the
 * library's own. */
CRUNRT_API crunrt_store *crunrt_job_store(crunrt *rt);

/* ---- the store: small values that all processes of a job share ----
 *
 * Keys are NUL-terminated text of at most 8,000 bytes; values are (pointer, length) of at most 64 MiB.
 * After -ECONNRESET, -EPIPE or -EPROTO a store is broken: every later call returns the same error. So
 * it is after a timeout of any call but get and wait.
 * Source: torch's TCPStore; the protocol is docs/protocols/store.md. */

/* One more connection, to any TCPStore-compatible server (crun-store, torch's, an agent's).
 *
 *   host, port    where it listens; refused connections are tried again until the time is up
 *   timeout_ms    of connecting, and the default of every call; 300,000 is torch's
 *
 * Returns 0, -EINVAL, -ENOENT (host unknown), -ETIMEDOUT, -EPROTO, -ENOMEM. */
CRUNRT_API int crunrt_store_open(const char *host, int port, int64_t timeout_ms, crunrt_store **out);

/* Ends what crunrt_store_open() and crunrt_store_prefix() gave. NULL is fine. */
CRUNRT_API void crunrt_store_close(crunrt_store *store);

/* A view of a store whose keys get "<prefix>/" in front, as torch's PrefixStore does. Borrows `store`,
 * which must outlive it; may be nested. Returns 0, -EINVAL, -ENOMEM. */
CRUNRT_API int crunrt_store_prefix(crunrt_store *store, const char *prefix, crunrt_store **out);

/* Sets key to value[len]. Copied. The server does not acknowledge: 0 means handed to the kernel.
 * Returns 0, -EINVAL, -ECONNRESET, -EPIPE, -ETIMEDOUT. */
CRUNRT_API int crunrt_store_set(crunrt_store *store, const char *key, const void *value, size_t len);

/* Waits for the key and returns a new copy of its value, for crunrt_free(). One NUL stands behind it,
 * not counted in *len; len may be NULL. Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET, -ENOMEM. */
CRUNRT_API int crunrt_store_get(crunrt_store *store, const char *key, int64_t timeout_ms,
                                void **value, size_t *len);

/* Adds delta to a decimal counter (absent = 0), atomically; *total gets the sum and may be NULL.
 * Returns 0, -EINVAL, -ETIMEDOUT, -ECONNRESET (also when the value is not a number: the server closes
 * the connection). */
CRUNRT_API int crunrt_store_add(crunrt_store *store, const char *key, int64_t delta, int64_t *total);

/* Sets key to desired[desired_len] if it holds expected[expected_len], or if it is absent and
 * expected_len is 0; atomically. *value gets a new copy of what the key holds afterwards, for
 * crunrt_free(); for an absent key and a non-empty `expected` it is `expected`, and nothing was set.
 * value and len may be NULL. Returns 0 (also when nothing was set), -EINVAL, -ETIMEDOUT, -ECONNRESET,
 * -ENOMEM. */
CRUNRT_API int crunrt_store_compare_set(crunrt_store *store, const char *key, const void *expected,
                                        size_t expected_len, const void *desired,
                                        size_t desired_len, void **value, size_t *len);

/* Waits until all of keys[key_count] exist. Returns 0, -EINVAL, -ETIMEDOUT (the text names the keys),
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

/* Frees what this library returned as new. NULL is fine. */
CRUNRT_API void crunrt_free(void *memory);

/* ---- telling the launcher why ---- */

/* Writes the error file that the launcher shows in its failure report, as torch's @record does: to the
 * path in TORCHELASTIC_ERROR_FILE, whole or not at all, replacing an earlier one.
 *
 *   message   one line, "kind: what happened"; NULL = crunrt_last_error()
 *   detail    more lines (a stack, what was being done); NULL = none
 * Bytes that are not UTF-8 are written as U+FFFD; each text is cut at 64 KiB.
 *
 * Returns 0, -ENOENT (no launcher asked for one: TORCHELASTIC_ERROR_FILE is unset or empty), or what
 * the file system said. Does not change crunrt_last_error() on success. */
CRUNRT_API int crunrt_report_error(const char *message, const char *detail);

/* From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT write the error file (signal, address)
 * before they end the process as they would have. Once per process, from the main thread; handlers
 * that the program installs later replace it. Returns 0, -ENOENT (no error file asked for), -ENOMEM. */
CRUNRT_API int crunrt_report_fatal_signals(void);

#ifdef __cplusplus
}
#endif

#endif
