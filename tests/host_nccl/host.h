/* What the files of the host NCCL share: the model of a CUDA device in host memory, on which the
 * model of NCCL runs. README.md in this folder says what is modelled, from which source, and what
 * is not.
 *
 * Two libraries are built from this folder. libcudart.so has the CUDA runtime's symbols and the
 * functions below; libnccl.so.2 has NCCL's symbols and links libcudart.so, so that one process has
 * one device, one set of streams and one record of races.
 *
 * One lock, host_lock(), guards all state of the model. Functions that say "locked" are called with
 * it held. Every completion of an operation wakes all waiters through host_changed(). */
#ifndef HOST_NCCL_HOST_H
#define HOST_NCCL_HOST_H

#include <cuda_runtime.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_API __attribute__((visibility("default")))

/* ---- lock and waiting (streams.c) ---- */

HOST_API void host_lock(void);
HOST_API void host_unlock(void);
HOST_API void host_changed(void);        /* locked: wakes everything that waits */
HOST_API void host_wait_change(void);    /* locked: waits for the next host_changed() */
HOST_API void host_pause(unsigned turn); /* one turn of a spinning wait, without the lock */

/* ---- counters (counters.c) ---- */

/* Adds n to the counter of that name. The names in use are in README.md. */
HOST_API void host_count(const char *name, uint64_t n);

/* For tests: the value of a counter of this process, 0 for a name that was never counted. */
HOST_API uint64_t host_nccl_counter(const char *name);

/* "host nccl: <text>" on stderr, in one write. */
HOST_API void host_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A program did what the documentation forbids: says it as "host nccl: MISUSE: <text>" and ends the
 * process with status 98. */
HOST_API void host_misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- faults on request (faults.c) ---- */

enum host_fault_kind {
    HOST_FAULT_NONE,
    HOST_FAULT_NCCL,  /* the call returns `code`, an ncclResult_t */
    HOST_FAULT_CUDA,  /* the call returns `code`, a cudaError_t; a sticky one poisons the device */
    HOST_FAULT_ASYNC, /* the call succeeds and ncclCommGetAsyncError() reports `code` */
    HOST_FAULT_HANG,  /* the call never returns */
    HOST_FAULT_LATE,  /* the call begins `code` milliseconds later */
    HOST_FAULT_STALL, /* a kernel spins until the abort flag of its communicator is set */
    HOST_FAULT_WEDGE, /* a kernel spins for ever */
};

struct host_fault {
    enum host_fault_kind kind;
    int code;
};

/* Counts one call of `name` and returns the fault that HOST_NCCL_FAULT orders for it. HANG and LATE
 * are carried out here; the caller sees NONE after LATE. Called without the lock. */
HOST_API struct host_fault host_call(const char *name);

/* ---- clocks and races (races.c) ---- */

#define HOST_ACTORS 128 /* streams that live at the same time in one process, and the host */

/* What is known to be complete before an operation: for each actor the number of its last
 * operation that is ordered before. */
struct host_clock {
    uint32_t at[HOST_ACTORS];
};

#define HOST_ACTOR_OF_HOST 0 /* all threads of the program count as one actor */

HOST_API extern struct host_clock host_time; /* locked: what the host has waited for */

HOST_API void host_clock_join(struct host_clock *to, const struct host_clock *from); /* locked */
int host_actor_new(void);                                                            /* locked */

struct host_access {
    const void *at;
    size_t size;
    bool writes;
};

/* Locked. `what` accesses memory as the operation number clock->at[actor] of that actor; a race
 * with an earlier access is reported and ends the process (HOST_NCCL_RACE). */
HOST_API void host_race_check(const char *what, int actor, const struct host_clock *clock,
                              const struct host_access *accesses, size_t count);

/* ---- memory (memory.c) ---- */

/* Where the model finds [p, p + size), or NULL if no device could: the address is in no allocation
 * of CUDA, reaches past the end of one, or was freed. */
HOST_API void *host_memory_view(const void *p, size_t size);

enum host_memory_kind { HOST_PAGEABLE, HOST_PINNED, HOST_DEVICE, HOST_MANAGED };
cudaError_t host_memory_new(enum host_memory_kind kind, size_t size, void **out);
cudaError_t host_memory_free(void *p);
cudaError_t host_memory_register(void *p, size_t size);
cudaError_t host_memory_unregister(void *p);
HOST_API enum host_memory_kind host_memory_kind_of(const void *p, int *device);

/* ---- streams and operations (streams.c) ---- */

struct host_graph;

struct host_op {
    int refs;
    bool done;
    char what[96]; /* "ncclAllReduce #3 on stream 2" */
    struct host_op *next;
    struct host_op **after; /* operations that must be done first */
    size_t after_count;
    void (*run)(void *arg);  /* NULL: nothing, an operation that only orders */
    void (*drop)(void *arg); /* frees arg; may be NULL */
    void *arg;
};

struct host_stream {
    struct host_stream *next; /* of all streams; never unlinked, reused after destroy */
    int device, number, actor;
    bool non_blocking, legacy, destroyed, started;
    struct host_op *first, *last; /* queued; the last one queued, done or not */
    struct host_clock clock;
    struct host_graph *capture; /* NULL: not capturing */
    bool capture_origin;
    uint64_t capture_owner; /* thread that began it */
    int capture_mode;
};

struct host_event {
    struct host_op *after; /* NULL: complete */
    struct host_clock clock;
    bool recorded, destroyed;
    struct host_graph *captured_in; /* recorded while capturing */
    int64_t time_ns;
    struct host_event *next; /* of all events */
};

struct host_stream *host_stream_new(int device, bool non_blocking, bool legacy); /* locked */
struct host_stream *host_streams(void); /* locked: the first of the list */

/* The stream of a handle on this thread's device; NULL after an unknown handle. Handles 0 and 1 are
 * the legacy default stream, 2 the per-thread one. */
HOST_API struct host_stream *host_stream_of(cudaStream_t handle);

HOST_API void host_op_ref(struct host_op *op);   /* locked */
HOST_API void host_op_unref(struct host_op *op); /* locked; NULL is fine */

struct host_work {
    const char *what; /* a symbol's name */
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
    const struct host_access *accesses;
    size_t access_count;
    struct host_op *const *after; /* besides the stream's own order */
    size_t after_count;
    const struct host_clock *clock; /* of what `after` stands for; may be NULL */
};

/* Locked. Puts an operation at the end of the stream, checks its accesses for races, and returns a
 * borrowed pointer to it, valid while locked; take a reference to keep it. On a capturing stream
 * the operation becomes a node of the graph and NULL is returned. */
HOST_API struct host_op *host_put(struct host_stream *stream, const struct host_work *work);

/* Locked. Makes what is put on `stream` from now on wait for `op` and all that `clock` knows. */
HOST_API void host_stream_wait(struct host_stream *stream, struct host_op *op,
                               const struct host_clock *clock);

/* Without the lock. Waits until everything that is now on any stream of the device is done:
 * cudaDeviceSynchronize(), cudaFree() and the end of a communicator do so. */
HOST_API void host_device_wait(int device, const char *who);

/* Without the lock. Waits for one operation; the caller holds a reference. */
HOST_API void host_op_wait(struct host_op *op);

/* ---- errors (cuda_calls.c) ---- */

/* Poisons this process's context: every later call of CUDA returns the error. */
HOST_API void host_poison(cudaError_t error, const char *why);
HOST_API cudaError_t host_poisoned(void);
HOST_API int host_device(void);            /* of the calling thread */
HOST_API void host_set_device(int device); /* likewise */
cudaError_t host_fail(cudaError_t error);  /* notes it as the thread's last error */
cudaError_t host_enter(const char *name);  /* counts a call; the fault or sticky error, if any */

/* ---- capturing (capture.c) ---- */

/* Locked. True if a call that CUDA calls potentially unsafe is forbidden to this thread, because a
 * capture in global mode is under way anywhere, or one in thread-local mode on this thread; the
 * capture is invalidated by it. */
bool host_capture_forbids(void);
struct host_op *host_capture_node(struct host_stream *stream, const struct host_work *work);
void host_capture_invalidate(struct host_graph *graph);                        /* locked */
bool host_capture_joins(struct host_stream *stream, struct host_graph *graph); /* locked */

/* Locked. The graph that the stream captures into, for the count of communicators in it; `unref` is
 * called with `arg` when the graph and all its instances are gone. */
HOST_API void host_capture_keep(struct host_stream *stream, void (*unref)(void *), void *arg);

#endif
