/* A FAKE of NCCL and the CUDA driver in one library, to test the states and timeouts of the nccl
 * backend on machines without a GPU. It uses host memory and does not communicate: a collective
 * only copies the rank's own data. It proves nothing about NCCL. The backend loads this library
 * only if the environment has CRUNRT_ALLOW_FAKE_NCCL=1.
 *
 * The environment variable FAKE_NCCL contains words that make calls misbehave. A word that ends in
 * -slow delays the call or operation, -hang makes it hang, and -error makes it fail:
 *   init-slow, init-hang, init-error               the initialisation of a communicator
 *   early-error                                    the call that begins it fails at once, and
 *                                                  leaves a group open (ncclGroupStart())
 *   op-hang, op-error, abort-hang, finalize-error  an operation, the abort, the finalization
 *   no-gpu, one-gpu                                the machine has no GPU, or only one
 *   split-refused                                  ncclCommSplit() fails at once
 *   split-error, split-hang                        the parent fails later, or stays in progress
 *   child-late, child-none                         the child's handle is written after the parent
 *                                                  is done, or never
 *   child-hang                                     the child stays in progress
 * If FAKE_NCCL_RANK is set, only calls of this rank misbehave. The calls print lines to stderr, so
 * that a test can check their order. fake_nccl_old.so is this library without ncclCommSplit. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char fake_nccl[] = "fake";

struct ncclComm {
    struct ncclComm *aborted_before;
    int polls, ops, size, aborted;
    /* child_polls: number of further polls after which the child's handle is written */
    int is_child, child_polls;
    ncclComm_t child, *child_out;
};

/* The communicator that was aborted last. Aborted communicators are not freed, so that a use after
 * the abort can be detected. */
_Atomic(ncclComm_t) fake_last_aborted;

static int group_depth;
static _Atomic int abort_hangs;

static int asked(const char *word) {
    const char *words = getenv("FAKE_NCCL"), *rank = getenv("FAKE_NCCL_RANK");
    if (rank != NULL && rank[0] != '\0' && strcmp(rank, getenv("RANK")) != 0) return 0;
    return words != NULL && strstr(words, word) != NULL;
}

static void note(const char *what) { fprintf(stderr, "fake: %s\n", what); }

/* ---- the CUDA driver ---- */

/* Declares one function of the driver and begins its definition. The declaration is needed because
 * this file does not include cuda.h, which declares these functions. */
#define DRIVER(name, ...)                                                                          \
    EXPORT int name(__VA_ARGS__);                                                                  \
    EXPORT int name(__VA_ARGS__)

DRIVER(cuInit, unsigned f) { return (void) f, asked("no-gpu") ? 100 : 0; }
DRIVER(cuDriverGetVersion, int *v) { return *v = asked("no-gpu") ? 0 : 13000, 0; }
DRIVER(cuDeviceGetCount, int *n) { return *n = asked("one-gpu") ? 1 : 8, 0; }
DRIVER(cuDeviceGet, int *d, int ordinal) { return *d = ordinal, ordinal >= 0 ? 0 : 101; }
DRIVER(cuDeviceGetAttribute, int *v, int a, int d) { return (void) a, (void) d, *v = 1, 0; }
DRIVER(cuDevicePrimaryCtxRetain, void **c, int d) { return (void) d, *c = &group_depth, 0; }
DRIVER(cuCtxGetCurrent, void **c) { return *c = NULL, 0; }
DRIVER(cuCtxSetCurrent, void *c) { return (void) c, 0; }
DRIVER(cuThreadExchangeStreamCaptureMode, int *m) { return (void) m, 0; }
DRIVER(cuStreamCreate, cudaStream_t *s, unsigned f) {
    (void) f;
    *s = (cudaStream_t) malloc(1);
    return 0;
}
DRIVER(cuStreamDestroy_v2, cudaStream_t s) { return free(s), 0; }
DRIVER(cuStreamWaitEvent, cudaStream_t s, cudaEvent_t e, unsigned f) {
    return (void) s, (void) e, (void) f, 0;
}
DRIVER(cuStreamIsCapturing, cudaStream_t s, int *status) { return (void) s, *status = 0, 0; }
DRIVER(cuEventCreate, cudaEvent_t *e, unsigned f) {
    (void) f;
    *e = (cudaEvent_t) malloc(1);
    return 0;
}
DRIVER(cuEventRecord, cudaEvent_t e, cudaStream_t s) { return (void) e, (void) s, 0; }
DRIVER(cuEventQuery, cudaEvent_t e) {
    (void) e;
    return asked("op-hang") || asked("op-error") ? 600 : 0;
}
DRIVER(cuEventDestroy_v2, cudaEvent_t e) { return free(e), 0; }
DRIVER(cuMemAlloc_v2, unsigned long long *p, size_t n) {
    return *p = (unsigned long long) (uintptr_t) calloc(1, n), 0;
}
DRIVER(cuMemFree_v2, unsigned long long p) {
    if (abort_hangs) note("BUG: cuMemFree while an abort hangs");
    return free((void *) (uintptr_t) p), 0;
}
DRIVER(cuPointerGetAttribute, void *v, int a, unsigned long long p) {
    return (void) v, (void) a, (void) p, 0;
}
DRIVER(cuGetErrorName, int e, const char **name) {
    return *name = e == 100 ? "CUDA_ERROR_NO_DEVICE" : "fake", 0;
}
DRIVER(cuGetErrorString, int e, const char **text) {
    return *text = e == 0 ? "no error" : "fake error", 0;
}

/* ---- NCCL: communicators and groups of calls ---- */

EXPORT ncclResult_t ncclGetVersion(int *v) { return *v = 22809, ncclSuccess; }

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int made;
    memset(id, 0, sizeof(*id));
    (void) snprintf(id->internal, sizeof(id->internal), "%d-%d", (int) getpid(), ++made);
    note("ncclGetUniqueId");
    return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, int size, const char *first_id, int ids) {
    char text[256];
    (void) snprintf(text, sizeof(text), "init size %d ids %d first %s", size, ids, first_id);
    note(text);
    if (asked("early-error")) {
        /* leave a group open (ncclGroupStart() without ncclGroupEnd()), as NCCL 2.28 does if its
         * call of cudaGetDevice() fails */
        group_depth++;
        return ncclUnhandledCudaError;
    }
    *comm = calloc(1, sizeof(**comm));
    (*comm)->size = size;
    (*comm)->polls = asked("init-slow") ? 50 : 1;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                           ncclConfig_t *c) {
    (void) rank;
    (void) c;
    return init(comm, n, id.internal, 1);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int ids,
                                             ncclUniqueId *list, ncclConfig_t *c) {
    (void) rank;
    (void) c;
    return init(comm, n, list[0].internal, ids);
}

/* What the thread give_child_late() needs: the handle of a new communicator, and the address to
 * which the thread writes it. NCCL, too, writes the handle of a split from a separate thread. */
struct gift {
    ncclComm_t *out, child;
};

static void *give_child_late(void *arg) {
    struct gift *gift = arg;
    (void) usleep(50000);
    __atomic_store_n(gift->out, gift->child, __ATOMIC_RELEASE);
    free(gift);
    return NULL;
}

static void give_child(ncclComm_t parent) {
    pthread_t thread;
    struct gift *gift = asked("child-late") ? malloc(sizeof(*gift)) : NULL;
    if (asked("child-none")) return;
    if (gift != NULL) {
        *gift = (struct gift){parent->child_out, parent->child};
        parent->child_out = NULL;
        if (pthread_create(&thread, NULL, give_child_late, gift) == 0) {
            (void) pthread_detach(thread);
        }
        return;
    }
    *parent->child_out = parent->child;
    parent->child_out = NULL;
}

#ifndef FAKE_NCCL_OLD
EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                                  ncclConfig_t *c) {
    char text[128];
    (void) snprintf(text, sizeof(text), "split color %d key %d blocking %d", color, key,
                    c->blocking);
    note(text);
    if (comm->polls > 0) note("BUG: split of a communicator that is in progress");
    if (comm->aborted) note("BUG: split after abort");
    if (asked("split-refused")) return ncclInvalidUsage;
    comm->polls = 3;
    if (color != NCCL_SPLIT_NOCOLOR) {
        comm->child = calloc(1, sizeof(*comm));
        comm->child->polls = 3;
        comm->child->is_child = 1;
        comm->child_out = out;
    }
    return ncclInProgress;
}
#endif

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    if (comm->aborted) note("BUG: used after abort");
    if (comm->child_out != NULL && asked("split-error"))
        return *state = ncclRemoteError, ncclSuccess;
    if (comm->child_out != NULL && asked("split-hang")) return *state = ncclInProgress, ncclSuccess;
    if (comm->is_child && asked("child-hang")) return *state = ncclInProgress, ncclSuccess;
    if (asked("init-hang")) return *state = ncclInProgress, ncclSuccess;
    if (asked("init-error")) return *state = ncclRemoteError, ncclSuccess;
    if (comm->ops > 0 && asked("op-error")) return *state = ncclRemoteError, ncclSuccess;
    *state = comm->polls-- > 0 ? ncclInProgress : ncclSuccess;
    if (*state == ncclSuccess && comm->child_out != NULL) give_child(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    note("ncclCommFinalize");
    return (void) comm, asked("finalize-error") ? ncclSystemError : ncclSuccess;
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    note("ncclCommDestroy");
    return free(comm), ncclSuccess;
}
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    note(comm->is_child ? "ncclCommAbort of a child" : "ncclCommAbort");
    abort_hangs = asked("abort-hang");
    while (asked("abort-hang")) (void) pause();
    comm->aborted = 1;
    /* do not free the communicator, but link it to the earlier ones, so that a later use can be
     * detected */
    comm->aborted_before = atomic_exchange(&fake_last_aborted, comm);
    return ncclSuccess;
}
EXPORT const char *ncclGetErrorString(ncclResult_t r) {
    return r == ncclRemoteError ? "remote error" : "fake error";
}
EXPORT const char *ncclGetLastError(ncclComm_t comm) { return (void) comm, ""; }
/* nccl.h declares these functions without prototypes. */
EXPORT ncclResult_t ncclGroupStart(void);
EXPORT ncclResult_t ncclGroupEnd(void);
EXPORT ncclResult_t ncclGroupStart(void) { return group_depth++, ncclSuccess; }
EXPORT ncclResult_t ncclGroupEnd(void) {
    if (group_depth == 0) return ncclInvalidUsage;
    note("ncclGroupEnd");
    return group_depth--, ncclSuccess;
}

/* ---- NCCL: operations ---- */

static ncclResult_t copy(const void *from, void *to, size_t n, ncclDataType_t t, ncclComm_t comm) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    comm->ops++;
    if (from != to) memmove(to, from, n * sizes[t]);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *a, void *b, size_t n, ncclDataType_t t, ncclRedOp_t o,
                                  ncclComm_t c, cudaStream_t s) {
    return (void) o, (void) s, copy(a, b, n, t, c);
}
EXPORT ncclResult_t ncclReduce(const void *a, void *b, size_t n, ncclDataType_t t, ncclRedOp_t o,
                               int root, ncclComm_t c, cudaStream_t s) {
    return (void) o, (void) s, (void) root, copy(a, b, n, t, c);
}
EXPORT ncclResult_t ncclBroadcast(const void *a, void *b, size_t n, ncclDataType_t t, int root,
                                  ncclComm_t c, cudaStream_t s) {
    return (void) s, (void) root, copy(a, b, n, t, c);
}
EXPORT ncclResult_t ncclAllGather(const void *a, void *b, size_t n, ncclDataType_t t, ncclComm_t c,
                                  cudaStream_t s) {
    return (void) s, copy(a, b, n, t, c);
}
EXPORT ncclResult_t ncclReduceScatter(const void *a, void *b, size_t n, ncclDataType_t t,
                                      ncclRedOp_t o, ncclComm_t c, cudaStream_t s) {
    return (void) o, (void) s, copy(a, b, n, t, c);
}
EXPORT ncclResult_t ncclSend(const void *a, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                             cudaStream_t s) {
    return (void) a, (void) n, (void) t, (void) peer, (void) c, (void) s, ncclSuccess;
}
EXPORT ncclResult_t ncclRecv(void *a, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                             cudaStream_t s) {
    return (void) a, (void) n, (void) t, (void) peer, (void) c, (void) s, ncclSuccess;
}
