/* The functions of the CUDA runtime for memory: allocation, copies, sets, attributes of pointers.
 *
 * Modelled on the CUDA Runtime API manual, "API synchronization behavior", which says when a copy
 * returns: a copy from pageable memory returns when the data has been staged, before it has
 * arrived; a copy to pageable memory returns when it is complete; a copy from device to device
 * memory, and cudaMemset, return at once. cudaFree and cudaFreeHost wait for the whole device
 * (manual of cudaFree; NVIDIA's best-practices guide; NCCL issue 1013). */
#include "tests/host_nccl/host.h"

#include <stdlib.h>
#include <string.h>

#define ENTER(name)                                                                                \
    do {                                                                                           \
        cudaError_t entered = host_enter(#name);                                                   \
        if (entered != cudaSuccess) return entered;                                                \
    } while (0)

static bool forbidden(void) {
    host_lock();
    bool no = host_capture_forbids();
    host_unlock();
    return no;
}

#define ENTER_UNSAFE(name)                                                                         \
    do {                                                                                           \
        ENTER(name);                                                                               \
        if (forbidden()) return host_fail(cudaErrorStreamCaptureUnsupported);                      \
    } while (0)

/* ---- copies and sets, as operations of a stream ---- */

struct copy {
    void *to;
    const void *from; /* the source of a copy; NULL for a set, which sets `to` to `value` */
    void *staged;     /* a copy of the data in `from`, made in the program's call; or NULL */
    int value;
    size_t size;
};

/* Returns the address at which the model accesses a buffer of a copy. A copy, in contrast to a
 * kernel, may also use host memory that CUDA has not allocated. */
static void *view_of(const void *p, size_t size) {
    void *view = host_memory_view(p, size);
    if (view == NULL && host_memory_kind_of(p, NULL) == HOST_PAGEABLE)
        view = (void *) (uintptr_t) p;
    return view;
}

static void run_copy(void *arg) {
    const struct copy *c = arg;
    void *to = view_of(c->to, c->size);
    const void *from = c->staged != NULL ? c->staged : view_of(c->from, c->size);
    if (to == NULL || (from == NULL && c->from != NULL)) {
        host_poison(cudaErrorIllegalAddress, "a copy reached past its allocation");
    } else if (c->from == NULL) {
        memset(to, c->value, c->size);
    } else {
        memmove(to, from, c->size);
    }
}

static void drop_copy(void *arg) {
    struct copy *c = arg;
    free(c->staged);
    free(c);
}

/* Puts a copy on the stream. Returns the operation, to which the caller gets a reference; or NULL
 * if the stream captures. */
static struct host_op *put_copy(struct host_stream *s, const char *what, struct copy *c) {
    struct host_access accesses[2] = {{c->to, c->size, true}, {c->from, c->size, false}};
    size_t count = c->from == NULL || c->staged != NULL ? 1 : 2;
    host_lock();
    struct host_work w = {.what = what,
                          .run = run_copy,
                          .drop = drop_copy,
                          .arg = c,
                          .accesses = accesses,
                          .access_count = count};
    struct host_op *op = host_put(s, &w);
    host_op_ref(op);
    host_unlock();
    return op;
}

static struct copy *copy_new(void *to, const void *from, int value, size_t size) {
    struct copy *c = calloc(1, sizeof(*c));
    if (c == NULL) abort();
    *c = (struct copy){.to = to, .from = from, .value = value, .size = size};
    return c;
}

static void stage(struct copy *c) {
    c->staged = malloc(c->size);
    if (c->staged == NULL) abort();
    memcpy(c->staged, c->from, c->size);
}

static void wait_and_know(struct host_stream *s, struct host_op *op) {
    host_lock();
    struct host_clock clock = s->clock;
    host_unlock();
    if (op != NULL) host_op_wait(op);
    host_lock();
    if (op != NULL) host_clock_join(&host_time, &clock);
    host_op_unref(op);
    host_unlock();
}

static void forget(struct host_op *op) {
    host_lock();
    host_op_unref(op);
    host_unlock();
}

static cudaError_t copy_on(struct host_stream *s, const char *what, void *to, const void *from,
                           size_t size, bool host_waits) {
    if (size == 0) return cudaSuccess;
    if (to == NULL || from == NULL) return host_fail(cudaErrorInvalidValue);
    bool pageable_from = host_memory_kind_of(from, NULL) == HOST_PAGEABLE;
    bool pageable_to = host_memory_kind_of(to, NULL) == HOST_PAGEABLE;
    bool on_device = !pageable_from && !pageable_to &&
                     host_memory_kind_of(from, NULL) == HOST_DEVICE &&
                     host_memory_kind_of(to, NULL) == HOST_DEVICE;
    struct copy *c = copy_new(to, from, 0, size);
    bool staged = pageable_from && !pageable_to && s->capture == NULL;
    if (staged) stage(c);
    struct host_op *op = put_copy(s, what, c);
    if (pageable_to || (host_waits && !staged && !on_device))
        wait_and_know(s, op);
    else
        forget(op);
    return host_fail(host_poisoned());
}

#pragma GCC visibility push(default)

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    ENTER_UNSAFE(cudaMemcpy);
    (void) kind;
    return copy_on(host_stream_of(NULL), "cudaMemcpy", to, from, size, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    ENTER(cudaMemcpyAsync);
    (void) kind;
    struct host_stream *s = host_stream_of(stream);
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    return copy_on(s, "cudaMemcpyAsync", to, from, size, false);
}

cudaError_t cudaMemset(void *at, int value, size_t size) {
    ENTER_UNSAFE(cudaMemset);
    forget(put_copy(host_stream_of(NULL), "cudaMemset", copy_new(at, NULL, value, size)));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream) {
    ENTER(cudaMemsetAsync);
    struct host_stream *s = host_stream_of(stream);
    if (s == NULL) return host_fail(cudaErrorInvalidResourceHandle);
    forget(put_copy(s, "cudaMemsetAsync", copy_new(at, NULL, value, size)));
    return cudaSuccess;
}

/* ---- allocation ---- */

cudaError_t cudaMalloc(void **out, size_t size) {
    ENTER_UNSAFE(cudaMalloc);
    return host_fail(host_memory_new(HOST_DEVICE, size, out));
}

cudaError_t cudaMallocManaged(void **out, size_t size, unsigned int flags) {
    ENTER_UNSAFE(cudaMallocManaged);
    (void) flags;
    return host_fail(host_memory_new(HOST_MANAGED, size, out));
}

cudaError_t cudaMallocHost(void **out, size_t size) {
    ENTER_UNSAFE(cudaMallocHost);
    return host_fail(host_memory_new(HOST_PINNED, size, out));
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int flags) {
    ENTER_UNSAFE(cudaHostAlloc);
    (void) flags;
    return host_fail(host_memory_new(HOST_PINNED, size, out));
}

cudaError_t cudaFree(void *p) {
    ENTER_UNSAFE(cudaFree);
    if (p == NULL) return cudaSuccess;
    host_device_wait(host_device(), "cudaFree");
    return host_fail(host_memory_free(p));
}

cudaError_t cudaFreeHost(void *p) {
    ENTER_UNSAFE(cudaFreeHost);
    if (p == NULL) return cudaSuccess;
    host_device_wait(host_device(), "cudaFreeHost");
    return host_fail(host_memory_free(p));
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned int flags) {
    ENTER_UNSAFE(cudaHostRegister);
    (void) flags;
    return host_fail(host_memory_register(p, size));
}

cudaError_t cudaHostUnregister(void *p) {
    ENTER_UNSAFE(cudaHostUnregister);
    host_device_wait(host_device(), "cudaHostUnregister");
    return host_fail(host_memory_unregister(p));
}

static enum cudaMemoryType type_of(enum host_memory_kind kind) {
    switch (kind) {
    case HOST_DEVICE: return cudaMemoryTypeDevice;
    case HOST_MANAGED: return cudaMemoryTypeManaged;
    case HOST_PINNED: return cudaMemoryTypeHost;
    case HOST_PAGEABLE: break;
    }
    return cudaMemoryTypeUnregistered;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p) {
    ENTER(cudaPointerGetAttributes);
    int device = -1;
    enum host_memory_kind kind = host_memory_kind_of(p, &device);
    memset(out, 0, sizeof(*out));
    out->type = type_of(kind);
    out->device = kind == HOST_PAGEABLE ? -2 : device; /* cudaInvalidDeviceId */
    if (kind != HOST_PAGEABLE) out->devicePointer = (void *) (uintptr_t) p;
    if (kind != HOST_DEVICE) out->hostPointer = (void *) (uintptr_t) p;
    return cudaSuccess;
}

#pragma GCC visibility pop
