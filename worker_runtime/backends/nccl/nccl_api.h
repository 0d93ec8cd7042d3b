/* A table with the functions of NCCL and of the CUDA driver. Both libraries are loaded when the
 * first group needs them. They are not linked, so that a program with libcrunrt also starts on a
 * machine without a GPU.
 *
 * The driver (libcuda.so.1) is used instead of the CUDA runtime for three reasons: its functions
 * are the same for CUDA 11, 12 and 13; it is present wherever a GPU works, even if the program has
 * linked the runtime statically; and its calls do not change the last error that cudaGetLastError()
 * returns to the program. */
#ifndef BACKENDS_NCCL_API_H
#define BACKENDS_NCCL_API_H

#include "base/error.h"

#include <cuda_runtime.h>
#include <nccl.h>

/* Numbers of NCCL's types that the headers of older releases lack. These headers have ncclBfloat16,
 * but only for CUDA C++, so its number is here, too. */
#define NCCL_BFLOAT16    ((ncclDataType_t) 9)
#define NCCL_FLOAT8_E4M3 ((ncclDataType_t) 10)
#define NCCL_FLOAT8_E5M2 ((ncclDataType_t) 11)
#define NCCL_FIRST_FP8   22400 /* the version of NCCL in which the 8-bit floating types appeared */

/* The first version of NCCL in which several communicators can be aborted in one group. */
#define NCCL_GROUPED_ABORT 22200

typedef unsigned long long cuda_pointer; /* CUdeviceptr */

/* The functions of the driver, with the types of their arguments. Streams and events have the same
 * handle types as in the CUDA runtime. All functions return a CUresult, whose numbers are those of
 * cudaError_t. This file does not include cuda.h, because cuda.h has macros that rename these
 * functions to their newest versions. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuDeviceGetCount, (int *count))                                                              \
    X(cuDeviceGet, (int *device, int ordinal))                                                     \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                               \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                      \
    X(cuCtxGetCurrent, (void **context))                                                           \
    X(cuCtxSetCurrent, (void *context))                                                            \
    X(cuThreadExchangeStreamCaptureMode, (int *mode))                                              \
    X(cuStreamCreate, (cudaStream_t *stream, unsigned flags))                                      \
    X(cuStreamDestroy_v2, (cudaStream_t stream))                                                   \
    X(cuStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags))                 \
    X(cuStreamIsCapturing, (cudaStream_t stream, int *status))                                     \
    X(cuEventCreate, (cudaEvent_t * event, unsigned flags))                                        \
    X(cuEventRecord, (cudaEvent_t event, cudaStream_t stream))                                     \
    X(cuEventQuery, (cudaEvent_t event))                                                           \
    X(cuEventDestroy_v2, (cudaEvent_t event))                                                      \
    X(cuMemAlloc_v2, (cuda_pointer * out, size_t size))                                            \
    X(cuMemFree_v2, (cuda_pointer p))                                                              \
    X(cuPointerGetAttribute, (void *value, int attribute, cuda_pointer p))                         \
    X(cuGetErrorName, (int error, const char **name))                                              \
    X(cuGetErrorString, (int error, const char **text))

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

#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion)                                                                              \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclAllReduce)                                                                               \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclAllGather)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclSend)                                                                                    \
    X(ncclRecv)                                                                                    \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)

/* Functions that NCCL has had since the version in the comment. In the table they are NULL if the
 * loaded NCCL lacks them. Their types are written here, because the headers with which this module
 * is built may lack them, too. */
#define NCCL_LATER_FUNCTIONS(X)                                                                    \
    /* 2.11 */                                                                                     \
    X(ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void *scalar, ncclDataType_t type,              \
                                 ncclScalarResidence_t residence, ncclComm_t comm))                \
    X(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                                         \
    /* 2.18 */                                                                                     \
    X(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config)) \
    /* 2.19 */                                                                                     \
    X(ncclMemAlloc, (void **out, size_t size))                                                     \
    X(ncclMemFree, (void *memory))                                                                 \
    X(ncclCommRegister, (ncclComm_t comm, void *buffer, size_t size, void **handle))               \
    X(ncclCommDeregister, (ncclComm_t comm, void *handle))                                         \
    /* 2.23 */                                                                                     \
    X(ncclCommInitRankScalable, (ncclComm_t * out, int size, int rank, int ids,                    \
                                 ncclUniqueId *list, ncclConfig_t *config))                        \
    /* 2.27 */                                                                                     \
    X(ncclCommShrink, (ncclComm_t comm, int *excluded, int count, ncclComm_t *out,                 \
                       ncclConfig_t *config, int flags))                                           \
    X(ncclCommWindowRegister, (ncclComm_t comm, void *buffer, size_t size, void **window,          \
                               int flags))                                                         \
    X(ncclCommWindowDeregister, (ncclComm_t comm, void *window))                                   \
    /* 2.28.7 */                                                                                   \
    X(ncclCommRevoke, (ncclComm_t comm, int flags))                                                \
    /* 2.29 */                                                                                     \
    X(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId *id))                                    \
    X(ncclCommGrow, (ncclComm_t comm, int size, const ncclUniqueId *id, int rank,                  \
                     ncclComm_t *out, ncclConfig_t *config))

struct nccl_api {
    int nccl_version; /* 22809 = 2.28.9 */
#define MEMBER(name, arguments) int(*name) arguments;
    CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name) __typeof__(&name) name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name, arguments) ncclResult_t(*name) arguments;
    NCCL_LATER_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* Loads both libraries, once per process, and sets *out to the table. The environment variables
 * CRUNRT_NCCL_LIBRARY and CRUNRT_CUDA_LIBRARY may give other paths. An NCCL library that exports
 * the symbol fake_nccl is a fake for tests and is refused unless CRUNRT_ALLOW_FAKE_NCCL is "1".
 * Returns 0; -ENODEV if the driver is missing; -ENOENT if NCCL is missing, too old or a refused
 * fake. On a failure it sets err to a text with the library, the searched places and the loader's
 * message. */
int nccl_api_load(const struct nccl_api **out, struct cr_error *err);

#endif
