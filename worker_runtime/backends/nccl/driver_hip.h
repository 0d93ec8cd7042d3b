/* The driver of AMD's GPUs, for rccl.so: the HIP runtime (libamdhip64.so), which has a counterpart
 * of each function of the CUDA driver that this backend uses. In the table these functions have the
 * names of the CUDA driver, so that the other files of this folder serve both.
 *
 * HIP differs from the CUDA driver in three ways: the legacy default stream is the stream 0;
 * hipCtxSetCurrent() selects a device, as hipSetDevice() does; and every call may change the error
 * that hipGetLastError() returns to the program. */
#ifndef BACKENDS_NCCL_DRIVER_HIP_H
#define BACKENDS_NCCL_DRIVER_HIP_H

#include <hip/hip_runtime_api.h>
#include <rccl/rccl.h>

#define BACKEND_NAME            "rccl"
#define COLLECTIVES_NAME        "RCCL"
#define COLLECTIVES_LIBRARY     "librccl.so.1"
#define NCCL_LIBRARY_VARIABLE   "CRUNRT_RCCL_LIBRARY"
#define DRIVER_NAME             "HIP runtime"
#define DRIVER_REMEDY           "install ROCm 5.7 or later"
#define DRIVER_LIBRARY          "libamdhip64.so." TEXT(HIP_VERSION_MAJOR)
#define DRIVER_LIBRARY_HINTS    NCCL_LIBRARY_HINTS
#define DEFAULT_LIBRARY_HINTS   "/opt/rocm/lib"
#define DRIVER_LIBRARY_VARIABLE "CRUNRT_HIP_LIBRARY"
#define VISIBLE_DEVICES         "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"
#define HOST_ALLOCATORS         "hipHostMalloc or hipMallocManaged"

typedef hipStream_t cudaStream_t;
typedef hipEvent_t cudaEvent_t;
typedef void *cuda_pointer; /* HIP has no type of its own for pointers to device memory */

/* The functions of HIP: name in the table, symbol in the library, types of the arguments. All
 * functions return a hipError_t. */
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(cuInit, hipInit, (unsigned flags))                                                           \
    X(cuDriverGetVersion, hipDriverGetVersion, (int *version))                                     \
    X(cuDeviceGetCount, hipGetDeviceCount, (int *count))                                           \
    X(cuDeviceGet, hipDeviceGet, (int *device, int ordinal))                                       \
    X(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *value, int attribute, int device))        \
    X(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain, (void **context, int device))           \
    X(cuCtxGetCurrent, hipCtxGetCurrent, (void **context))                                         \
    X(cuCtxSetCurrent, hipCtxSetCurrent, (void *context))                                          \
    X(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode, (int *mode))          \
    X(cuStreamCreate, hipStreamCreateWithFlags, (cudaStream_t *stream, unsigned flags))            \
    X(cuStreamDestroy, hipStreamDestroy, (cudaStream_t stream))                                    \
    X(cuStreamWaitEvent, hipStreamWaitEvent,                                                       \
      (cudaStream_t stream, cudaEvent_t event, unsigned flags))                                    \
    X(cuStreamIsCapturing, hipStreamIsCapturing, (cudaStream_t stream, int *status))               \
    X(cuEventCreate, hipEventCreateWithFlags, (cudaEvent_t * event, unsigned flags))               \
    X(cuEventRecord, hipEventRecord, (cudaEvent_t event, cudaStream_t stream))                     \
    X(cuEventQuery, hipEventQuery, (cudaEvent_t event))                                            \
    X(cuEventDestroy, hipEventDestroy, (cudaEvent_t event))                                        \
    X(cuMemAlloc, hipMalloc, (cuda_pointer * out, size_t size))                                    \
    X(cuMemFree, hipFree, (cuda_pointer p))                                                        \
    X(cuPointerGetAttribute, hipPointerGetAttribute,                                               \
      (void *value, int attribute, cuda_pointer p))                                                \
    X(cuGetErrorName, hipDrvGetErrorName, (int error, const char **name))                          \
    X(cuGetErrorString, hipDrvGetErrorString, (int error, const char **text))

/* Constants of HIP. */
#define CUDA_CAPTURE_RELAXED     hipStreamCaptureModeRelaxed
#define CUDA_CAPTURE_NONE        hipStreamCaptureStatusNone
#define CUDA_STREAM_NON_BLOCKING hipStreamNonBlocking
#define CUDA_EVENT_NO_TIMING     hipEventDisableTiming
#define CUDA_MEMORY_TYPE         2 /* HIP_POINTER_ATTRIBUTE_MEMORY_TYPE */
#define CUDA_PAGEABLE_ACCESS     hipDeviceAttributePageableMemoryAccess
#define CUDA_INVALID_VALUE       hipErrorInvalidValue
#define CUDA_STUB_LIBRARY        34 /* HIP has no stub library; no function returns this number */
#define CUDA_OLD_DRIVER          hipErrorInsufficientDriver
#define CUDA_NO_DEVICE           hipErrorNoDevice
#define CUDA_INVALID_HANDLE      hipErrorInvalidHandle
#define CUDA_NOT_READY           hipErrorNotReady
#define CUDA_CAPTURE_IMPLICIT    hipErrorStreamCaptureImplicit
#define CUDA_IS_CAPTURE_ERROR(e)                                                                   \
    ((e) >= hipErrorStreamCaptureUnsupported && (e) <= hipErrorStreamCaptureWrongThread)
#define CUDA_STREAM_LEGACY       ((cudaStream_t) 0)

#endif
