/* The functions of the HIP runtime (libamdhip64.so) that the rccl backend uses, on the devices and
 * streams of the host CUDA. Each function calls its counterpart in driver.c, so faults and counters
 * have the names of CUDA.
 *
 * It shows that the second set of names in worker_runtime/backends/nccl/driver_hip.h fits the rest
 * of the backend. It does not show how HIP behaves: its contexts, its last error and its capture
 * modes differ from CUDA's in ways that this file does not model. HIP's headers are not needed. */
#include "tests/host_nccl/driver.h"

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

int hipInit(unsigned flags);
int hipDriverGetVersion(int *version);
int hipGetDeviceCount(int *count);
int hipDeviceGet(int *device, int ordinal);
int hipDevicePrimaryCtxRetain(void **context, int device);
int hipThreadExchangeStreamCaptureMode(int *mode);
int hipStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
int hipStreamDestroy(cudaStream_t stream);
int hipStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
int hipStreamIsCapturing(cudaStream_t stream, int *status);
int hipEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
int hipEventRecord(cudaEvent_t event, cudaStream_t stream);
int hipEventQuery(cudaEvent_t event);
int hipEventDestroy(cudaEvent_t event);
int hipPointerGetAttribute(void *value, int attribute, void *p);
int hipDrvGetErrorName(int error, const char **name);
int hipDrvGetErrorString(int error, const char **text);
int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipCtxGetCurrent(void **context);
int hipCtxSetCurrent(void *context);
int hipMalloc(void **out, size_t size);
int hipFree(void *p);

int hipInit(unsigned flags) { return cuInit(flags); }
int hipDriverGetVersion(int *version) { return cuDriverGetVersion(version); }
int hipGetDeviceCount(int *count) { return cuDeviceGetCount(count); }
int hipDeviceGet(int *device, int ordinal) { return cuDeviceGet(device, ordinal); }
int hipDevicePrimaryCtxRetain(void **context, int device) {
    return cuDevicePrimaryCtxRetain(context, device);
}
int hipThreadExchangeStreamCaptureMode(int *mode) {
    return cuThreadExchangeStreamCaptureMode(mode);
}
int hipStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cuStreamCreate(stream, flags);
}
int hipStreamDestroy(cudaStream_t stream) { return cuStreamDestroy_v2(stream); }
int hipStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return cuStreamWaitEvent(stream, event, flags);
}
int hipStreamIsCapturing(cudaStream_t stream, int *status) {
    return cuStreamIsCapturing(stream, status);
}
int hipEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return cuEventCreate(event, flags);
}
int hipEventRecord(cudaEvent_t event, cudaStream_t stream) { return cuEventRecord(event, stream); }
int hipEventQuery(cudaEvent_t event) { return cuEventQuery(event); }
int hipEventDestroy(cudaEvent_t event) { return cuEventDestroy_v2(event); }
int hipPointerGetAttribute(void *value, int attribute, void *p) {
    return cuPointerGetAttribute(value, attribute, (device_pointer) (uintptr_t) p);
}
int hipDrvGetErrorName(int error, const char **name) { return cuGetErrorName(error, name); }
int hipDrvGetErrorString(int error, const char **text) { return cuGetErrorString(error, text); }
int hipCtxGetCurrent(void **context) { return cuCtxGetCurrent(context); }
int hipCtxSetCurrent(void *context) { return cuCtxSetCurrent(context); }
int hipFree(void *p) { return cuMemFree_v2((device_pointer) (uintptr_t) p); }

int hipMalloc(void **out, size_t size) {
    device_pointer p = 0;
    int e = cuMemAlloc_v2(&p, size);
    *out = (void *) (uintptr_t) p;
    return e;
}

/* The numbers of HIP's attributes depend on the version of its headers, so `attribute` is taken to
 * be hipDeviceAttributePageableMemoryAccess, the only one that the backend requests. */
int hipDeviceGetAttribute(int *value, int attribute, int device) {
    const int pageable_access = 88; /* CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS */
    (void) attribute;
    return cuDeviceGetAttribute(value, pageable_access, device);
}

#pragma GCC visibility pop
