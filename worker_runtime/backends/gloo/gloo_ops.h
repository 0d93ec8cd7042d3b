// One operation on a group, as calls of Gloo.
//
// Collectives use the group's number of the call as Gloo's tag; sends and receives use the caller's
// tag as Gloo's slot, as torch's Gloo backend does. Tags and slots also contain the call's
// signature, so that ranks that make different calls do not match: both time out, and can then
// report what they were doing. Without it Gloo would fill a longer buffer only in part, and end the
// process, in a thread of its own, when a message is longer than its buffer. In a group with
// torch's ranks, which do not know about the signature, it is left out.
//
// Gloo's ring all-reduce divides the data by the group's size and the count alone, and reduces in
// ring order. So for a given group size the result has the same bits in every run.
#ifndef BACKENDS_GLOO_OPS_H
#define BACKENDS_GLOO_OPS_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/gloo/gloo_watch.h"
#include "worker_runtime/backends/reduce/reduce.h"

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>

namespace crunrt_gloo {

struct State {
    std::shared_ptr<WatchedContext> context;
    int rank, size;
    bool is_foreign;
};

struct Call {
    State *state;
    const crunrt_op *op;
    uint32_t tag;  // of a collective
    uint64_t slot; // of a send or receive
    std::chrono::milliseconds timeout;
    size_t element, bytes; // sizes in bytes: of one element, of `count` elements

    const std::shared_ptr<gloo::Context> context() const { return state->context; }
    void *send() const { return const_cast<void *>(op->send); }
    char *send_part(int rank) const {
        return static_cast<char *>(send()) + bytes * static_cast<size_t>(rank);
    }
    char *recv_part(int rank) const {
        return static_cast<char *>(op->recv) + bytes * static_cast<size_t>(rank);
    }
    bool in_place() const { return op->send == op->recv; }
    reduce_fn reduction() const { return reduce_function(op->dtype, op->reduce); }
};

// A message is posted at once and waited for later, so that many can be under way.
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// 0, or -ENOTSUP with a text.
int check_supported(const crunrt_op *op, cr_error *err);

Call describe(void *state, const backend_call *call, const crunrt_op *op);

// Runs an operation to its end. All these throw what Gloo throws.
void run_to_end(const Call &c);

// Posts a send or receive; waits for one.
Buffer post(const Call &c);
void wait_for_message(const Call &c, const Buffer &buffer);

} // namespace crunrt_gloo

#endif
