/* A table with the functions of NCCL and of the CUDA driver. Both libraries are loaded when the
 * first group needs them. They are not linked, so that a program with libcrunrt also starts on a
 * machine without a GPU.
 *
 * The files of this folder are compiled twice: as the module nccl.so, and with CRUNRT_RCCL defined
 * as the module rccl.so for AMD's GPUs. RCCL has the functions and types of NCCL under the same
 * names. driver_cuda.h and driver_hip.h have what differs: the functions of the driver, and the
 * names of libraries and variables. */
#ifndef BACKENDS_NCCL_API_H
#define BACKENDS_NCCL_API_H

#include "base/error.h"

#define TEXT_OF(x)  #x
#define TEXT(macro) TEXT_OF(macro)

#ifdef CRUNRT_RCCL
#include "worker_runtime/backends/nccl/driver_hip.h"
#else
#include "worker_runtime/backends/nccl/driver_cuda.h"
#endif

/* Numbers of NCCL's types that the headers of older releases lack. These headers have ncclBfloat16,
 * but only for CUDA C++, so its number is here, too. */
#define NCCL_BFLOAT16    ((ncclDataType_t) 9)
#define NCCL_FLOAT8_E4M3 ((ncclDataType_t) 10)
#define NCCL_FLOAT8_E5M2 ((ncclDataType_t) 11)
#define NCCL_FIRST_FP8   22400 /* the version of NCCL in which the 8-bit floating types appeared */

/* The first version of NCCL in which several communicators can be aborted in one group. */
#define NCCL_GROUPED_ABORT 22200

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

/* Functions that older versions of NCCL lack; the comment above each function is the first version
 * that has it. In the table a function is NULL if the loaded NCCL lacks it. The types are written
 * here, because the headers with which this module is built may lack these functions, too. */
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

/* The layout of ncclConfig_t in NCCL 2.31, with NCCL's names of the fields. It is written here,
 * because the headers with which this module is built may have a shorter ncclConfig_t. It can be
 * passed to every version of NCCL, because new versions add fields only at the end, and NCCL reads
 * no more than `size` bytes and no more than the fields that it knows. */
struct nccl_config_layout {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
    int graphUsageMode, numRmaCtx;       /* 2.29 */
    int maxP2pPeers, graphStreamOrdering; /* 2.30 */
    int launchOrderImplicit;             /* 2.31 */
};

#define NCCL_LAYOUT_VERSION 23100 /* the newest version whose fields the layout has */
#define NCCL_CONFIG_MAGIC   0xcafebeef

union nccl_config {
    ncclConfig_t passed; /* the type that NCCL's functions take; may be shorter than `all` */
    struct nccl_config_layout all;
};

struct nccl_api {
    int nccl_version; /* 22809 = 2.28.9 */
#define MEMBER(name, symbol, arguments) int(*name) arguments;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name) __typeof__(&name) name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(name, arguments) ncclResult_t(*name) arguments;
    NCCL_LATER_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* Loads both libraries, once per process, and sets *out to the table. The environment variables
 * NCCL_LIBRARY_VARIABLE and DRIVER_LIBRARY_VARIABLE (CRUNRT_NCCL_LIBRARY and CRUNRT_CUDA_LIBRARY,
 * or CRUNRT_RCCL_LIBRARY and CRUNRT_HIP_LIBRARY) may give other paths. An NCCL library that exports
 * the symbol fake_nccl is a fake for tests and is refused unless CRUNRT_ALLOW_FAKE_NCCL is "1".
 * Returns 0; -ENODEV if the driver is missing; -ENOENT if NCCL is missing, too old or a refused
 * fake. On a failure it sets err to a text with the library, the searched places and the loader's
 * message. */
int nccl_api_load(const struct nccl_api **out, struct cr_error *err);

#endif
