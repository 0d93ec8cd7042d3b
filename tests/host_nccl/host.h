/* The model of CUDA devices in host memory: the declarations that the files of this folder share.
 * The model of NCCL runs on these devices. README.md in this folder lists what is modelled, from
 * which source, and what is not modelled.
 *
 * Two libraries are built from this folder. libcudart.so has the CUDA runtime's symbols and the
 * functions below. libnccl.so.2 has NCCL's symbols and links libcudart.so, so that both libraries
 * of a process use the same devices, streams and record of memory accesses.
 *
 * One lock, host_lock(), guards streams, operations, events, graphs and the record of memory
 * accesses. A function marked LOCKED must be called with that lock held. The end of an operation
 * wakes all waiting threads through host_changed(). */
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
HOST_API void host_changed(void);     /* LOCKED. Wakes all threads in host_wait_change(). */
HOST_API void host_wait_change(void); /* LOCKED. Waits for the next host_changed(). */

/* Pauses a loop that polls. `turn` is the number of iterations so far: the more, the longer the
 * pause. Do not hold the lock. */
HOST_API void host_pause(unsigned turn);

/* ---- counters (counters.c) ---- */

/* Adds n to the counter `name`, which must live as long as the process. README.md lists the names
 * in use. */
HOST_API void host_count(const char *name, uint64_t n);

/* For tests: returns the value of a counter of this process, or 0 if nothing was ever added. */
HOST_API uint64_t host_nccl_counter(const char *name);

/* Writes the line "host nccl: <text>" to stderr, in one write. */
HOST_API void host_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Call this when the program under test has done what the documentation of CUDA or NCCL forbids. It
 * writes the line "host nccl: MISUSE: <text>" to stderr and ends the process with status 98. */
HOST_API void host_misuse(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- faults that HOST_NCCL_FAULT orders (faults.c) ---- */

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

/* Counts one call of `name`, and returns the fault that HOST_NCCL_FAULT orders for this call, which
 * the caller must carry out. This function itself carries out HANG, so that it never returns, and
 * LATE: it sleeps and returns NONE. Do not hold the lock, because this function may sleep. */
HOST_API struct host_fault host_call(const char *name);

/* ---- vector clocks and the detection of races (races.c) ---- */

/* The largest number of actors in one process. Each stream is an actor, and the host is one. */
#define HOST_ACTORS 128

/* A vector clock: at[a] is the number of the last operation of actor a that is ordered before an
 * operation. All operations of actor a with smaller numbers are ordered before it, too. */
struct host_clock {
    uint32_t at[HOST_ACTORS];
};

#define HOST_ACTOR_OF_HOST 0 /* the actor for all threads of the program together */

/* The operations that the host has waited for. Read and write it only with the lock held. */
HOST_API extern struct host_clock host_time;

/* LOCKED. Adds to `to` the operations that `from` contains. */
HOST_API void host_clock_join(struct host_clock *to, const struct host_clock *from);

/* LOCKED. Returns the number of a new actor. */
int host_actor_new(void);

struct host_access {
    const void *at;
    size_t size;
    bool writes;
};

/* LOCKED. Checks the memory accesses of one operation: operation number clock->at[actor] of
 * `actor`, which messages call `what`. A race with an earlier access is reported and ends the
 * process with status 97, unless HOST_NCCL_RACE is "report" (do not end) or "off" (do not report).
 */
HOST_API void host_race_check(const char *what, int actor, const struct host_clock *clock,
                              const struct host_access *accesses, size_t count);

/* ---- memory (memory.c) ---- */

/* Returns the address at which the model itself reads and writes the bytes [p, p + size). Returns
 * NULL if a device could not access them: they are in no CUDA allocation, reach past the end of
 * one, or were freed. */
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
    char what[96]; /* for messages: "ncclAllReduce (operation 3 of stream 2)" */
    struct host_op *next;
    struct host_op **after; /* operations that must be done before this one runs */
    size_t after_count;
    void (*run)(void *arg);  /* if it is NULL, the operation only orders other operations */
    void (*drop)(void *arg); /* frees arg; may be NULL */
    void *arg;
};

struct host_stream {
    struct host_stream *next; /* list of all streams; a destroyed stream stays and is reused */
    int device, number, actor;
    bool non_blocking, legacy, destroyed, started; /* started: the stream has its thread */
    /* first: the oldest operation that is not done; last: the newest operation, done or not */
    struct host_op *first, *last;
    struct host_clock clock;
    struct host_graph *capture; /* if it is NULL, the stream does not capture */
    bool capture_origin;        /* the capture began on this stream; others joined by an event */
    uint64_t capture_owner;     /* the thread that began the capture */
    int capture_mode;
};

struct host_event {
    /* the event is complete once this operation is done; if `after` is NULL, it is complete */
    struct host_op *after;
    struct host_clock clock;
    bool recorded, destroyed;
    struct host_graph *captured_in; /* last recorded in a capture into this graph, or NULL */
    int64_t time_ns;                /* when the device reached the event, by CLOCK_MONOTONIC */
    struct host_event *next;        /* list of all events */
};

/* LOCKED. */
struct host_stream *host_stream_new(int device, bool non_blocking, bool legacy);

/* LOCKED. Returns the first stream in the list of all streams. */
struct host_stream *host_streams(void);

/* Returns the stream that a handle means, or NULL for an unknown handle. The handles 0 and 1 mean
 * the legacy default stream of the calling thread's device, 2 means the thread's own stream. Do not
 * hold the lock. */
HOST_API struct host_stream *host_stream_of(cudaStream_t handle);

HOST_API void host_op_ref(struct host_op *op);   /* LOCKED. op may be NULL. */
HOST_API void host_op_unref(struct host_op *op); /* LOCKED. op may be NULL. */

struct host_work {
    const char *what; /* for messages: the function that makes the operation */
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
    const struct host_access *accesses;
    size_t access_count;
    struct host_op *const *after; /* operations of other streams that must be done before it */
    size_t after_count;
    /* all operations that are ordered before this one because it waits for `after`; or NULL */
    const struct host_clock *clock;
};

/* LOCKED. Puts an operation at the end of the stream and checks its accesses for races. Returns the
 * operation, which is valid until the lock is released; to use it longer, take a reference. If the
 * stream captures, the operation becomes a node of the graph, and NULL is returned. */
HOST_API struct host_op *host_put(struct host_stream *stream, const struct host_work *work);

/* LOCKED. Makes all operations that are later put on `stream` wait for `op`. `clock` contains what
 * is ordered before the end of `op`. */
HOST_API void host_stream_wait(struct host_stream *stream, struct host_op *op,
                               const struct host_clock *clock);

/* Waits until all operations that are now on any stream of the device are done, as
 * cudaDeviceSynchronize(), cudaFree() and the end of a communicator do. `who` is the caller, for
 * messages. Do not hold the lock. */
HOST_API void host_device_wait(int device, const char *who);

/* Waits until one operation is done. Do not hold the lock, but a reference to the operation. */
HOST_API void host_op_wait(struct host_op *op);

/* ---- errors (cuda_calls.c) ---- */

/* Makes an error sticky, as if the CUDA context were lost: later calls of CUDA return the error, no
 * further operation runs, and kernels that wait for other ranks end. Does nothing if an error is
 * already sticky. */
HOST_API void host_poison(cudaError_t error, const char *why);

/* Returns the sticky error, or cudaSuccess. */
HOST_API cudaError_t host_poisoned(void);

HOST_API int host_device(void);            /* returns the current device of the calling thread */
HOST_API void host_set_device(int device); /* sets the current device of the calling thread */
cudaError_t host_fail(cudaError_t error);  /* stores the thread's last error and returns it */

/* Return and set the calling thread's last error. They neither count a call nor clear the error. */
cudaError_t host_last_error(void);
void host_set_last_error(cudaError_t error);

/* Counts one call of a CUDA function. Returns the error with which it must end at once (an ordered
 * fault or the sticky error), or cudaSuccess. */
cudaError_t host_enter(const char *name);

/* ---- the capture of streams into graphs (capture.c) ---- */

/* LOCKED. Call this in each function that the CUDA manual calls potentially unsafe during a
 * capture. Returns true if a capture forbids such a call to this thread: a capture that any thread
 * began in global mode, or one that this thread began in thread-local mode. Every capture that
 * forbids the call is invalidated, as CUDA does. */
bool host_capture_forbids(void);
struct host_op *host_capture_node(struct host_stream *stream, const struct host_work *work);
void host_capture_invalidate(struct host_graph *graph); /* LOCKED. */

/* LOCKED. Call this when a stream waits for an event that was recorded in a capture: the stream
 * then captures into the same graph. Returns false if it already captures into another graph. */
bool host_capture_joins(struct host_stream *stream, struct host_graph *graph);

/* LOCKED. Makes the graph into which the stream captures call unref(arg) when the graph and all its
 * instances are freed. A communicator counts with it the graphs that contain its operations. */
HOST_API void host_capture_keep(struct host_stream *stream, void (*unref)(void *), void *arg);

#endif
