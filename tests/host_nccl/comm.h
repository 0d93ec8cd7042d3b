/* Communicators, groups of calls, and kernels of the host NCCL: the declarations that the files of
 * libnccl.so.2 share. In this folder a "group" is a group of NCCL calls, from ncclGroupStart() to
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
    /* COMM_ALIVE until the communicator is freed. The memory of a freed communicator is never
     * reused, so this field shows that a program uses a freed communicator. */
    uint64_t magic;
    struct ncclComm *next;
    int rank, size, device;
    bool blocking, split_share;
    ncclConfig_t config;    /* copy of the program's configuration, for host_nccl_config() */
    int later_fields[8];    /* fields of later NCCL versions, which the program's configuration has
                             * behind those of ncclConfig_t */
    _Atomic int async;      /* the ncclResult_t that ncclCommGetAsyncError() reports */
    _Atomic int abort_flag; /* not 0: kernels and jobs of this communicator must end */
    bool initialised, destroying, finalized, revoked;
    struct ncclComm *child;      /* the child communicator that is being made from this one, or
                                  * NULL; an abort of this communicator aborts the child */
    /* The last group of this communicator that runs on a thread of its own; NULL if there is none,
     * or after group_join(). Atomic, because one thread may abort the communicator while another
     * thread is in a call with it. */
    struct group_job *_Atomic group_job;
    struct peers *peers;
    struct host_op *last;    /* the last kernel, for which the next kernel waits */
    struct host_clock clock; /* contains all operations before the end of the last kernel */
    pthread_mutex_t running; /* held by the kernel that runs */
    /* step: number of data exchanges that the kernels have made; calls: number of collectives that
     * the kernels have run */
    uint64_t step, calls;
    /* connected: true if all ranks are connected for collectives; sends_to[r] and receives_from[r]:
     * true if this rank is connected for messages to rank r, or from rank r */
    bool connected, *sends_to, *receives_from;
    _Atomic int graphs;         /* number of CUDA graphs that contain operations of this
                                 * communicator */
    struct arithmetic *own_ops; /* reduction operators that the program has made with
                                 * ncclRedOpCreatePreMulSum() */
    size_t own_op_count;
};

/* Checks a communicator's handle, as NCCL's CommCheck() does. Returns ncclSuccess, or
 * ncclInvalidArgument if `comm` is NULL. If the communicator was freed, ends the process through
 * host_misuse(). `call` is the name of the function that the program called, for messages. */
ncclResult_t comm_check(ncclComm_t comm, const char *call);

/* Does what NCCL's ncclCommEnsureReady() does. If the last non-blocking call on the communicator
 * has succeeded, or the abort flag is set, returns ncclSuccess. If that call is still in progress,
 * returns ncclInvalidArgument; if it has failed, returns its error. */
ncclResult_t comm_ready(ncclComm_t comm);

ncclResult_t comm_configure(ncclComm_t comm, const ncclConfig_t *config);
struct ncclComm *comm_child(ncclComm_t parent); /* makes one with the parent's settings */

/* Makes this rank's communicator of `size` ranks, for ncclCommGrow(). If `old` is not NULL, the new
 * communicator has the rank number and the device of `old`, and `rank` is not used. If `old` is
 * NULL, this rank is new: its number is `rank`, and its device is the thread's current device. */
struct ncclComm *comm_grown(ncclComm_t old, int size, int rank);

/* Attaches this rank to the shared memory at the address, and waits until all ranks of the
 * communicator have done the same. Returns ncclSuccess or an error. */
ncclResult_t comm_connect(ncclComm_t comm, const struct peers_address *address);

/* Sets the abort flags of the communicator, and of a child that is being made from it, to `value`.
 */
void comm_set_abort(ncclComm_t comm, int value);

/* Adds a job to the group. `run` is the job's function, which finalizes, frees or revokes `comm`.
 */
struct job;
ncclResult_t comm_end(ncclComm_t comm, ncclResult_t (*run)(struct job *job));

/* Returns the result of a call on a non-blocking communicator. `end` is what group_end() returned
 * for the call. */
ncclResult_t comm_outcome(ncclComm_t comm, ncclResult_t end);

void comm_set_async(ncclComm_t comm, ncclResult_t result);
bool comm_aborted(void *comm);

/* Stores the text that ncclGetLastError() returns, and returns `result`. If HOST_NCCL_VERBOSE is
 * set, also writes the text to stderr. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- groups of calls (group.c) ---- */

/* An init, split, shrink, grow, finalize, revoke or destroy. It runs at the end of the group of
 * calls. */
struct job {
    struct job *next;
    ncclComm_t comm; /* the job's communicator; its state is set to the job's result */
    ncclResult_t (*run)(struct job *job);
    /* In a split or shrink, child is the new communicator, or NULL on a rank that gets none, and
     * out is where the program wants its handle. In a grow, child is the old communicator. */
    ncclComm_t child, *out;
    int color, key;               /* arguments of a split; in a grow, color is 1 on the rank of the
                                   * old communicator that has the id, else 0 */
    bool *survivors;              /* shrink: survivors[r] is true if rank r stays; split: NULL */
    /* init and grow: address of the shared memory, from the unique id */
    struct peers_address address;
};

/* Call this between group_start() and group_end(). Configures the new communicator `c`, and adds to
 * the group a copy of `plan`, a job that connects `c`. If `id` is not NULL, the job gets the
 * address in `id`. Stores `c` in *out, because in NCCL the caller gets the handle before the job is
 * done. */
ncclResult_t comm_begin(struct ncclComm *c, struct job plan, const ncclUniqueId *id,
                        const ncclConfig_t *config, ncclComm_t *out);

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
    int root; /* the root of a collective; the other rank of a send or receive */
};

struct kernel {
    ncclComm_t comm;
    char what[64];
    struct part *parts;
};

void group_start(void);
ncclResult_t group_end(void);
/* Returns `result`. If it is an error and a group is open, group_end() will fail with it. */
ncclResult_t group_error(ncclResult_t result);
/* Returns how many groups of this thread are open (they can be nested). */
int group_depth(void);
ncclResult_t group_add_job(struct job *job);
ncclResult_t group_add_part(ncclComm_t comm, struct part *part, cudaStream_t stream);

/* Ends the use of the last non-blocking group of `comm`, which runs on a thread of its own. Call
 * this for each communicator of the group: the last of these calls joins the thread, the earlier
 * ones only count. Does nothing if `comm` has no such group. */
void group_join(ncclComm_t comm);

/* ---- kernels (kernels.c) ---- */

/* Connects this rank to the ranks with which the kernel communicates. Blocks until these ranks have
 * connected, too. */
ncclResult_t kernel_connect(struct kernel *kernel);
void kernel_run(void *kernel);
void kernel_free(void *kernel);

/* Stores in `out` the memory ranges that the kernel reads and writes, and returns their number. An
 * operation has at most two ranges. */
size_t kernel_accesses(const struct kernel *kernel, struct host_access *out);

#endif
