/* Operations on a communicator. Each operation is a nonblocking call of MPI; its work tests MPI's
 * request for it. mpi_run() starts a work and waits for it.
 *
 * MPI cannot cancel an operation other than a receive. After a failure, MPI may still read and
 * write the buffers of such an operation, inside any later call of MPI. So this backend does not
 * free memory that MPI may use, and the program must not free the operation's buffers. */
#include "worker_runtime/backends/mpi/mpi_internal.h"

#include "worker_runtime/backends/reduce/reduce.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

struct mpi_work {
    struct mpi_state *s;
    crunrt_op op;
    size_t element; /* bytes of one element */
    int64_t deadline_ms;
    MPI_Request request;
    /* for an all-to-all with counts: four arrays, each with one int per rank: counts and offsets of
     * the data to send, counts and offsets of the data to receive */
    int *counts;
    bool is_over;
    struct cr_error outcome; /* result of the operation; valid if is_over is true */
};

static bool is_reduction(const crunrt_op *op) {
    return op->kind == CRUNRT_OP_ALL_REDUCE || op->kind == CRUNRT_OP_REDUCE ||
           op->kind == CRUNRT_OP_REDUCE_SCATTER;
}

static bool is_message(const crunrt_op *op) {
    return op->kind == CRUNRT_OP_SEND || op->kind == CRUNRT_OP_RECV;
}

static int check_supported(const struct mpi_state *s, const crunrt_op *op, struct cr_error *err) {
    if (is_reduction(op) && reduce_function(op->dtype, op->reduce) == NULL) {
        return cr_fail(err, -ENOTSUP,
                       "mpi has no reduce operation %d for data type %d; an average needs a "
                       "floating type",
                       (int) op->reduce, (int) op->dtype);
    }
    if (op->kind != CRUNRT_OP_ALL_TO_ALL_COUNTS && op->count > INT_MAX) {
        return cr_fail(err, -ENOTSUP, "mpi counts to %d elements, not to %zu; split the call",
                       INT_MAX, op->count);
    }
    if (is_message(op) && op->tag > (unsigned) s->tag_max) {
        return cr_fail(err, -ENOTSUP, "tags of this MPI end at %d", s->tag_max);
    }
    return 0;
}

/* Converts counts to the form that MPI wants: writes `size` counts to `out`, and behind them `size`
 * displacements. */
static int put_counts(const size_t *counts, int size, int *out, struct cr_error *err) {
    size_t at = 0;
    for (int r = 0; r < size; r++) {
        if (counts[r] > INT_MAX || at > INT_MAX) {
            return cr_fail(err, -ENOTSUP, "mpi counts to %d elements in all; split the call",
                           INT_MAX);
        }
        out[r] = (int) counts[r];
        out[size + r] = (int) at;
        at += counts[r];
    }
    return 0;
}

static int fill_counts(struct mpi_work *w, struct cr_error *err) {
    int size = w->s->size;
    if (w->op.kind != CRUNRT_OP_ALL_TO_ALL_COUNTS) return 0;
    w->counts = malloc(4 * (size_t) size * sizeof(*w->counts));
    if (w->counts == NULL) return cr_fail(err, -ENOMEM, "count: out of memory");
    int rc = put_counts(w->op.send_counts, size, w->counts, err);
    if (rc == 0)
        rc = put_counts(w->op.recv_counts, size, w->counts + (size_t) 2 * (size_t) size, err);
    return rc;
}

/* Returns what to pass to MPI as the send buffer: MPI_IN_PLACE if `send` and `recv` are the same
 * buffer, because MPI requires this, else `send`. */
static const void *unless_same(const void *send, const void *recv) {
    return send == recv ? MPI_IN_PLACE : send;
}

static int start_reduction(struct mpi_work *w, MPI_Datatype t, int n) {
    const crunrt_op *op = &w->op;
    struct mpi_state *s = w->s;
    bool is_root = op->root == s->rank;
    MPI_Op reduce = operation_of(op->dtype, op->reduce);
    if (op->kind == CRUNRT_OP_ALL_REDUCE) {
        return MPI_Iallreduce(unless_same(op->send, op->recv), op->recv, n, t, reduce, s->comm,
                              &w->request);
    }
    if (op->kind == CRUNRT_OP_REDUCE) {
        return MPI_Ireduce(is_root ? unless_same(op->send, op->recv) : op->send,
                           is_root ? op->recv : NULL, n, t, reduce, op->root, s->comm, &w->request);
    }
    return MPI_Ireduce_scatter_block(op->send, op->recv, n, t, reduce, s->comm, &w->request);
}

/* Starts a gather, scatter or all-gather of `n` elements per rank. In a gather only the root has
 * the receive buffer for all ranks; in a scatter only the root has the send buffer for all ranks.
 */
static int start_gathering(struct mpi_work *w, MPI_Datatype t, int n) {
    const crunrt_op *op = &w->op;
    struct mpi_state *s = w->s;
    bool is_root = op->root == s->rank;
    size_t own = (size_t) s->rank * op->count * w->element;
    const char *own_sent = (const char *) op->send + own;
    char *own_recv = (char *) op->recv + own;
    if (op->kind == CRUNRT_OP_ALL_GATHER) {
        return MPI_Iallgather(unless_same(op->send, own_recv), n, t, op->recv, n, t, s->comm,
                              &w->request);
    }
    if (op->kind == CRUNRT_OP_GATHER) {
        return MPI_Igather(is_root ? unless_same(op->send, own_recv) : op->send, n, t,
                           is_root ? op->recv : NULL, n, t, op->root, s->comm, &w->request);
    }
    return MPI_Iscatter(is_root ? op->send : NULL, n, t,
                        is_root && own_sent == op->recv ? MPI_IN_PLACE : op->recv, n, t, op->root,
                        s->comm, &w->request);
}

/* Calls the function of MPI that starts the operation. Returns the code that MPI returned. */
static int submit(struct mpi_work *w) {
    const crunrt_op *op = &w->op;
    struct mpi_state *s = w->s;
    int n = (int) op->count, size = s->size, *c = w->counts;
    MPI_Datatype t = type_of(op->dtype);
    switch (op->kind) {
    case CRUNRT_OP_ALL_REDUCE:
    case CRUNRT_OP_REDUCE:
    case CRUNRT_OP_REDUCE_SCATTER: return start_reduction(w, t, n);
    case CRUNRT_OP_ALL_GATHER:
    case CRUNRT_OP_GATHER:
    case CRUNRT_OP_SCATTER: return start_gathering(w, t, n);
    case CRUNRT_OP_BROADCAST: return MPI_Ibcast(op->recv, n, t, op->root, s->comm, &w->request);
    case CRUNRT_OP_ALL_TO_ALL:
        return MPI_Ialltoall(op->send, n, t, op->recv, n, t, s->comm, &w->request);
    case CRUNRT_OP_ALL_TO_ALL_COUNTS:
        return MPI_Ialltoallv(op->send, c, c + size, t, op->recv, c + 2 * size, c + 3 * size, t,
                              s->comm, &w->request);
    case CRUNRT_OP_BARRIER: return MPI_Ibarrier(s->comm, &w->request);
    case CRUNRT_OP_SEND:
        return MPI_Isend(op->send, n, t, op->root, (int) op->tag, s->comm, &w->request);
    case CRUNRT_OP_RECV:
        return MPI_Irecv(op->recv, n, t, op->root, (int) op->tag, s->comm, &w->request);
    }
    return MPI_ERR_ARG;
}

int mpi_start(void *arg, const struct backend_call *call, void **out, struct cr_error *err) {
    struct mpi_state *s = arg;
    int rc = check_supported(s, call->op, err);
    if (rc < 0) return rc;
    struct mpi_work *w = calloc(1, sizeof(*w));
    if (w == NULL) return cr_fail(err, -ENOMEM, "start an operation: out of memory");
    w->s = s;
    w->op = *call->op;
    w->element = call->element_size;
    w->deadline_ms = cr_deadline_ms(call->op->timeout_ms);
    w->request = MPI_REQUEST_NULL;
    rc = fill_counts(w, err);
    if (rc == 0) {
        mpi_enter();
        int code = is_finalised() ? MPI_ERR_OTHER : submit(w);
        if (code != MPI_SUCCESS) rc = fail_mpi(code, err, "start the operation");
        mpi_leave();
    }
    if (rc < 0) {
        mpi_release(w);
        return rc;
    }
    *out = w;
    return 0;
}

/* Checks that a received message has the length that the receive expects, because MPI reports no
 * error for a shorter message. Returns 0; or -EPROTO, and sets err. */
static int check_length(const struct mpi_work *w, const MPI_Status *status, struct cr_error *err) {
    int count = 0;
    (void) MPI_Get_count(status, type_of(w->op.dtype), &count);
    if (count == (int) w->op.count) return 0;
    return cr_fail(err, -EPROTO, "receive from rank %d: it sent %d elements instead of %zu",
                   w->op.root, count, w->op.count);
}

static int complete(const struct mpi_work *w, const MPI_Status *status, struct cr_error *err) {
    const crunrt_op *op = &w->op;
    if (op->kind == CRUNRT_OP_RECV) return check_length(w, status, err);
    if (is_reduction(op) && (op->kind != CRUNRT_OP_REDUCE || op->root == w->s->rank)) {
        reduce_finish(op->recv, op->count, op->dtype, op->reduce, w->s->size);
    }
    return 0;
}

int mpi_wait(void *arg, int64_t timeout_ms, struct cr_error *err) {
    struct mpi_work *w = arg;
    if (w->is_over) {
        if (w->outcome.code != 0) *err = w->outcome;
        return w->outcome.code;
    }
    int64_t until = timeout_ms > 0 ? cr_deadline_ms(timeout_ms) : 0;
    if (until > w->deadline_ms) until = w->deadline_ms;
    /* after an abort this function does not wait: it tests the request once, because the operation
     * may have ended before the abort */
    if (w->s->is_aborted) until = 0;
    MPI_Status status;
    int rc = test_until(&w->s->store, &w->request, &status, until, err);
    if (rc == 0) {
        rc = complete(w, &status, err);
    } else if (rc == -EINPROGRESS && w->s->is_aborted) {
        rc = cr_fail(err, -ECONNRESET, "the group was aborted");
    } else if (rc == -EINPROGRESS && cr_monotonic_ms() >= w->deadline_ms) {
        rc = cr_fail(err, -ETIMEDOUT, "the operation timed out after %lld ms",
                     (long long) w->op.timeout_ms);
    }
    if (rc == -EINPROGRESS) return rc;
    w->is_over = true;
    if (rc < 0) w->outcome = *err;
    w->outcome.code = rc;
    return rc;
}

/* Frees a work. An unfinished receive is cancelled and freed. Any other unfinished work is not
 * freed, because MPI may still use its memory. */
void mpi_release(void *arg) {
    struct mpi_work *w = arg;
    if (w->op.kind == CRUNRT_OP_RECV) cancel_receive(&w->request);
    if (w->request != MPI_REQUEST_NULL) return;
    free(w->counts);
    free(w);
}

int mpi_run(void *arg, const struct backend_call *call, struct cr_error *err) {
    void *work = NULL;
    int rc = mpi_start(arg, call, &work, err);
    if (rc < 0) return rc;
    rc = mpi_wait(work, CR_FOREVER, err);
    mpi_release(work);
    return rc;
}

int mpi_batch(void *arg, const struct backend_call *calls, size_t count,
                     struct cr_error *err) {
    CR_AUTO_FREE void **works = calloc(count, sizeof(*works));
    if (works == NULL) return cr_fail(err, -ENOMEM, "run a batch: out of memory");
    size_t started = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) rc = check_supported(arg, calls[i].op, err);
    /* All calls are checked before the first one is started, so no operation has started if the
     * batch is refused. */
    if (rc < 0) return rc;
    for (; rc == 0 && started < count; started += rc == 0) {
        rc = mpi_start(arg, &calls[started], &works[started], err);
    }
    for (size_t i = 0; rc == 0 && i < started; i++) rc = mpi_wait(works[i], CR_FOREVER, err);
    for (size_t i = 0; i < started; i++) mpi_release(works[i]);
    return rc;
}
