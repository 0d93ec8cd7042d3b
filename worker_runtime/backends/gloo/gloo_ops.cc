// The operations. Each is one call of Gloo, if Gloo has the operation.
#include "worker_runtime/backends/gloo/gloo_ops.h"

#include "worker_runtime/backends/gloo/gloo_guard.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace crunrt_gloo {

// ---- messages ----

Buffer post(const Call &c) {
    bool sends = c.op->kind == CRUNRT_OP_SEND;
    Buffer buffer = c.context()->createUnboundBuffer(sends ? c.send() : c.op->recv, c.bytes);
    if (sends) {
        buffer->send(c.op->root, c.slot);
    } else {
        buffer->recv(c.op->root, c.slot);
    }
    return buffer;
}

void wait_for_message(const Call &c, const Buffer &buffer) {
    if (c.op->kind == CRUNRT_OP_SEND) {
        buffer->waitSend(c.timeout);
    } else {
        buffer->waitRecv(c.timeout);
    }
}

namespace {

// ---- collectives ----

template <typename Options> void set_common(Options &options, const Call &c) {
    options.setTag(c.tag);
    options.setTimeout(c.timeout);
}

// Sets the input buffer. Gloo uses the C++ type of the pointer only for the size of an element, so
// the pointer is cast to an unsigned integer of that size, whatever the data type is.
template <typename Options> void set_input(Options &o, const Call &c, void *data, size_t count) {
    switch (c.element) {
    case 1: o.setInput(static_cast<uint8_t *>(data), count); break;
    case 2: o.setInput(static_cast<uint16_t *>(data), count); break;
    case 4: o.setInput(static_cast<uint32_t *>(data), count); break;
    default: o.setInput(static_cast<uint64_t *>(data), count); break;
    }
}

template <typename Options> void set_output(Options &o, const Call &c, void *data, size_t count) {
    switch (c.element) {
    case 1: o.setOutput(static_cast<uint8_t *>(data), count); break;
    case 2: o.setOutput(static_cast<uint16_t *>(data), count); break;
    case 4: o.setOutput(static_cast<uint32_t *>(data), count); break;
    default: o.setOutput(static_cast<uint64_t *>(data), count); break;
    }
}

void all_reduce(const Call &c) {
    gloo::AllreduceOptions o(c.context());
    set_common(o, c);
    if (!c.in_place()) set_input(o, c, c.send(), c.op->count);
    set_output(o, c, c.op->recv, c.op->count);
    o.setReduceFunction(c.reduction());
    gloo::allreduce(o);
    reduce_finish(c.op->recv, c.op->count, c.op->dtype, c.op->reduce, c.state->size);
}

// Gloo's reduce writes to the output buffer on every rank, so ranks other than the root use a
// scratch buffer.
void reduce(const Call &c) {
    bool root = c.state->rank == c.op->root;
    std::vector<char> scratch(root ? 0 : c.bytes);
    void *out = root ? c.op->recv : scratch.data();
    gloo::ReduceOptions o(c.context());
    set_common(o, c);
    o.setRoot(c.op->root);
    if (c.send() != out) set_input(o, c, c.send(), c.op->count);
    set_output(o, c, out, c.op->count);
    o.setReduceFunction(c.reduction());
    gloo::reduce(o);
    if (root) reduce_finish(out, c.op->count, c.op->dtype, c.op->reduce, c.state->size);
}

void broadcast(const Call &c) {
    gloo::BroadcastOptions o(c.context());
    set_common(o, c);
    o.setRoot(c.op->root);
    set_output(o, c, c.op->recv, c.op->count);
    gloo::broadcast(o);
}

void all_gather(const Call &c) {
    gloo::AllgatherOptions o(c.context());
    set_common(o, c);
    if (c.send() != c.recv_part(c.state->rank)) {
        set_input(o, c, c.send(), c.op->count);
    }
    set_output(o, c, c.op->recv, c.op->count * static_cast<size_t>(c.state->size));
    gloo::allgather(o);
}

void gather(const Call &c) {
    gloo::GatherOptions o(c.context());
    set_common(o, c);
    o.setRoot(c.op->root);
    set_input(o, c, c.send(), c.op->count);
    if (c.state->rank == c.op->root) {
        set_output(o, c, c.op->recv, c.op->count * static_cast<size_t>(c.state->size));
    }
    gloo::gather(o);
}

void scatter(const Call &c) {
    gloo::ScatterOptions o(c.context());
    set_common(o, c);
    o.setRoot(c.op->root);
    if (c.state->rank == c.op->root) {
        std::vector<uint8_t *> parts;
        for (int r = 0; r < c.state->size; r++)
            parts.push_back(reinterpret_cast<uint8_t *>(c.send_part(r)));
        o.setInputs(parts, c.bytes);
    }
    o.setOutput(static_cast<uint8_t *>(c.op->recv), c.bytes);
    gloo::scatter(o);
}

// Implemented as a ring, because Gloo has no reduce-scatter with a tag. In step s each rank sends
// the partial sum of part rank-1-s to its right neighbour, and adds its own values to the partial
// sum that it receives from its left neighbour. After size-1 steps each rank has the complete sum
// of part `rank`.
void reduce_scatter(const Call &c) {
    const int n = c.state->size, rank = c.state->rank;
    const int left = (rank + n - 1) % n, right = (rank + 1) % n;
    const uint64_t slot = UINT64_C(0xF0) << 56 | static_cast<uint64_t>(c.tag) << 8;
    std::vector<char> passing(c.bytes), coming(c.bytes);
    std::memcpy(passing.data(), c.send_part(left), c.bytes);
    for (int step = 0; step < n - 1; step++) {
        auto out = c.context()->createUnboundBuffer(passing.data(), c.bytes);
        auto in = c.context()->createUnboundBuffer(coming.data(), c.bytes);
        in->recv(left, slot);
        out->send(right, slot);
        in->waitRecv(c.timeout);
        out->waitSend(c.timeout);
        const int part = (rank + 2 * n - 2 - step) % n;
        c.reduction()(passing.data(), coming.data(), c.send_part(part), c.op->count);
    }
    std::memcpy(c.op->recv, passing.data(), c.bytes);
    reduce_finish(c.op->recv, c.op->count, c.op->dtype, c.op->reduce, n);
}

void all_to_all(const Call &c) {
    gloo::AlltoallOptions o(c.context());
    set_common(o, c);
    const size_t total = c.op->count * static_cast<size_t>(c.state->size);
    set_input(o, c, c.send(), total);
    set_output(o, c, c.op->recv, total);
    gloo::alltoall(o);
}

// Sends to and receives from all ranks at the same time. The slot of each message contains the
// message's length, so that a send and a receive of different lengths do not match. This rank's own
// part is copied.
void all_to_all_counts(const Call &c) {
    const int n = c.state->size, rank = c.state->rank;
    const size_t ranks = static_cast<size_t>(n);
    std::vector<Buffer> out(ranks), in(ranks);
    auto from = static_cast<const char *>(c.op->send);
    auto to = static_cast<char *>(c.op->recv);
    auto slot = [&c](size_t bytes) {
        const uint64_t length = (bytes + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
        return UINT64_C(0xF1) << 56 | static_cast<uint64_t>(c.tag) << 24 | length;
    };
    for (int r = 0; r < n; r++) {
        const size_t i = static_cast<size_t>(r), sent = c.op->send_counts[i] * c.element,
                     received = c.op->recv_counts[i] * c.element;
        if (r == rank && sent > 0) std::memcpy(to, from, sent);
        if (r != rank && received > 0) {
            in[i] = c.context()->createUnboundBuffer(to, received);
            in[i]->recv(r, slot(received));
        }
        if (r != rank && sent > 0) {
            out[i] = c.context()->createUnboundBuffer(const_cast<char *>(from), sent);
            out[i]->send(r, slot(sent));
        }
        from += sent;
        to += received;
    }
    for (size_t i = 0; i < ranks; i++) {
        if (in[i] != nullptr) in[i]->waitRecv(c.timeout);
        if (out[i] != nullptr) out[i]->waitSend(c.timeout);
    }
}

// Calls Gloo's own all-to-all with counts. It is used if the group has ranks of torch, which call
// this function of Gloo, too.
void foreign_all_to_all_counts(const Call &c) {
    gloo::AlltoallvOptions o(c.context());
    set_common(o, c);
    std::vector<int64_t> out, in;
    for (int r = 0; r < c.state->size; r++) {
        out.push_back(static_cast<int64_t>(c.op->send_counts[r] * c.element));
        in.push_back(static_cast<int64_t>(c.op->recv_counts[r] * c.element));
    }
    o.setInput(static_cast<uint8_t *>(c.send()), out);
    o.setOutput(static_cast<uint8_t *>(c.op->recv), in);
    gloo::alltoallv(o);
}

void barrier(const Call &c) {
    gloo::BarrierOptions o(c.context());
    set_common(o, c);
    gloo::barrier(o);
}

void dispatch(const Call &c) {
    switch (c.op->kind) {
    case CRUNRT_OP_ALL_REDUCE: return all_reduce(c);
    case CRUNRT_OP_REDUCE: return reduce(c);
    case CRUNRT_OP_BROADCAST: return broadcast(c);
    case CRUNRT_OP_ALL_GATHER: return all_gather(c);
    case CRUNRT_OP_GATHER: return gather(c);
    case CRUNRT_OP_SCATTER: return scatter(c);
    case CRUNRT_OP_REDUCE_SCATTER: return reduce_scatter(c);
    case CRUNRT_OP_ALL_TO_ALL: return all_to_all(c);
    case CRUNRT_OP_ALL_TO_ALL_COUNTS:
        return c.state->is_foreign ? foreign_all_to_all_counts(c) : all_to_all_counts(c);
    case CRUNRT_OP_BARRIER: return barrier(c);
    case CRUNRT_OP_SEND:
    case CRUNRT_OP_RECV: return wait_for_message(c, post(c));
    }
}

// Runs an operation in a group of one rank, where every collective is a copy.
void run_alone(const Call &c) {
    size_t bytes =
        c.op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS ? c.op->send_counts[0] * c.element : c.bytes;
    bool copies = c.op->kind != CRUNRT_OP_BARRIER && c.op->kind != CRUNRT_OP_BROADCAST;
    if (copies && bytes > 0 && !c.in_place()) std::memcpy(c.op->recv, c.op->send, bytes);
}

} // namespace

// ---- what the backend calls ----

int check_supported(const crunrt_op *op, cr_error *err) {
    bool reduces = op->kind == CRUNRT_OP_ALL_REDUCE || op->kind == CRUNRT_OP_REDUCE ||
                   op->kind == CRUNRT_OP_REDUCE_SCATTER;
    if (!reduces || reduce_function(op->dtype, op->reduce) != nullptr) return 0;
    return cr_fail(err, -ENOTSUP,
                   "gloo has no reduce operation %d for data type %d; an average needs a "
                   "floating type",
                   op->reduce, op->dtype);
}

Call describe(void *state, const backend_call *call, const crunrt_op *op) {
    Call c;
    c.state = static_cast<State *>(state);
    c.op = op;
    c.tag = c.state->is_foreign ? call->seq : call->signature << 12 | (call->seq & 0xfff);
    c.slot = op->tag;
    if (!c.state->is_foreign) c.slot |= static_cast<uint64_t>(call->signature & 0xffffff) << 32;
    c.timeout = to_milliseconds(op->timeout_ms);
    c.element = call->element_size;
    c.bytes = op->count * c.element;
    return c;
}

void run_to_end(const Call &c) {
    if (c.state->size == 1) {
        run_alone(c);
    } else {
        dispatch(c);
    }
}

} // namespace crunrt_gloo
