// The gloo backend: collectives on host memory over TCP. This file contains the backend's table of
// functions.
//
//   gloo_connect   gives Gloo the group's keys
//   gloo_device    makes Gloo's device, and keeps its loop from delaying connects and closes
//   gloo_ops       operations, as calls of Gloo
//   gloo_watch     ends waits for peers that are gone
//   gloo_guard     turns exceptions into errors
//
// Only this backend is written in C++, because Gloo is a C++ library.
#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/gloo/gloo_connect.h"
#include "worker_runtime/backends/gloo/gloo_device.h"
#include "worker_runtime/backends/gloo/gloo_guard.h"
#include "worker_runtime/backends/gloo/gloo_ops.h"
#include "worker_runtime/backends/gloo/gloo_watch.h"
#include "worker_runtime/backends/gloo/hold_signals.h"

#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using namespace crunrt_gloo;

// ---- opening and closing ----

int gloo_open(const backend_group *group, void **out, cr_error *err) {
    return guard(err, [&] {
        auto state = std::make_unique<State>();
        state->rank = group->rank;
        state->size = group->size;
        state->is_foreign = group->is_foreign;
        state->context = std::make_shared<crunrt_gloo::WatchedContext>(group->rank, group->size);
        // This timeout is used only while connecting, where Gloo waits five times as long as it is
        // given. Each operation has its own timeout.
        state->context->setTimeout(to_milliseconds(group->timeout_ms / 5));
        GroupStore store(*group);
        state->device = shared_device(group->bind_address);
        Hurry hurry(state->device);
        state->context->connect(store, state->device->device, group->agent_fd, group->is_over,
                                group->store.arg);
        *out = state.release();
        return 0;
    });
}

void gloo_abort(void *arg) {
    (void) guard(nullptr, [&] {
        State *state = static_cast<State *>(arg);
        Hurry hurry(state->device);
        state->context->abort();
        return 0;
    });
}

void gloo_close(void *arg) {
    (void) guard(nullptr, [&] {
        State *state = static_cast<State *>(arg);
        Hurry hurry(state->device);
        delete state;
        return 0;
    });
}

// ---- operations ----

bool is_message(crunrt_op_kind kind) { return kind == CRUNRT_OP_SEND || kind == CRUNRT_OP_RECV; }

int gloo_run(void *state, const backend_call *call, cr_error *err) {
    int rc = check_supported(call->op, err);
    if (rc < 0) return rc;
    Call c = describe(state, call, call->op);
    // run_to_end() does not call Gloo in a group of one rank, so it throws no exception of Gloo
    if (c.state->size == 1) {
        run_to_end(c);
        return 0;
    }
    return guard(err, [&] {
        run_to_end(c);
        return 0;
    });
}

int gloo_batch(void *state, const backend_call *calls, size_t count, cr_error *err) {
    return guard(err, [&] {
        std::vector<Buffer> posted;
        for (size_t i = 0; i < count; i++)
            posted.push_back(post(describe(state, &calls[i], calls[i].op)));
        for (size_t i = 0; i < count; i++)
            wait_for_message(describe(state, &calls[i], calls[i].op), posted[i]);
        return 0;
    });
}

// ---- works: one thread per work ----
//
// Gloo's calls block, and the only way to end a call early is to close the connections. But the
// program may test a work without waiting. So each work has a thread of its own that makes the
// blocking call. Collectives of several works can run at the same time, because they have different
// tags.

struct Work {
    crunrt_op op;
    Call call;
    std::vector<size_t> send_counts, recv_counts;
    Buffer buffer; // the posted message of a send or receive; NULL for a collective
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;
    cr_error outcome = {};
    std::thread thread;

    void run() {
        cr_error err = {};
        int rc = guard(&err, [&] {
            if (buffer != nullptr) {
                wait_for_message(call, buffer);
            } else {
                run_to_end(call);
            }
            return 0;
        });
        std::lock_guard<std::mutex> lock(mutex);
        outcome = err;
        outcome.code = rc;
        is_over = true;
        changed.notify_all();
    }
};

int gloo_start(void *state, const backend_call *call, void **out, cr_error *err) {
    int rc = check_supported(call->op, err);
    if (rc < 0) return rc;
    return guard(err, [&] {
        auto work = std::make_unique<Work>();
        work->op = *call->op;
        size_t size = static_cast<size_t>(static_cast<State *>(state)->size);
        if (call->op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS) {
            work->send_counts.assign(call->op->send_counts, call->op->send_counts + size);
            work->recv_counts.assign(call->op->recv_counts, call->op->recv_counts + size);
            work->op.send_counts = work->send_counts.data();
            work->op.recv_counts = work->recv_counts.data();
        }
        work->call = describe(state, call, &work->op);
        if (is_message(work->op.kind)) work->buffer = post(work->call);
        Work *w = work.get();
        HoldSignals hold;
        work->thread = std::thread([w] { w->run(); });
        *out = work.release();
        return 0;
    });
}

int gloo_wait(void *arg, int64_t timeout_ms, cr_error *err) {
    Work *w = static_cast<Work *>(arg);
    std::unique_lock<std::mutex> lock(w->mutex);
    auto is_over = [w] { return w->is_over; };
    if (timeout_ms <= 0 && !w->is_over) return -EINPROGRESS;
    if (timeout_ms == INT64_MAX) {
        w->changed.wait(lock, is_over);
    } else if (!w->changed.wait_for(lock, to_milliseconds(timeout_ms), is_over)) {
        return -EINPROGRESS;
    }
    if (w->outcome.code != 0) *err = w->outcome;
    return w->outcome.code;
}

void gloo_release(void *arg) {
    Work *w = static_cast<Work *>(arg);
    w->thread.join();
    delete w;
}

} // namespace

extern "C" __attribute__((visibility("default"))) const crunrt_backend crunrt_backend = {
    CRUNRT_BACKEND_ABI, "gloo",       nullptr,    gloo_open,  gloo_run, gloo_batch, gloo_start,
    gloo_wait,          gloo_release, gloo_abort, gloo_close, nullptr,  nullptr,    nullptr,
};
