/* Communicators that are made from another one by split, shrink or grow; and revoke, which a
 * program may call before it shrinks a communicator.
 *
 * Modelled on init.cc of NCCL 2.28.9 and 2.30.7:
 * - ncclCommInitChildComm: the handle that the caller gets is NULL until the child is complete. The
 *   abort of the parent also ends the making of the child. The child's ranks are ordered by key,
 *   and ranks of equal keys by their rank in the parent.
 * - ncclCommShrink with NCCL_SHRINK_ABORT sets the abort flag, waits for the communicator's
 *   kernels, and clears the flag.
 * - ncclCommRevoke and commRevokeAsync (since 2.28.7) do these three steps in a job. A revoked
 *   communicator refuses all further operations (enqueue.cc, ncclEnqueueCheck).
 * - ncclCommGetUniqueId and ncclCommGrow (since 2.29): the ranks of the old communicator keep
 *   their numbers, and the new ranks name theirs. One rank of the old communicator makes the id;
 *   NCCL gives it to the other ranks of the old communicator, the program to the new ranks. The
 *   caller gets the new handle before the communicator is connected, as with ncclCommInitRank. */
#include "tests/host_nccl/comm.h"

#include <stdlib.h>
#include <string.h>

static bool given_up(void *child_and_parent) {
    struct ncclComm **pair = child_and_parent;
    return comm_aborted(pair[1]) || (pair[0] != NULL && comm_aborted(pair[0]));
}

/* Returns how many ranks the child has. Stores this rank's number in the child in *place. Stores in
 * *leader the lowest parent rank that is in the child; this rank makes the child's shared memory.
 */
static int place_ranks(const struct job *job, int *place, int *leader) {
    const struct peers_rank *all = job->comm->peers->ranks;
    int size = 0, own = job->comm->rank, before = 0, first = -1;
    for (int r = 0; r < job->comm->size; r++) {
        if (job->survivors != NULL ? !job->survivors[r] : all[r].color != job->color) continue;
        int key = job->survivors != NULL ? r : all[r].key,
            mine = job->survivors != NULL ? own : job->key;
        size++;
        if (key < mine || (key == mine && r < own)) before++;
        if (first < 0) first = r;
    }
    *place = before;
    *leader = first;
    return size;
}

static bool meet(struct job *job, struct ncclComm **pair) {
    struct peers *p = job->comm->peers;
    if (job->survivors == NULL) return PEERS_BARRIER(p, phase, NULL, given_up, pair);
    return PEERS_BARRIER(p, shrink, job->survivors, given_up, pair);
}

static ncclResult_t run_descend(struct job *job) {
    struct ncclComm *parent = job->comm, *child = job->child, *pair[2] = {child, parent};
    struct peers_rank *own = &parent->peers->ranks[parent->rank];
    int place = 0, leader = 0;
    own->color = job->color;
    own->key = job->key;
    if (!meet(job, pair)) return ncclInternalError;
    int size = place_ranks(job, &place, &leader);
    bool leads = child != NULL && leader == parent->rank;
    if (leads && peers_make(&own->child) < 0) return ncclSystemError;
    if (!meet(job, pair)) return ncclInternalError;
    if (child == NULL) return ncclSuccess;
    child->rank = place;
    child->size = size;
    struct peers_address address = parent->peers->ranks[leader].child;
    ncclResult_t r = comm_connect(child, &address);
    if (leads) peers_forget(&address);
    if (r != ncclSuccess) return r;
    host_lock();
    parent->child = NULL;
    host_unlock();
    __atomic_store_n(job->out, child, __ATOMIC_RELEASE);
    return ncclSuccess;
}

/* Call this between group_start() and group_end(). Adds to the group a job that makes a child.
 * `member` is false on a rank that makes the call, as all ranks must, but gets no child. */
static ncclResult_t begin(ncclComm_t comm, bool member, bool *survivors, int color, int key,
                          ncclComm_t *out, const ncclConfig_t *config) {
    ncclResult_t r =
        out == NULL ? nccl_fail(ncclInvalidArgument, "newcomm argument is NULL") : comm_ready(comm);
    if (r != ncclSuccess) return r;
    *out = NULL;
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) abort();
    if (member) {
        job->child = comm_child(comm);
        r = config != NULL ? comm_configure(job->child, config) : ncclSuccess;
        host_lock();
        comm->child = job->child;
        host_unlock();
    }
    job->comm = comm;
    job->run = run_descend;
    job->survivors = survivors;
    job->color = color;
    job->key = key;
    job->out = out;
    if (r == ncclSuccess) r = group_add_job(job);
    if (r != ncclSuccess) free(job);
    return r;
}

#pragma GCC visibility push(default)

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
    struct host_fault f = host_call("ncclCommSplit");
    ncclResult_t r = comm_check(comm, "ncclCommSplit");
    if (r != ncclSuccess) return r;
    group_start();
    r = f.kind == HOST_FAULT_NCCL
            ? (ncclResult_t) f.code
            : begin(comm, color != NCCL_SPLIT_NOCOLOR, NULL, color, key, out, config);
    (void) group_error(r);
    ncclResult_t end = group_end();
    return end == ncclSuccess ? r : end;
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static ncclResult_t shrink(ncclComm_t comm, const int *excluded, int count, ncclComm_t *out,
                           const ncclConfig_t *config) {
    if (excluded == NULL || count <= 0)
        return nccl_fail(ncclInvalidArgument, "the list of excluded ranks is empty");
    bool *survivors = malloc((size_t) comm->size * sizeof(*survivors));
    if (survivors == NULL) abort();
    for (int r = 0; r < comm->size; r++) survivors[r] = true;
    for (int i = 0; i < count; i++)
        if (excluded[i] >= 0 && excluded[i] < comm->size) survivors[excluded[i]] = false;
    ncclResult_t r = survivors[comm->rank] ? ncclSuccess : ncclInvalidArgument;
    if (r == ncclSuccess) r = begin(comm, true, survivors, 0, comm->rank, out, config);
    if (r != ncclSuccess) free(survivors);
    return r;
}

static void wait_for_last(ncclComm_t comm) {
    host_lock();
    struct host_op *last = comm->last;
    host_op_ref(last);
    host_unlock();
    if (last != NULL) host_op_wait(last);
    host_lock();
    host_op_unref(last);
    host_unlock();
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *out,
                            ncclConfig_t *config, int flags) {
    struct host_fault f = host_call("ncclCommShrink");
    ncclResult_t r = comm_check(comm, "ncclCommShrink");
    if (r != ncclSuccess) return r;
    group_start();
    if ((flags & NCCL_SHRINK_ABORT) != 0) {
        comm_set_abort(comm, 1);
        wait_for_last(comm);
        comm_set_abort(comm, 0);
    }
    r = f.kind == HOST_FAULT_NCCL ? (ncclResult_t) f.code
                                  : shrink(comm, excluded, count, out, config);
    (void) group_error(r);
    ncclResult_t end = group_end();
    return end == ncclSuccess ? r : end;
}
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
static ncclResult_t run_revoke(struct job *job) {
    wait_for_last(job->comm);
    comm_set_abort(job->comm, 0);
    return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    struct host_fault f = host_call("ncclCommRevoke");
    if (comm == NULL) return ncclSuccess;
    ncclResult_t r = comm_check(comm, "ncclCommRevoke");
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    if (flags != 0 || comm->destroying || comm->finalized || comm->revoked)
        return nccl_fail(ncclInvalidArgument, "the communicator cannot be revoked now");
    group_start();
    comm_set_abort(comm, 1);
    comm->revoked = true;
    (void) comm_ready(comm);
    comm->finalized = true;
    r = comm_end(comm, run_revoke);
    (void) group_error(r);
    ncclResult_t end = group_end();
    if (end != ncclSuccess && end != ncclInProgress) return end;
    return comm->blocking ? r : comm_outcome(comm, end);
}
#endif

/* ---- grow ---- */

static bool grow_given_up(void *child_and_parent) {
    struct ncclComm **pair = child_and_parent;
    return comm_aborted(pair[0]) || comm_aborted(pair[1]);
}

/* Every rank of the old communicator calls this. The rank that has the id publishes the id's
 * address in the shared memory of the old communicator; the others store that address in
 * job->address. */
static ncclResult_t share_grow_address(struct job *job) {
    struct ncclComm *pair[2] = {job->comm, job->child};
    struct peers *p = job->child->peers;
    struct peers_rank *own = &p->ranks[p->rank];
    own->color = job->color;
    if (job->color != 0) own->child = job->address;
    if (!PEERS_BARRIER(p, phase, NULL, grow_given_up, pair)) return ncclInternalError;
    for (int r = 0; r < p->size; r++)
        if (p->ranks[r].color != 0) job->address = p->ranks[r].child;
    if (!PEERS_BARRIER(p, phase, NULL, grow_given_up, pair)) return ncclInternalError;
    return ncclSuccess;
}

/* Connects the new communicator of a grow, job->comm. job->child is the old communicator, or NULL
 * on a new rank. job->color is 1 on the rank of the old communicator that has the id. */
static ncclResult_t run_grow(struct job *job) {
    struct host_fault f = host_call("grow");
    if (f.kind == HOST_FAULT_NCCL) return nccl_fail((ncclResult_t) f.code, "grow: as ordered");
    ncclResult_t r = job->child != NULL ? share_grow_address(job) : ncclSuccess;
    if (r == ncclSuccess) r = comm_connect(job->comm, &job->address);
    if (r == ncclSuccess && job->color != 0) peers_forget(&job->address);
    return r;
}

/* Call this between group_start() and group_end(). Checks the arguments of ncclCommGrow(), makes
 * the new communicator, and adds to the group a job that connects it. Stores the handle in *out. */
static ncclResult_t begin_grow(ncclComm_t old, int size, const ncclUniqueId *id, int rank,
                               ncclComm_t *out, const ncclConfig_t *config) {
    if (out == NULL || size <= (old != NULL ? old->size : 0))
        return nccl_fail(ncclInvalidArgument, "ncclCommGrow: %d ranks are too few", size);
    if (old != NULL ? rank != -1 : id == NULL || rank < 0 || rank >= size)
        return nccl_fail(ncclInvalidArgument, "ncclCommGrow: invalid rank %d", rank);
    ncclResult_t r = old != NULL ? comm_ready(old) : ncclSuccess;
    if (r != ncclSuccess) return r;
    struct job plan = {.run = run_grow, .child = old, .color = old != NULL && id != NULL};
    return comm_begin(comm_grown(old, size, rank), plan, id, config, out);
}

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 0)
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
ncclResult_t ncclCommGrow(ncclComm_t comm, int size, const ncclUniqueId *id, int rank,
                          ncclComm_t *out, ncclConfig_t *config);
#endif

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id) {
    struct host_fault f = host_call("ncclCommGetUniqueId");
    ncclResult_t r = comm_check(comm, "ncclCommGetUniqueId");
    if (r == ncclSuccess) r = comm_ready(comm);
    if (r != ncclSuccess) return r;
    if (f.kind == HOST_FAULT_NCCL) return (ncclResult_t) f.code;
    return ncclGetUniqueId(id);
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int size, const ncclUniqueId *id, int rank,
                          ncclComm_t *out, ncclConfig_t *config) {
    struct host_fault f = host_call("ncclCommGrow");
    ncclResult_t r = comm != NULL ? comm_check(comm, "ncclCommGrow") : ncclSuccess;
    if (r != ncclSuccess) return r;
    group_start();
    r = f.kind == HOST_FAULT_NCCL ? (ncclResult_t) f.code
                                  : begin_grow(comm, size, id, rank, out, config);
    (void) group_error(r);
    ncclResult_t end = group_end();
    return end == ncclSuccess ? r : end;
}

#pragma GCC visibility pop
