/* A FAKE of NCCL and the CUDA runtime in one library. It tests the states and timeouts of the nccl
 * backend on machines without a GPU. It uses host memory and does not communicate: collectives
 * copy. It proves nothing about NCCL, and the backend refuses to load it unless
 * CRUNRT_ALLOW_FAKE_NCCL=1.
 *
 * The variable FAKE_NCCL contains words that make calls misbehave:
 *   init-slow, init-hang, init-error
 *   early-error      the init call itself fails, and leaves a group open
 *   op-hang, op-error, abort-hang, finalize-error
 *   no-gpu, one-gpu
 *   split-refused, split-error
 *   split-hang       the parent stays in progress
 *   child-late       the child's handle appears after the parent is done
 *   child-none, child-hang
 * FAKE_NCCL_RANK limits them to one rank. The calls print lines to stderr, so that a test can check
 * their order. fake_nccl_old.so is the same without ncclCommSplit. */
#include <cuda_runtime.h>
#include <nccl.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char fake_nccl[] = "fake";

struct ncclComm {
    struct ncclComm *aborted_before;
    int polls, ops, size, aborted;
    /* child_polls: polls that remain until the child's handle is written */
    int is_child, child_polls;
    ncclComm_t child, *child_out;
};

/* the last aborted communicator; not freed, so that a later use can be detected */
_Atomic(ncclComm_t) fake_last_aborted;

static int group_depth;
static pthread_t owner;
static _Atomic int abort_hangs;

static int asked(const char *word) {
    const char *words = getenv("FAKE_NCCL"), *rank = getenv("FAKE_NCCL_RANK");
    if (rank != NULL && rank[0] != '\0' && strcmp(rank, getenv("RANK")) != 0) return 0;
    return words != NULL && strstr(words, word) != NULL;
}

static void note(const char *what) { fprintf(stderr, "fake: %s\n", what); }

/* ---- CUDA ---- */

EXPORT cudaError_t cudaDriverGetVersion(int *v) {
    return *v = asked("no-gpu") ? 0 : 13000, cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceCount(int *n) {
    if (asked("no-gpu")) return cudaErrorNoDevice;
    *n = asked("one-gpu") ? 1 : 8;
    return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int d) { return d >= 0 ? cudaSuccess : cudaErrorInvalidDevice; }
EXPORT const char *cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorNoDevice ? "cudaErrorNoDevice" : "fake";
}
EXPORT const char *cudaGetErrorString(cudaError_t e) {
    return e == cudaSuccess ? "no error" : "fake error";
}
EXPORT cudaError_t cudaGetLastError(void) { return cudaSuccess; }
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) {
    (void) f;
    *s = (cudaStream_t) malloc(1);
    return cudaSuccess;
}
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) { return free(s), cudaSuccess; }
EXPORT cudaError_t cudaStreamQuery(cudaStream_t s) { return (void) s, cudaSuccess; }
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned f) {
    (void) f;
    *e = (cudaEvent_t) malloc(1);
    return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    return (void) e, (void) s, cudaSuccess;
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
    (void) e;
    return asked("op-hang") || asked("op-error") ? cudaErrorNotReady : cudaSuccess;
}
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), cudaSuccess; }
EXPORT cudaError_t cudaMalloc(void **p, size_t n) { return *p = calloc(1, n), cudaSuccess; }
EXPORT cudaError_t cudaFree(void *p) {
    if (abort_hangs) note("BUG: cudaFree while an abort hangs");
    return free(p), cudaSuccess;
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
    owner = pthread_self();
    if (asked("early-error")) {
        /* leave a group open, as NCCL 2.28 does when its call of cudaGetDevice fails */
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

/* Writes the handle of a new communicator in a separate thread, as NCCL does. */
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
    if (!pthread_equal(owner, pthread_self())) note("BUG: used from another thread");
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
