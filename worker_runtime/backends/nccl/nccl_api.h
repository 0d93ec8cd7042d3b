/* A table with the functions of NCCL and the CUDA runtime. Both libraries are loaded when the first
 * group needs them. They are not linked, so that a program with libcrunrt also starts on a machine
 * without a GPU. */
#ifndef BACKENDS_NCCL_API_H
#define BACKENDS_NCCL_API_H

#include "base/error.h"

#include <cuda_runtime.h>
#include <nccl.h>

/* ncclBfloat16. The headers of older NCCL releases define the name only for CUDA C++. */
#define NCCL_BFLOAT16 ((ncclDataType_t) 9)

#define CUDA_FUNCTIONS(X)                                                                          \
    X(cudaDriverGetVersion)                                                                        \
    X(cudaGetDeviceCount)                                                                          \
    X(cudaSetDevice)                                                                               \
    X(cudaGetErrorName)                                                                            \
    X(cudaGetErrorString)                                                                          \
    X(cudaGetLastError)                                                                            \
    X(cudaStreamCreateWithFlags)                                                                   \
    X(cudaStreamDestroy)                                                                           \
    X(cudaStreamQuery)                                                                             \
    X(cudaEventCreateWithFlags)                                                                    \
    X(cudaEventRecord)                                                                             \
    X(cudaEventQuery)                                                                              \
    X(cudaEventDestroy)                                                                            \
    X(cudaMalloc)                                                                                  \
    X(cudaFree)

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

struct nccl_api {
    int nccl_version; /* 22809 = 2.28.9 */
#define MEMBER(name) __typeof__(&name) name;
    CUDA_FUNCTIONS(MEMBER)
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
    __typeof__(&cudaPointerGetAttributes) cudaPointerGetAttributes; /* may be NULL */
    __typeof__(&cudaDeviceGetAttribute) cudaDeviceGetAttribute;     /* may be NULL */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
    __typeof__(&ncclCommSplit) ncclCommSplit; /* may be NULL */
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
    __typeof__(&ncclCommInitRankScalable) ncclCommInitRankScalable; /* may be NULL */
#endif
};

/* Loads both libraries, once per process, and sets *out to the table. CRUNRT_NCCL_LIBRARY and
 * CRUNRT_CUDART_LIBRARY may give other paths. The fake for tests, which exports the symbol
 * fake_nccl, is refused unless CRUNRT_ALLOW_FAKE_NCCL is "1". Returns 0; or -ENOENT, and sets err
 * to a text that names the library, the places and the loader's reason. */
int nccl_api_load(const struct nccl_api **out, struct cr_error *err);

#endif
