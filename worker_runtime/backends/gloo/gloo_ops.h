// Operations on a group, implemented with Gloo.
//
// Gloo matches collectives by a tag and messages by a slot. A collective's tag is the group's
// number of the call; a send's or receive's slot is the caller's tag, as in torch's Gloo backend.
// Tags and slots also contain the call's signature, so that different calls do not match: both
// ranks time out, and the group can report what each was doing. Without the signature Gloo would
// fill a longer buffer only in part; if a message were longer than its buffer, Gloo would end the
// process. In a group with ranks of torch, which do not know signatures, no signature is used.
//
// Gloo's ring all-reduce divides the data by the group's size and the count alone, and adds in ring
// order. So for a given group size the result has the same bits in every run.
#ifndef BACKENDS_GLOO_OPS_H
#define BACKENDS_GLOO_OPS_H

#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/gloo/gloo_device.h"
#include "worker_runtime/backends/gloo/gloo_watch.h"
#include "worker_runtime/backends/reduce/reduce.h"

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>

namespace crunrt_gloo {

struct State {
    // declared before `context`, so that the device is freed after the context
    std::shared_ptr<SharedDevice> device;
    std::shared_ptr<WatchedContext> context;
    int rank, size;
    bool is_foreign;
};

struct Call {
    State *state;
    const crunrt_op *op;
    uint32_t tag;  // Gloo's tag; used by collectives
    uint64_t slot; // Gloo's slot; used by sends and receives
    std::chrono::milliseconds timeout;
    size_t element, bytes; // bytes of one element, and of `count` elements

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

// A posted send or receive. post() does not wait until the message is sent or received, so many
// messages can be under way at the same time.
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Checks that this backend has the operation. Returns 0; or -ENOTSUP, and sets err.
int check_supported(const crunrt_op *op, cr_error *err);

Call describe(void *state, const backend_call *call, const crunrt_op *op);

// Runs an operation and returns when it is done. run_to_end(), post() and wait_for_message() may
// throw exceptions of Gloo.
void run_to_end(const Call &c);

// post() posts a send or receive; wait_for_message() waits until it is done.
Buffer post(const Call &c);
void wait_for_message(const Call &c, const Buffer &buffer);

} // namespace crunrt_gloo

#endif
