/* The functions of the CUDA driver that libcuda.so.1 of the host NCCL has; see driver.c. cuda.h is
 * not included, so that the CUDA runtime's headers are enough to build this library. */
#ifndef HOST_NCCL_DRIVER_H
#define HOST_NCCL_DRIVER_H

#include <cuda_runtime.h>

#pragma GCC visibility push(default)

typedef unsigned long long device_pointer;
int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuStreamCreate(cudaStream_t *stream, unsigned flags);
int cuStreamDestroy_v2(cudaStream_t stream);
int cuStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
int cuStreamIsCapturing(cudaStream_t stream, int *status);
int cuEventCreate(cudaEvent_t *event, unsigned flags);
int cuEventRecord(cudaEvent_t event, cudaStream_t stream);
int cuEventQuery(cudaEvent_t event);
int cuEventDestroy_v2(cudaEvent_t event);
int cuMemAlloc_v2(device_pointer *out, size_t size);
int cuMemFree_v2(device_pointer p);
int cuPointerGetAttribute(void *value, int attribute, device_pointer p);
int cuGetErrorName(int error, const char **name);
int cuGetErrorString(int error, const char **text);

#pragma GCC visibility pop

#endif
