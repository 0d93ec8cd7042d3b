/* The driver of NVIDIA's GPUs, for nccl.so.
 *
 * The driver (libcuda.so.1) is used instead of the CUDA runtime for three reasons: its functions
 * are the same for CUDA 11, 12 and 13; it is present wherever a GPU works, even if the program has
 * linked the runtime statically; and its calls do not change the last error that cudaGetLastError()
 * returns to the program. */
#ifndef BACKENDS_NCCL_DRIVER_CUDA_H
#define BACKENDS_NCCL_DRIVER_CUDA_H

#include <cuda_runtime.h>
#include <nccl.h>

#define BACKEND_NAME            "nccl"
#define COLLECTIVES_NAME        "NCCL"
#define COLLECTIVES_LIBRARY     "libnccl.so." TEXT(NCCL_MAJOR)
#define NCCL_LIBRARY_VARIABLE   "CRUNRT_NCCL_LIBRARY"
#define DRIVER_NAME             "CUDA driver"
#define DRIVER_REMEDY           "install a driver for CUDA 11 or later"
#define DRIVER_LIBRARY          "libcuda.so.1"
#define DRIVER_LIBRARY_HINTS    ""
#define DEFAULT_LIBRARY_HINTS   "/usr/local/cuda/lib64"
#define DRIVER_LIBRARY_VARIABLE "CRUNRT_CUDA_LIBRARY"
#define VISIBLE_DEVICES         "CUDA_VISIBLE_DEVICES"
#define HOST_ALLOCATORS         "cudaMallocHost or cudaMallocManaged"

typedef unsigned long long cuda_pointer; /* CUdeviceptr */

/* The functions of the driver: name in the table, symbol in the library, types of the arguments.
 * Streams and events have the same handle types as in the CUDA runtime. All functions return a
 * CUresult, whose numbers are those of cudaError_t. This file does not include cuda.h, because
 * cuda.h has macros that rename these functions to their newest versions. */
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuInit, cuInit, (unsigned flags))                                                            \
    X(cuDriverGetVersion, cuDriverGetVersion, (int *version))                                      \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *count))                                            \
    X(cuDeviceGet, cuDeviceGet, (int *device, int ordinal))                                        \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, int device))         \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **context, int device))            \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (void **context))                                          \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (void *context))                                           \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode))           \
    X(cuStreamCreate, cuStreamCreate, (cudaStream_t *stream, unsigned flags))                      \
    X(cuStreamDestroy, cuStreamDestroy_v2, (cudaStream_t stream))                                  \
    X(cuStreamWaitEvent, cuStreamWaitEvent,                                                        \
      (cudaStream_t stream, cudaEvent_t event, unsigned flags))                                    \
    X(cuStreamIsCapturing, cuStreamIsCapturing, (cudaStream_t stream, int *status))                \
    X(cuEventCreate, cuEventCreate, (cudaEvent_t * event, unsigned flags))                         \
    X(cuEventRecord, cuEventRecord, (cudaEvent_t event, cudaStream_t stream))                      \
    X(cuEventQuery, cuEventQuery, (cudaEvent_t event))                                             \
    X(cuEventDestroy, cuEventDestroy_v2, (cudaEvent_t event))                                      \
    X(cuMemAlloc, cuMemAlloc_v2, (cuda_pointer * out, size_t size))                                \
    X(cuMemFree, cuMemFree_v2, (cuda_pointer p))                                                   \
    X(cuPointerGetAttribute, cuPointerGetAttribute, (void *value, int attribute, cuda_pointer p))  \
    X(cuGetErrorName, cuGetErrorName, (int error, const char **name))                              \
    X(cuGetErrorString, cuGetErrorString, (int error, const char **text))

/* Constants of cuda.h. */
#define CUDA_CAPTURE_RELAXED     2 /* CU_STREAM_CAPTURE_MODE_RELAXED */
#define CUDA_CAPTURE_NONE        0 /* CU_STREAM_CAPTURE_STATUS_NONE */
#define CUDA_STREAM_NON_BLOCKING 1 /* CU_STREAM_NON_BLOCKING */
#define CUDA_EVENT_NO_TIMING     2 /* CU_EVENT_DISABLE_TIMING */
#define CUDA_MEMORY_TYPE         2 /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
#define CUDA_PAGEABLE_ACCESS     88 /* CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS of cuda.h */
#define CUDA_INVALID_VALUE       1
#define CUDA_STUB_LIBRARY        34
#define CUDA_OLD_DRIVER          35 /* cudaErrorInsufficientDriver, from CUDA 13's stub library */
#define CUDA_NO_DEVICE           100
#define CUDA_INVALID_HANDLE      400
#define CUDA_NOT_READY           600
#define CUDA_CAPTURE_IMPLICIT    906
#define CUDA_IS_CAPTURE_ERROR(e) ((e) >= 900 && (e) <= 908)
#define CUDA_STREAM_LEGACY       ((cudaStream_t) 0x1)

#endif
