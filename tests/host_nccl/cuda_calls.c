/* The functions of the CUDA runtime for errors, devices, streams and events.
 *
 * Modelled on the CUDA Runtime API manual: "Error Handling" (each thread has a last error; an error
 * that leaves the process in an inconsistent state is returned by every later call), "Device
 * Management", "Stream Management" and "Event Management". */
#include "tests/host_nccl/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __thread cudaError_t last_error;
static __thread int current_device;
static _Atomic int poison;

/* ---- errors ---- */

void host_poison(cudaError_t error, const char *why) {
    int none = cudaSuccess;
    if (!atomic_compare_exchange_strong(&poison, &none, (int) error)) return;
    host_say("CUDA error %d is sticky from now on: %s", (int) error, why);
    host_lock();
    host_changed();
    host_unlock();
}

cudaError_t host_last_error(void) { return last_error; }
void host_set_last_error(cudaError_t error) { last_error = error; }
cudaError_t host_poisoned(void) { return (cudaError_t) atomic_load(&poison); }
int host_device(void) { return current_device; }
void host_set_device(int device) { current_device = device; }

cudaError_t host_fail(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

/* Returns true if an error is sticky. Sticky are the errors of which the CUDA manual says that "the
 * process must be terminated and relaunched". */
static bool is_sticky(int code) {
    return code == 214 || code == 220 || code == 226 || code == 700 || code == 702 || code == 710 ||
           (code >= 714 && code <= 719) || code == 721;
}

static cudaError_t enter(const char *name) {
    struct host_fault f = host_call(name);
    if (f.kind == HOST_FAULT_CUDA) {
        if (is_sticky(f.code)) host_poison((cudaError_t) f.code, "ordered by HOST_NCCL_FAULT");
        return host_fail((cudaError_t) f.code);
    }
    return host_fail(host_poisoned());
}

cudaError_t host_enter(const char *name) { return enter(name); }

#define ENTER(name)                                                                                \
    do {                                                                                           \
        cudaError_t entered = enter(#name);                                                        \
        if (entered != cudaSuccess) return entered;                                                \
    } while (0)

static bool forbidden(void) {
    host_lock();
    bool no = host_capture_forbids();
    host_unlock();
    return no;
}

/* The first lines of a function that the CUDA manual calls potentially unsafe during a capture. */
#define ENTER_UNSAFE(name)                                                                         \
    do {                                                                                           \
        ENTER(name);                                                                               \
        if (forbidden()) return host_fail(cudaErrorStreamCaptureUnsupported);                      \
    } while (0)

static int device_count(void) {
    const char *text = getenv("HOST_CUDA_DEVICES");
    return text != NULL ? atoi(text) : 8;
}

static int64_t now_ns(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t) ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#pragma GCC visibility push(default)

cudaError_t cudaGetLastError(void) {
    (void) host_call("cudaGetLastError");
    cudaError_t e = host_poisoned() != cudaSuccess ? host_poisoned() : last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void) {
    (void) host_call("cudaPeekAtLastError");
    return host_poisoned() != cudaSuccess ? host_poisoned() : last_error;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {905, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {907, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const char *cudaGetErrorName(cudaError_t e) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == (int) e) return errors[i].name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == (int) e) return errors[i].text;
    return "unknown error";
}

/* ---- devices ---- */

cudaError_t cudaDriverGetVersion(int *version) {
    (void) host_call("cudaDriverGetVersion");
    *version = device_count() > 0 ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    (void) host_call("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    ENTER(cudaGetDeviceCount);
    if (device_count() <= 0) return host_fail(cudaErrorNoDevice);
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    ENTER(cudaSetDevice);
    if (device < 0 || device >= device_count()) return host_fail(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    ENTER(cudaGetDevice);
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ENTER(cudaDeviceGetAttribute);
    (void) device;
    const char *pageable = getenv("HOST_CUDA_PAGEABLE");
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
             : attribute == cudaDevAttrPageableMemoryAccess ? pageable != NULL && *pageable == '1'
             : attribute == cudaDevAttrUnifiedAddressing    ? 1
             : attribute == cudaDevAttrConcurrentManagedAccess ? 1
                                                               : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
    ENTER(cudaDeviceGetPCIBusId);
    (void) snprintf(id, (size_t) len, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER_UNSAFE(cudaDeviceSynchronize);
    host_device_wait(current_device, "cudaDeviceSynchronize");
    return host_fail(host_poisoned());
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    ENTER(cudaStreamCreateWithFlags);
    host_lock();
    *stream = (cudaStream_t) (void *) host_stream_new(current_device,
                                                      (flags & cudaStreamNonBlocking) != 0, false);
    host_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
    (void) priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

#define STREAM(variable, handle)                                                                   \
    struct host_stream *variable = host_stream_of(handle);                                         \
    if (variable == NULL) return host_fail(cudaErrorInvalidResourceHandle)

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER(cudaStreamDestroy);
    STREAM(s, stream);
    host_lock();
    s->destroyed = true; /* as in CUDA, operations that are on the stream still run */
    host_unlock();
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
    ENTER(cudaStreamGetFlags);
    STREAM(s, stream);
    *flags = s->non_blocking ? cudaStreamNonBlocking : cudaStreamDefault;
    return cudaSuccess;
}

/* Call this with host_lock() held, before a query of a stream or a wait for a stream. If the stream
 * captures, this invalidates the capture, as CUDA does, and returns true. */
static bool breaks_capture(struct host_stream *s) {
    if (s->capture == NULL) return false;
    host_capture_invalidate(s->capture);
    return true;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    ENTER(cudaStreamQuery);
    STREAM(s, stream);
    host_lock();
    bool broken = breaks_capture(s), done = s->last == NULL || s->last->done;
    if (done && !broken) host_clock_join(&host_time, &s->clock);
    host_unlock();
    if (broken) return host_fail(cudaErrorStreamCaptureUnsupported);
    return host_poisoned() != cudaSuccess ? host_fail(host_poisoned())
           : done                         ? cudaSuccess
                                          : cudaErrorNotReady;
}

static cudaError_t wait_for(struct host_op *op, const struct host_clock *clock) {
    if (op != NULL) host_op_wait(op);
    host_lock();
    host_clock_join(&host_time, clock);
    host_op_unref(op);
    host_unlock();
    return host_fail(host_poisoned());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ENTER(cudaStreamSynchronize);
    STREAM(s, stream);
    host_lock();
    bool broken = breaks_capture(s);
    struct host_op *last = broken ? NULL : s->last;
    struct host_clock clock = s->clock;
    host_op_ref(last);
    host_unlock();
    return broken ? host_fail(cudaErrorStreamCaptureUnsupported) : wait_for(last, &clock);
}

/* ---- events ---- */

static struct host_event *events;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
    ENTER(cudaEventCreateWithFlags);
    (void) flags;
    host_lock();
    struct host_event *e = events;
    while (e != NULL && !e->destroyed) e = e->next;
    if (e == NULL) {
        e = calloc(1, sizeof(*e));
        if (e == NULL) abort();
        e->next = events;
        events = e;
    }
    e->destroyed = e->recorded = false;
    e->captured_in = NULL;
    host_op_unref(e->after);
    e->after = NULL;
    host_unlock();
    *event = (cudaEvent_t) (void *) e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

static struct host_event *event_of(cudaEvent_t handle) {
    struct host_event *found = NULL;
    host_lock();
    for (struct host_event *e = events; e != NULL; e = e->next)
        if (e == (struct host_event *) (void *) handle && !e->destroyed) found = e;
    host_unlock();
    return found;
}

#define EVENT(variable, handle)                                                                    \
    struct host_event *variable = event_of(handle);                                                \
    if (variable == NULL) return host_fail(cudaErrorInvalidResourceHandle)

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER(cudaEventDestroy);
    EVENT(e, event);
    host_lock();
    e->destroyed = true; /* as in CUDA, an event may be destroyed before it is complete */
    host_unlock();
    return cudaSuccess;
}

static void stamp(void *arg) { *(int64_t *) arg = now_ns(); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ENTER(cudaEventRecord);
    EVENT(e, event);
    STREAM(s, stream);
    host_lock();
    e->captured_in = s->capture;
    if (s->capture == NULL) {
        struct host_work w = {.what = "cudaEventRecord", .run = stamp, .arg = &e->time_ns};
        struct host_op *op = host_put(s, &w);
        host_op_ref(op);
        host_op_unref(e->after);
        e->after = op;
        e->clock = s->clock;
        e->recorded = true;
    }
    host_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    (void) flags;
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER_UNSAFE(cudaEventQuery);
    EVENT(e, event);
    host_lock();
    struct host_graph *captured = e->captured_in;
    bool done = e->after == NULL || e->after->done;
    if (done && e->recorded) host_clock_join(&host_time, &e->clock);
    if (captured != NULL) host_capture_invalidate(captured);
    host_unlock();
    if (captured != NULL) return host_fail(cudaErrorCapturedEvent);
    return host_poisoned() != cudaSuccess ? host_fail(host_poisoned())
           : done                         ? cudaSuccess
                                          : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER_UNSAFE(cudaEventSynchronize);
    EVENT(e, event);
    host_lock();
    bool captured = e->captured_in != NULL;
    struct host_op *op = captured ? NULL : e->after;
    struct host_clock clock = e->clock;
    host_op_ref(op);
    host_unlock();
    return captured ? host_fail(cudaErrorCapturedEvent) : wait_for(op, &clock);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    ENTER(cudaEventElapsedTime);
    EVENT(a, start);
    EVENT(b, end);
    if (!a->recorded || !b->recorded) return host_fail(cudaErrorInvalidResourceHandle);
    if ((a->after != NULL && !a->after->done) || (b->after != NULL && !b->after->done))
        return cudaErrorNotReady;
    *ms = (float) (b->time_ns - a->time_ns) / 1e6F;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    ENTER(cudaStreamWaitEvent);
    EVENT(e, event);
    STREAM(s, stream);
    cudaError_t result = cudaSuccess;
    host_lock();
    if (e->captured_in != NULL) {
        if (!host_capture_joins(s, e->captured_in)) result = cudaErrorStreamCaptureMerge;
    } else if (s->capture != NULL) {
        if ((flags & cudaEventWaitExternal) == 0) {
            host_capture_invalidate(s->capture);
            result = cudaErrorStreamCaptureIsolation;
        }
    } else if (e->recorded) {
        host_stream_wait(s, e->after, &e->clock);
    }
    host_unlock();
    return host_fail(result);
}

/* ---- host functions, and a simulated kernel of the program under test ---- */

struct host_function {
    cudaHostFn_t fn;
    void *arg;
};

static void call_function(void *arg) {
    const struct host_function *f = arg;
    f->fn(f->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg) {
    ENTER(cudaLaunchHostFunc);
    STREAM(s, stream);
    struct host_function *f = malloc(sizeof(*f));
    if (f == NULL) return host_fail(cudaErrorMemoryAllocation);
    *f = (struct host_function){fn, arg};
    host_lock();
    struct host_work w = {
        .what = "cudaLaunchHostFunc", .run = call_function, .drop = free, .arg = f};
    (void) host_put(s, &w);
    host_unlock();
    return cudaSuccess;
}

/* For tests: puts a simulated kernel on the stream. The kernel runs for `ms` milliseconds, and then
 * sets `count` floats at `at` to `value`. */
cudaError_t host_cuda_fill(cudaStream_t stream, float *at, size_t count, float value, int ms);

struct fill {
    float *at, value;
    size_t count;
    int ms;
};

static void run_fill(void *arg) {
    const struct fill *f = arg;
    float *view = host_memory_view(f->at, f->count * sizeof(float));
    struct timespec nap = {f->ms / 1000, f->ms % 1000 * 1000000L};
    (void) nanosleep(&nap, NULL);
    if (view == NULL) {
        host_poison(cudaErrorIllegalAddress, "a kernel wrote to no memory of the device");
        return;
    }
    for (size_t i = 0; i < f->count; i++) view[i] = f->value;
}

cudaError_t host_cuda_fill(cudaStream_t stream, float *at, size_t count, float value, int ms) {
    ENTER(host_cuda_fill);
    STREAM(s, stream);
    struct fill *f = malloc(sizeof(*f));
    if (f == NULL) return host_fail(cudaErrorMemoryAllocation);
    *f = (struct fill){at, value, count, ms};
    struct host_access access = {at, count * sizeof(float), true};
    host_lock();
    struct host_work w = {.what = "the program's kernel",
                          .run = run_fill,
                          .drop = free,
                          .arg = f,
                          .accesses = &access,
                          .access_count = 1};
    (void) host_put(s, &w);
    host_unlock();
    return cudaSuccess;
}

#pragma GCC visibility pop
