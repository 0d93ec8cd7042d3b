/* Communicators, groups of calls, and kernels of the host NCCL: the declarations that the files of
 * libnccl.so.2 share. In this folder a "group" is a group of calls between ncclGroupStart() and
 * ncclGroupEnd(). */
#ifndef HOST_NCCL_COMM_H
#define HOST_NCCL_COMM_H

#include "tests/host_nccl/arithmetic.h"
#include "tests/host_nccl/host.h"
#include "tests/host_nccl/peers.h"

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#define COMM_ALIVE UINT64_C(0x0280028002800280)

struct group_job;

struct ncclComm {
    /* COMM_ALIVE until the communicator is freed. The memory is never reused, so that the use of a
     * freed communicator can be detected. */
    uint64_t magic;
    struct ncclComm *next;
    int rank, size, device;
    bool blocking, split_share;
    _Atomic int async;      /* the ncclResult_t that ncclCommGetAsyncError() reports */
    _Atomic int abort_flag; /* not 0: kernels and jobs of this communicator must end */
    bool initialised, destroying, finalized, revoked;
    struct ncclComm *child;      /* the child that is being made, which an abort ends, too */
    struct group_job *group_job; /* the last non-blocking group, whose thread is not joined yet */
    struct peers *peers;
    struct host_op *last;    /* the last kernel; the next kernel waits for it */
    struct host_clock clock; /* what is ordered before the end of the last kernel */
    pthread_mutex_t running; /* held by the kernel that runs */
    /* step: exchanges of data that the kernels have made; calls: collectives that they have run */
    uint64_t step, calls;
    /* connected: all ranks are connected for collectives; sends_to and receives_from: by rank,
     * whether this rank is connected for messages to or from that rank */
    bool connected, *sends_to, *receives_from;
    _Atomic int graphs;         /* number of CUDA graphs that contain operations of this
                                 * communicator */
    struct arithmetic *own_ops; /* the operators that ncclRedOpCreatePreMulSum() made */
    size_t own_op_count;
};

/* Checks a communicator's handle, as NCCL's CommCheck() does. A freed communicator ends the process
 * through host_misuse(). `call` is the function that was called, for messages. */
ncclResult_t comm_check(ncclComm_t comm, const char *call);

/* Returns an error if the last non-blocking call of this communicator is still in progress or has
 * failed, as NCCL's ncclCommEnsureReady() does. */
ncclResult_t comm_ready(ncclComm_t comm);

ncclResult_t comm_configure(ncclComm_t comm, const ncclConfig_t *config);
struct ncclComm *comm_child(ncclComm_t parent); /* makes one with the parent's settings */

/* Waits until all ranks of the communicator have attached to the memory at the address. */
ncclResult_t comm_connect(ncclComm_t comm, const struct peers_address *address);

/* Sets the abort flag, also that of a child that is being made. */
void comm_set_abort(ncclComm_t comm, int value);

/* Adds to the group a job that calls `run`, which finalizes, frees or revokes the communicator. */
struct job;
ncclResult_t comm_end(ncclComm_t comm, ncclResult_t (*run)(struct job *job));

/* Returns the result of a call on a non-blocking communicator. `end` is what group_end() returned
 * for the call. */
ncclResult_t comm_outcome(ncclComm_t comm, ncclResult_t end);

void comm_set_async(ncclComm_t comm, ncclResult_t result);
bool comm_aborted(void *comm);

/* Stores the text that ncclGetLastError() returns, and returns `result`. With HOST_NCCL_VERBOSE set
 * it also writes the text to stderr. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- groups of calls (group.c) ---- */

/* An init, split, shrink, finalize, revoke or destroy, which a group carries out at its end. */
struct job {
    struct job *next;
    ncclComm_t comm; /* the job's result becomes the state of this communicator */
    ncclResult_t (*run)(struct job *job);
    /* split and shrink: the new communicator, or NULL for a rank that gets none, and where its
     * handle is stored */
    ncclComm_t child, *out;
    int color, key;               /* split */
    bool *survivors;              /* shrink: by rank, true for ranks that stay; split: NULL */
    struct peers_address address; /* init: the memory that the unique id names */
};

/* The kinds of operations that a kernel consists of. */
enum part_kind {
    PART_ALL_REDUCE,
    PART_REDUCE,
    PART_BROADCAST,
    PART_ALL_GATHER,
    PART_REDUCE_SCATTER,
    PART_SEND,
    PART_RECV
};

/* One operation of a kernel: a collective, a send or a receive. */
struct part {
    struct part *next;
    enum part_kind kind;
    const char *name;
    const void *send;
    void *recv;
    size_t count; /* number of elements */
    ncclDataType_t type;
    struct arithmetic how;
    ncclRedOp_t op;
    int root; /* the root; of a send or receive, the other rank */
};

struct kernel {
    ncclComm_t comm;
    char what[64];
    struct part *parts;
};

void group_start(void);
ncclResult_t group_end(void);
ncclResult_t group_error(ncclResult_t result); /* if result is an error, the open group fails */
int group_depth(void);                         /* returns the number of open groups of this
                                                * thread */
ncclResult_t group_add_job(struct job *job);
ncclResult_t group_add_part(ncclComm_t comm, struct part *part, cudaStream_t stream);

/* Joins the thread of the communicator's last non-blocking group, if no other communicator of that
 * group has yet to join it. */
void group_join(ncclComm_t comm);

/* ---- kernels (kernels.c) ---- */

/* Connects to the ranks that the kernel communicates with. Blocks until they connect, too. */
ncclResult_t kernel_connect(struct kernel *kernel);
void kernel_run(void *kernel);
void kernel_free(void *kernel);

/* Stores in `out` the memory that the kernel reads and writes, at most two ranges per operation.
 * Returns the number of ranges. */
size_t kernel_accesses(const struct kernel *kernel, struct host_access *out);

#endif
