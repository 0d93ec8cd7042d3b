/* Communicators of the host NCCL, and what the files of libnccl.so.2 share about them. */
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
    uint64_t magic; /* COMM_ALIVE until it is freed; the memory is kept, so that a late use shows */
    struct ncclComm *next;
    int rank, size, device;
    bool blocking, split_share;
    _Atomic int async;      /* ncclResult_t, as ncclCommGetAsyncError() reports it */
    _Atomic int abort_flag; /* NCCL has one on the host and one on the device */
    bool initialised, destroying, finalized, revoked;
    struct ncclComm *child;      /* being made from this one: aborted with it */
    struct group_job *group_job; /* the thread of its last non-blocking call, to be joined */
    struct peers *peers;
    struct host_op *last;    /* its last kernel: NCCL's "device stream" */
    struct host_clock clock; /* what that kernel knows */
    pthread_mutex_t running; /* one kernel at a time */
    uint64_t step, calls;    /* of the kernels */
    bool connected, *sends_to, *receives_from;
    _Atomic int graphs;         /* that hold operations of this communicator */
    struct arithmetic *own_ops; /* made by ncclRedOpCreatePreMulSum */
    size_t own_op_count;
};

/* Checks a handle as NCCL's CommCheck() does; a freed one is a misuse, which NCCL cannot see. */
ncclResult_t comm_check(ncclComm_t comm, const char *call);

/* NCCL's ncclCommEnsureReady(). */
ncclResult_t comm_ready(ncclComm_t comm);

ncclResult_t comm_configure(ncclComm_t comm, const ncclConfig_t *config);
struct ncclComm *comm_child(ncclComm_t parent); /* with the parent's settings */
ncclResult_t comm_connect(ncclComm_t comm, const struct peers_address *address);
void comm_set_abort(ncclComm_t comm, int value); /* of a child in the making, too */

struct job;
ncclResult_t comm_end(ncclComm_t comm, ncclResult_t (*run)(struct job *job)); /* adds such a job */

/* What a call of a non-blocking communicator returns after its group ended with `end`. */
ncclResult_t comm_outcome(ncclComm_t comm, ncclResult_t end);

void comm_set_async(ncclComm_t comm, ncclResult_t result);
bool comm_aborted(void *comm);

/* The text that ncclGetLastError() returns, and a line on stderr. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- groups (group.c) ---- */

struct job {
    struct job *next;
    ncclComm_t comm; /* whose state the job's result becomes */
    ncclResult_t (*run)(struct job *job);
    ncclComm_t child, *out; /* of a split or a shrink; of an init: the handle's place */
    int color, key;
    bool *survivors;
    struct peers_address address;
};

/* One part of what a kernel does. */
enum part_kind {
    PART_ALL_REDUCE,
    PART_REDUCE,
    PART_BROADCAST,
    PART_ALL_GATHER,
    PART_REDUCE_SCATTER,
    PART_SEND,
    PART_RECV
};

struct part {
    struct part *next;
    enum part_kind kind;
    const char *name;
    const void *send;
    void *recv;
    size_t count; /* elements */
    ncclDataType_t type;
    struct arithmetic how;
    ncclRedOp_t op;
    int root; /* or peer */
};

struct kernel {
    ncclComm_t comm;
    char what[64];
    struct part *parts;
};

void group_start(void);
ncclResult_t group_end(void);
ncclResult_t group_error(ncclResult_t result); /* notes it, and returns it */
int group_depth(void);
ncclResult_t group_add_job(struct job *job);
ncclResult_t group_add_part(ncclComm_t comm, struct part *part, cudaStream_t stream);
void group_join(ncclComm_t comm); /* the thread of its last non-blocking call */

/* ---- kernels (kernels.c) ---- */

ncclResult_t kernel_connect(struct kernel *kernel); /* blocks until the peers connect, too */
void kernel_run(void *kernel);
void kernel_free(void *kernel);

/* The memory that it reads and writes: at most two ranges per part. */
size_t kernel_accesses(const struct kernel *kernel, struct host_access *out);

#endif
