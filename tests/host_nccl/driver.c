/* The functions of the CUDA driver (libcuda.so.1) that programs use beside or instead of the CUDA
 * runtime. Each function does what its counterpart of the runtime does, on the same devices and
 * streams, with two differences that the CUDA Driver API manual states: the driver has no last
 * error of a thread, and it selects a device by the current context of the thread.
 *
 * Each function here calls its counterpart of the runtime. So a fault that HOST_NCCL_FAULT orders
 * for cudaEventRecord also occurs in cuEventRecord, and a call of cuEventRecord is counted under
 * both names. */
#include "tests/host_nccl/driver.h"

#include "tests/host_nccl/host.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTEXT_BASE ((uintptr_t) 0x1000)

/* True if the program has set a context for this thread by a function of the driver. Otherwise the
 * thread has no context here, as with releases before CUDA 12: cudaSetDevice() does not set one. */
static __thread bool has_context;
static __thread int device_before; /* device that the runtime uses while the thread has no
                                    * context */

static void *context_of(int device) { return (void *) (CONTEXT_BASE + (uintptr_t) device); }

/* Evaluates a call of the runtime, and restores the last error that the thread had before the call.
 */
#define WITHOUT_LAST_ERROR(call)                                                                   \
    ({                                                                                             \
        cudaError_t before = host_last_error();                                                    \
        cudaError_t result = (call);                                                               \
        host_set_last_error(before);                                                               \
        (int) result;                                                                              \
    })

#pragma GCC visibility push(default)

int cuInit(unsigned flags) {
    int count = 0;
    (void) flags;
    return WITHOUT_LAST_ERROR(cudaGetDeviceCount(&count));
}

int cuDriverGetVersion(int *version) { return WITHOUT_LAST_ERROR(cudaDriverGetVersion(version)); }
int cuDeviceGetCount(int *count) { return WITHOUT_LAST_ERROR(cudaGetDeviceCount(count)); }

int cuDeviceGet(int *device, int ordinal) {
    int count = 0, e = cuDeviceGetCount(&count);
    *device = ordinal;
    return e != cudaSuccess                  ? e
           : ordinal < 0 || ordinal >= count ? (int) cudaErrorInvalidDevice
                                             : (int) cudaSuccess;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    return WITHOUT_LAST_ERROR(
        cudaDeviceGetAttribute(value, (enum cudaDeviceAttr) attribute, device));
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = context_of(device);
    return WITHOUT_LAST_ERROR(host_enter("cuDevicePrimaryCtxRetain"));
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void) device;
    return WITHOUT_LAST_ERROR(host_enter("cuDevicePrimaryCtxRelease_v2"));
}

int cuCtxGetCurrent(void **context) {
    (void) host_call("cuCtxGetCurrent");
    *context = has_context ? context_of(host_device()) : NULL;
    return cudaSuccess;
}

int cuCtxSetCurrent(void *context) {
    if (!has_context) device_before = host_device();
    has_context = context != NULL;
    if (context == NULL) host_set_device(device_before);
    if (context == NULL) return cudaSuccess;
    return WITHOUT_LAST_ERROR(cudaSetDevice((int) ((uintptr_t) context - CONTEXT_BASE)));
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
    enum cudaStreamCaptureMode exchanged = (enum cudaStreamCaptureMode) *mode;
    cudaError_t e = cudaThreadExchangeStreamCaptureMode(&exchanged);
    *mode = (int) exchanged;
    return (int) e;
}

int cuStreamCreate(cudaStream_t *stream, unsigned flags) {
    return WITHOUT_LAST_ERROR(cudaStreamCreateWithFlags(stream, flags));
}

int cuStreamDestroy_v2(cudaStream_t stream) {
    return WITHOUT_LAST_ERROR(cudaStreamDestroy(stream));
}

int cuStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return WITHOUT_LAST_ERROR(cudaStreamWaitEvent(stream, event, flags));
}

int cuStreamIsCapturing(cudaStream_t stream, int *status) {
    enum cudaStreamCaptureStatus s = cudaStreamCaptureStatusNone;
    int e = WITHOUT_LAST_ERROR(cudaStreamIsCapturing(stream, &s));
    *status = (int) s;
    return e;
}

int cuEventCreate(cudaEvent_t *event, unsigned flags) {
    return WITHOUT_LAST_ERROR(cudaEventCreateWithFlags(event, flags));
}

int cuEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return WITHOUT_LAST_ERROR(cudaEventRecord(event, stream));
}

int cuEventQuery(cudaEvent_t event) { return WITHOUT_LAST_ERROR(cudaEventQuery(event)); }
int cuEventDestroy_v2(cudaEvent_t event) { return WITHOUT_LAST_ERROR(cudaEventDestroy(event)); }

int cuMemAlloc_v2(device_pointer *out, size_t size) {
    void *p = NULL;
    int e = WITHOUT_LAST_ERROR(cudaMalloc(&p, size));
    *out = (device_pointer) (uintptr_t) p;
    return e;
}

int cuMemFree_v2(device_pointer p) {
    return WITHOUT_LAST_ERROR(cudaFree((void *) (uintptr_t) p));
}

/* Supports only the attribute CU_POINTER_ATTRIBUTE_MEMORY_TYPE. For memory that CUDA does not know
 * it returns an error; cudaPointerGetAttributes() returns a type for such memory. */
int cuPointerGetAttribute(void *value, int attribute, device_pointer p) {
    int device = -1, e = WITHOUT_LAST_ERROR(host_enter("cuPointerGetAttribute"));
    if (e != cudaSuccess) return e;
    if (attribute != 2) return cudaErrorInvalidValue;
    enum host_memory_kind kind = host_memory_kind_of((void *) (uintptr_t) p, &device);
    if (kind == HOST_PAGEABLE) return cudaErrorInvalidValue;
    *(unsigned *) value = kind == HOST_PINNED ? 1 : 2; /* CU_MEMORYTYPE_HOST, _DEVICE */
    return cudaSuccess;
}

int cuGetErrorName(int error, const char **name) {
    *name = cudaGetErrorName((cudaError_t) error);
    return cudaSuccess;
}

int cuGetErrorString(int error, const char **text) {
    *text = cudaGetErrorString((cudaError_t) error);
    return cudaSuccess;
}

#pragma GCC visibility pop
