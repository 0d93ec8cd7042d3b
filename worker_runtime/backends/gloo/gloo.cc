// The Gloo backend: collectives on host memory over TCP.
//
// The only C++ in the tree, and thin: each operation is one call of Gloo. No exception passes the
// border: guard() turns every one into an error of ours. Gloo meets its peers through the group's
// corner of the store. Collectives carry the group's sequence number as Gloo's tag; sends and
// receives use the caller's tag as the slot, as torch's Gloo backend does.
//
// What else a call is goes into the slots, too, so that ranks that make different calls do not meet:
// both wait until their timeout, and then say what they were in. Gloo by itself would fill a longer
// buffer in part, and end the process, from its own thread, where a message is longer than its buffer.
// Not where peers may be torch's: they know nothing of it.
//
// Determinism: Gloo's ring all-reduce splits by the group's size and count alone and reduces in
// ring order, so a fixed group size gives the same bits in every run.
#include "worker_runtime/backends/backend.h"
#include "worker_runtime/backends/gloo/gloo_watch.h"
#include "worker_runtime/backends/gloo/hold_signals.h"
#include "worker_runtime/backends/reduce.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using crunrt_gloo::HoldSignals;
using std::chrono::milliseconds;

// ---- the border ----

// A failure of the store on its way through Gloo's frames.
struct StoreError : std::runtime_error {
    explicit StoreError(const cr_error &e) : std::runtime_error(e.text), code(e.code) {}
    int code;
};

// Gloo tells timeouts and lost peers apart by words only.
int io_error_code(const char *text) {
    if (std::strstr(text, "imed out") != nullptr || std::strstr(text, "imeout") != nullptr) {
        return -ETIMEDOUT;
    }
    return -ECONNRESET;
}

// Without the "[/build/…/file.cc:12] " that Gloo puts in front.
const char *without_place(const char *text) {
    const char *end = text[0] == '[' ? std::strstr(text, "] ") : nullptr;
    return end != nullptr ? end + 2 : text;
}

// Gloo writes to sockets without MSG_NOSIGNAL, and a dead peer must not end a program that leaves
// SIGPIPE alone. While Gloo runs on the caller's thread the signal is held back; eat() takes it
// away after a failure, which is the only time that it can have come.
class HoldSigpipe {
  public:
    HoldSigpipe() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~HoldSigpipe() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    HoldSigpipe(const HoldSigpipe &) = delete;
    HoldSigpipe &operator=(const HoldSigpipe &) = delete;
    void eat() {
        const timespec now = {0, 0};
        if (sigismember(&before_, SIGPIPE) == 0) (void) sigtimedwait(&pipe_, nullptr, &now);
    }

  private:
    sigset_t pipe_, before_;
};

// Turns the exception that is being handled into an error of ours.
int translate(cr_error *err) {
    try {
        throw;
    } catch (const StoreError &e) {
        return cr_fail(err, e.code, "%s", e.what());
    } catch (const gloo::IoException &e) {
        return cr_fail(err, io_error_code(e.what()), "%s", without_place(e.what()));
    } catch (const std::bad_alloc &) {
        return cr_fail(err, -ENOMEM, "out of memory");
    } catch (const std::exception &e) {
        return cr_fail(err, -EIO, "%s", without_place(e.what()));
    } catch (...) {
        return cr_fail(err, -EIO, "unknown C++ exception");
    }
}

template <typename Body> int guard(cr_error *err, Body body) {
    HoldSigpipe hold;
    try {
        return body();
    } catch (...) {
        hold.eat();
        return translate(err);
    }
}

milliseconds to_milliseconds(int64_t ms) {
    constexpr int64_t year = INT64_C(365) * 24 * 3600 * 1000; // Gloo adds it to a clock
    return milliseconds(ms < 1 ? 1 : ms > year ? year : ms);  // and takes 0 as "no limit"
}

// ---- meeting ----

class GroupStore : public gloo::rendezvous::Store {
  public:
    explicit GroupStore(const backend_group &group)
        : store_(group.store), timeout_ms_(group.timeout_ms), foreign_(group.foreign != 0) {}

    void set(const std::string &key, const std::vector<char> &data) override {
        cr_error err = {};
        if (foreign_ && key.compare(0, 5, "rank_") == 0) check_peers();
        if (store_.set(store_.arg, key.c_str(), data.data(), data.size(), &err) < 0)
            throw StoreError(err);
    }

    std::vector<char> get(const std::string &key) override {
        cr_error err = {};
        void *value = nullptr;
        size_t len = 0;
        if (store_.get(store_.arg, key.c_str(), timeout_ms_, &value, &len, &err) < 0)
            throw StoreError(err);
        const char *bytes = static_cast<const char *>(value);
        std::unique_ptr<void, decltype(&std::free)> owner(value, &std::free);
        return std::vector<char>(bytes, bytes + len);
    }

    void wait(const std::vector<std::string> &keys) override { wait_ms(keys, timeout_ms_); }

    void wait(const std::vector<std::string> &keys, const milliseconds &timeout) override {
        wait_ms(keys, timeout.count());
    }

  private:
    // Only the older Gloo sets "rank_<r>", before "<r>". A later one sets "<r>" alone, and begins
    // each connection with 8 bytes that the older one takes for the head of a message: they would
    // hang, so this is said before anything is sent. Rank 0 of a foreign group is no crunrt.
    void check_peers() {
        for (int64_t waited = 0; waited < timeout_ms_; waited += 2 * look_ms) {
            if (is_there("rank_0", look_ms)) return;
            if (!is_there("0", look_ms) || is_there("rank_0", 0)) continue;
            cr_error err = {};
            (void) cr_fail(&err, -EPROTO,
                           "rank 0 has a later Gloo than this module, and the two cannot talk; "
                           "build crun with the Gloo of that torch, or make the group of C ranks");
            throw StoreError(err);
        }
    }

    bool is_there(const char *key, int64_t timeout_ms) {
        cr_error err = {};
        int rc = store_.wait(store_.arg, &key, 1, timeout_ms, &err);
        if (rc < 0 && rc != -ETIMEDOUT) throw StoreError(err);
        return rc == 0;
    }

    void wait_ms(const std::vector<std::string> &keys, int64_t timeout_ms) {
        cr_error err = {};
        std::vector<const char *> names;
        for (const std::string &key : keys) names.push_back(key.c_str());
        if (store_.wait(store_.arg, names.data(), names.size(), timeout_ms, &err) < 0)
            throw StoreError(err);
    }

    static constexpr int64_t look_ms = 200;

    backend_store store_;
    int64_t timeout_ms_;
    bool foreign_;
};

std::shared_ptr<gloo::transport::Device> create_device(const gloo::transport::tcp::attr &attr) {
    try {
        return gloo::transport::tcp::CreateDevice(attr);
    } catch (const std::exception &e) {
        if (attr.iface.empty()) throw;
        throw std::runtime_error("GLOO_SOCKET_IFNAME='" + attr.iface + "': " + without_place(e.what()) +
                                 "; 'ip address' lists what there is");
    }
}

// One device, that is one thread and one listening address, serves all groups of this process.
std::shared_ptr<gloo::transport::Device> shared_device(const char *bind_address) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<gloo::transport::Device>> devices;
    gloo::transport::tcp::attr attr;
    const char *iface = std::getenv("GLOO_SOCKET_IFNAME");
    if (iface != nullptr && iface[0] != '\0')
        attr.iface = std::string(iface, std::strcspn(iface, ","));
    else
        attr.hostname = bind_address;
    std::lock_guard<std::mutex> lock(mutex);
    auto &entry = devices[attr.iface + "/" + attr.hostname];
    auto device = entry.lock();
    if (device == nullptr) {
        HoldSignals hold;
        device = create_device(attr);
        entry = device;
    }
    return device;
}

struct State {
    std::shared_ptr<crunrt_gloo::WatchedContext> context;
    int rank, size;
    bool foreign;
};

int gloo_open(const backend_group *group, void **out, cr_error *err) {
    return guard(err, [&] {
        auto state = std::make_unique<State>();
        state->rank = group->rank;
        state->size = group->size;
        state->foreign = group->foreign != 0;
        state->context = std::make_shared<crunrt_gloo::WatchedContext>(group->rank, group->size);
        // For connecting, where Gloo waits five times as long; every operation brings its own.
        state->context->setTimeout(to_milliseconds(group->timeout_ms / 5));
        GroupStore store(*group);
        auto device = shared_device(group->bind_address);
        state->context->connect(store, device);
        *out = state.release();
        return 0;
    });
}

void gloo_abort(void *arg) {
    (void) guard(nullptr, [&] {
        static_cast<State *>(arg)->context->abort();
        return 0;
    });
}

void gloo_close(void *arg) {
    (void) guard(nullptr, [&] {
        delete static_cast<State *>(arg);
        return 0;
    });
}

// ---- operations ----

struct Call {
    State *state;
    const crunrt_op *op;
    uint32_t tag;  // of a collective
    uint64_t slot; // of a message
    milliseconds timeout;
    size_t element, bytes; // of one element, of count elements

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

template <typename Options> void set_common(Options &options, const Call &c) {
    options.setTag(c.tag);
    options.setTimeout(c.timeout);
}

// Gloo wants a type for its size alone.
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

// Gloo's reduce uses the output buffer on every rank.
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
        // Gloo copies the input itself; in place it takes the output alone.
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

// Gloo has no tagged reduce-scatter, so: a ring. In step s each rank passes the partial sum of part
// rank-1-s on to its right and adds its own to what comes from the left; after size-1 steps it
// holds part `rank`.
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

// A message that is posted at once and waited for later, so that many can be under way.
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// To and from each rank at once; each message's slot holds its own length. A part for this rank
// itself is copied.
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

Buffer post(const Call &c) {
    bool sends = c.op->kind == CRUNRT_OP_SEND;
    Buffer buffer = c.context()->createUnboundBuffer(sends ? c.send() : c.op->recv, c.bytes);
    if (sends)
        buffer->send(c.op->root, c.slot);
    else
        buffer->recv(c.op->root, c.slot);
    return buffer;
}

void finish(const Call &c, const Buffer &buffer) {
    if (c.op->kind == CRUNRT_OP_SEND)
        buffer->waitSend(c.timeout);
    else
        buffer->waitRecv(c.timeout);
}

bool is_message(const crunrt_op *op) {
    return op->kind == CRUNRT_OP_SEND || op->kind == CRUNRT_OP_RECV;
}

// A group of one talks to nobody: every collective is a copy.
void run_alone(const Call &c) {
    size_t bytes =
        c.op->kind == CRUNRT_OP_ALL_TO_ALL_COUNTS ? c.op->send_counts[0] * c.element : c.bytes;
    bool copies = c.op->kind != CRUNRT_OP_BARRIER && c.op->kind != CRUNRT_OP_BROADCAST;
    if (copies && bytes > 0 && !c.in_place()) std::memcpy(c.op->recv, c.op->send, bytes);
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
        return c.state->foreign ? foreign_all_to_all_counts(c) : all_to_all_counts(c);
    case CRUNRT_OP_BARRIER: return barrier(c);
    case CRUNRT_OP_SEND:
    case CRUNRT_OP_RECV: return finish(c, post(c));
    }
}

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
    c.tag = c.state->foreign ? call->seq : call->signature << 12 | (call->seq & 0xfff);
    c.slot = op->tag;
    if (!c.state->foreign) c.slot |= static_cast<uint64_t>(call->signature & 0xffffff) << 32;
    c.timeout = to_milliseconds(op->timeout_ms);
    c.element = call->element_size;
    c.bytes = op->count * c.element;
    return c;
}

void run_to_end(const Call &c) {
    if (c.state->size == 1)
        run_alone(c);
    else
        dispatch(c);
}

int gloo_run(void *state, const backend_call *call, cr_error *err) {
    int rc = check_supported(call->op, err);
    if (rc < 0) return rc;
    Call c = describe(state, call, call->op);
    if (c.state->size == 1) {
        run_alone(c);
        return 0;
    }
    return guard(err, [&] {
        dispatch(c);
        return 0;
    });
}

int gloo_batch(void *state, const backend_call *calls, size_t count, cr_error *err) {
    return guard(err, [&] {
        std::vector<Buffer> posted;
        for (size_t i = 0; i < count; i++)
            posted.push_back(post(describe(state, &calls[i], calls[i].op)));
        for (size_t i = 0; i < count; i++)
            finish(describe(state, &calls[i], calls[i].op), posted[i]);
        return 0;
    });
}

// ---- work that goes on meanwhile: a thread each ----
//
// Gloo's calls block, and its one way to stop waiting early is to break the connection, so whoever
// wants to look without waiting needs a thread that waits. Collectives under way at once are kept
// apart by their tags.

struct Work {
    crunrt_op op;
    Call call;
    std::vector<size_t> send_counts, recv_counts;
    Buffer buffer; // of a message, posted by start()
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    cr_error outcome = {};
    std::thread thread;

    void run() {
        cr_error err = {};
        int rc = guard(&err, [&] {
            if (buffer != nullptr)
                finish(call, buffer);
            else
                run_to_end(call);
            return 0;
        });
        std::lock_guard<std::mutex> lock(mutex);
        outcome = err;
        outcome.code = rc;
        over = true;
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
        if (is_message(&work->op)) work->buffer = post(work->call);
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
    auto is_over = [w] { return w->over; };
    if (timeout_ms <= 0 && !w->over) return -EINPROGRESS;
    if (timeout_ms == INT64_MAX)
        w->changed.wait(lock, is_over);
    else if (!w->changed.wait_for(lock, to_milliseconds(timeout_ms), is_over))
        return -EINPROGRESS;
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
