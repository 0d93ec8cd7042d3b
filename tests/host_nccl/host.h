/* A model of CUDA devices in host memory: the declarations that the files of this folder share. A
 * model of NCCL runs on these devices. README.md in this folder lists what is modelled, from which
 * source, and what is not modelled.
 *
 * Two libraries are built from this folder. libcudart.so has the symbols of the CUDA runtime and
 * the functions below. libnccl.so.2 has NCCL's symbols and links libcudart.so, so that both
 * libraries of a process use the same devices, streams and record of memory accesses.
 *
 * One lock, host_lock(), guards streams, operations, events, graphs and the record of memory
 * accesses. In this header "the lock" means this lock. The end of an operation wakes all waiting
 * threads through host_changed(). */
#ifndef HOST_NCCL_HOST_H
#define HOST_NCCL_HOST_H

#include <cuda_runtime.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_API __attribute__((visibility("default")))

/* ---- the lock, and waiting for changes (streams.c) ---- */

HOST_API void host_lock(void);
HOST_API void host_unlock(void);
/* Call this with host_lock() held. Wakes all threads that are in host_wait_change(). */
HOST_API void host_changed(void);
/* Call this with host_lock() held. Waits for the next host_changed(). */
HOST_API void host_wait_change(void);

/* Pauses a loop that polls. `turn` is how often the loop has polled so far; with a larger `turn`
 * the pause is longer. Call this without host_lock(). */
HOST_API void host_pause(unsigned turn);

/* ---- counters (counters.c) ---- */

/* Adds n to the counter `name`. The string `name` must live as long as the process. README.md lists
 * the names of all counters. */
HOST_API void host_count(const char *name, uint64_t n);

/* For tests: returns the value of a counter of this process; 0 for an unknown name. */
HOST_API uint64_t host_nccl_counter(const char *name);

/* Writes the line "host nccl: <text>" to stderr with a single write(). */
HOST_API void host_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Call this if the program under test has done what the documentation of CUDA or NCCL forbids.
 * Writes the line "host nccl: MISUSE: <text>" to stderr and ends the process with status 98. */
HOST_API void host_misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- faults that HOST_NCCL_FAULT orders (faults.c) ---- */

enum host_fault_kind {
    HOST_FAULT_NONE,
    HOST_FAULT_NCCL,  /* the call returns `code`, an ncclResult_t */
    HOST_FAULT_CUDA,  /* the call returns `code`, a cudaError_t; a sticky error also poisons the
                       * context */
    HOST_FAULT_ASYNC, /* the call succeeds; after it ncclCommGetAsyncError() reports `code` */
    HOST_FAULT_HANG,  /* the call never returns */
    HOST_FAULT_LATE,  /* the call begins `code` milliseconds later */
    HOST_FAULT_STALL, /* for a kernel: it spins until its communicator's abort flag is set */
    HOST_FAULT_WEDGE, /* for a kernel: it spins for ever */
};

struct host_fault {
    enum host_fault_kind kind;
    int code;
};

/* Call this without host_lock(), because it may sleep. Counts one call of the function `name`, and
 * returns the fault that HOST_NCCL_FAULT orders for this call; the caller must carry out the fault.
 * This function itself carries out two kinds of faults: for HANG it never returns; for LATE it
 * sleeps and then returns NONE. */
HOST_API struct host_fault host_call(const char *name);

/* ---- vector clocks and the detection of races (races.c) ---- */

/* The largest number of actors in one process. Each stream is an actor; the host is one more actor.
 */
#define HOST_ACTORS 128

/* The vector clock of an operation: at[a] is the number of the last operation of actor `a` that is
 * ordered before this operation. Earlier operations of actor `a` are ordered before it, too. */
struct host_clock {
    uint32_t at[HOST_ACTORS];
};

#define HOST_ACTOR_OF_HOST 0 /* one actor for all threads of the program */

/* The vector clock of the host: it contains the operations that the host has waited for. Guarded by
 * host_lock(). */
HOST_API extern struct host_clock host_time;

/* Call this with host_lock() held. Adds all operations that the clock `from` contains to the clock
 * `to`. */
HOST_API void host_clock_join(struct host_clock *to, const struct host_clock *from);

/* Call this with host_lock() held. Makes an actor, which the detection of races needs for each
 * stream, and returns its number. */
int host_actor_new(void);

struct host_access {
    const void *at;
    size_t size;
    bool writes;
};

/* Call this with host_lock() held. Checks whether the memory accesses of an operation race with
 * earlier ones. The operation is number clock->at[actor] of `actor`; messages call it `what`. A
 * race is reported on stderr and ends the process with status 97. If HOST_NCCL_RACE is "report",
 * the process does not end; if it is "off", races are not reported, either. */
HOST_API void host_race_check(const char *what, int actor, const struct host_clock *clock,
                              const struct host_access *accesses, size_t count);

/* ---- memory (memory.c) ---- */

/* Returns the address at which the model itself accesses the bytes [p, p + size) of a CUDA
 * allocation. Returns NULL for bytes that a device cannot access: they are in no allocation, or
 * reach past the end of one, or have been freed. */
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
    char what[96]; /* for messages, for example "ncclAllReduce (operation 3 of stream 2)" */
    struct host_op *next;
    struct host_op **after; /* operations that must be done before this one runs */
    size_t after_count;
    void (*run)(void *arg);  /* what the operation does; NULL if it only orders other operations */
    void (*drop)(void *arg); /* frees arg; may be NULL */
    void *arg;
};

struct host_stream {
    struct host_stream *next; /* in the list of all streams; destroyed streams stay in it and are
                               * reused */
    int device, number, actor;
    bool non_blocking, legacy, destroyed, started; /* started: true if the stream has its thread */
    /* first: the oldest operation that is not done, or NULL; last: the newest one, done or not */
    struct host_op *first, *last;
    struct host_clock clock;
    struct host_graph *capture; /* the graph into which the stream captures; NULL if it does not */
    bool capture_origin;        /* true if the capture began on this stream; false if it joined
                                 * later */
    uint64_t capture_owner;     /* the thread that began the capture */
    int capture_mode;
};

struct host_event {
    /* the event is complete when this operation is done; NULL if it is complete already */
    struct host_op *after;
    struct host_clock clock;
    bool recorded, destroyed;
    struct host_graph *captured_in; /* graph of the capture in which the event was last recorded;
                                     * or NULL */
    int64_t time_ns;                /* CLOCK_MONOTONIC time at which the device reached the event */
    struct host_event *next;        /* list of all events */
};

/* Call this with host_lock() held. */
struct host_stream *host_stream_new(int device, bool non_blocking, bool legacy);

/* Call this with host_lock() held. Returns the first stream of the list of all streams. */
struct host_stream *host_streams(void);

/* Call this without host_lock(). Returns the stream of a handle, or NULL for an unknown handle. The
 * handles 0 and 1 mean the legacy default stream of the calling thread's device; handle 2 means the
 * thread's own stream (cudaStreamPerThread). */
HOST_API struct host_stream *host_stream_of(cudaStream_t handle);

/* Call these with host_lock() held. host_op_ref() adds a reference to the operation,
 * host_op_unref() drops one. Both do nothing if `op` is NULL. */
HOST_API void host_op_ref(struct host_op *op);
HOST_API void host_op_unref(struct host_op *op);

struct host_work {
    const char *what; /* name of the function that makes the operation, for messages */
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
    const struct host_access *accesses;
    size_t access_count;
    struct host_op *const *after; /* operations of other streams that must be done before this
                                   * one runs */
    size_t after_count;
    /* contains all operations that are ordered before this one through `after`; NULL if there are
     * none */
    const struct host_clock *clock;
};

/* Call this with host_lock() held. Puts an operation at the end of the stream and checks its memory
 * accesses for races. Returns the operation. It is valid only while the lock is held, unless the
 * caller takes a reference. If the stream captures, the operation becomes a node of the graph, and
 * this function returns NULL. */
HOST_API struct host_op *host_put(struct host_stream *stream, const struct host_work *work);

/* Call this with host_lock() held. Makes operations that are put on `stream` after this call wait
 * for `op`. `clock` contains the operations that are ordered before the end of `op`. */
HOST_API void host_stream_wait(struct host_stream *stream, struct host_op *op,
                               const struct host_clock *clock);

/* Call this without host_lock(). Waits until all operations that are now on any stream of the
 * device are done; cudaDeviceSynchronize(), cudaFree() and the end of a communicator do this. `who`
 * is the name of the caller, for messages. */
HOST_API void host_device_wait(int device, const char *who);

/* Call this without host_lock(), but with a reference to the operation. Waits until it is done. */
HOST_API void host_op_wait(struct host_op *op);

/* ---- errors (cuda_calls.c) ---- */

/* Makes an error sticky, as if the CUDA context were lost. After this, calls of CUDA return the
 * error, no further operation runs, and kernels that wait for other ranks end. Does nothing if
 * another error is sticky already. */
HOST_API void host_poison(cudaError_t error, const char *why);

/* Returns the sticky error, or cudaSuccess if there is none. */
HOST_API cudaError_t host_poisoned(void);

HOST_API int host_device(void);            /* returns the calling thread's current device */
HOST_API void host_set_device(int device); /* sets the calling thread's current device */
cudaError_t host_fail(cudaError_t error);  /* sets the thread's last error; returns `error` */

/* These return and set the calling thread's last error. Unlike cudaGetLastError(), they do not
 * count as a call, and host_last_error() does not clear the error. */
cudaError_t host_last_error(void);
void host_set_last_error(cudaError_t error);

/* Counts one call of the CUDA function `name`. Returns cudaSuccess; or an error (one that
 * HOST_NCCL_FAULT orders, or the sticky error), which the CUDA function must return at once. */
cudaError_t host_enter(const char *name);

/* ---- the capture of streams into graphs (capture.c) ---- */

/* Call this with host_lock() held, in each function that the CUDA manual calls potentially unsafe
 * during a capture. Returns true if a capture forbids such a call to this thread: a capture that
 * any thread began in global mode, or that this thread began in thread-local mode. As in CUDA, each
 * capture that forbids the call becomes invalid. */
bool host_capture_forbids(void);
struct host_op *host_capture_node(struct host_stream *stream, const struct host_work *work);
/* Call this with host_lock() held. Makes the capture into the graph invalid. */
void host_capture_invalidate(struct host_graph *graph);

/* Call this with host_lock() held when a stream waits for an event that was recorded in a capture.
 * Makes the stream capture into the same graph. Returns false if the stream already captures into
 * another graph. */
bool host_capture_joins(struct host_stream *stream, struct host_graph *graph);

/* Call this with host_lock() held, for a stream that captures. When the stream's graph and all
 * instances of the graph have been freed, unref(arg) is called. A communicator uses this to count
 * the graphs that contain its operations. */
HOST_API void host_capture_keep(struct host_stream *stream, void (*unref)(void *), void *arg);

#endif
