// The story of a broken connection:
//
//   kernel: RDHUP or ERR ─▶ the watch wakes, and looks, a few times with growing pauses:
//                           Gloo's own thread reads what had come before the end, and closes then
//   look(): for each peer that somebody waits for: does its pair still take a receive? ─▶ gone
//           gone ─▶ each wait for it is ended ─▶ Buffer::finish(): was the message whole after all?
//                                                  no ─▶ IoException
//
// The thread watches duplicates of Gloo's descriptors: an event of a descriptor that Gloo has closed
// already would be lost. They must not outlive the connection, or the peers would not hear of our
// end: one is closed when it has told, and all when a wait fails or the group is given up.
//
// A receive of one byte that nobody ever sends is the question, posted once for each pair that is
// asked about: Gloo refuses it on a broken pair, and ends it when the pair breaks later.
#include "worker_runtime/backends/gloo/gloo_watch.h"

#include "worker_runtime/backends/gloo/hold_signals.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/common/string.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

namespace crunrt_gloo {

namespace {

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;
using Transport = gloo::transport::Context;

constexpr int first_pause_ms = 1, last_pause_ms = 1000; // between looks, doubling
constexpr int looks_max = 16;                           // some six seconds in all
constexpr uint64_t question_slot = ~UINT64_C(0);        // no tag and no collective has this one

[[noreturn]] void throw_errno(const char *what) {
    throw std::system_error(errno, std::generic_category(), what);
}

class Descriptor {
  public:
    Descriptor(int fd, const char *what) : fd_(fd) {
        if (fd < 0) throw_errno(what);
    }
    ~Descriptor() { close(fd_); }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

// ---- our connections, which Gloo does not hand out ----

// The connected TCP sockets of this process: descriptor by inode.
std::map<ino_t, int> connected_sockets() {
    std::map<ino_t, int> found;
    std::unique_ptr<DIR, int (*)(DIR *)> dir(opendir("/proc/self/fd"), &closedir);
    if (dir == nullptr) throw_errno("open /proc/self/fd");
    while (const dirent *entry = readdir(dir.get())) {
        int fd = static_cast<int>(std::strtol(entry->d_name, nullptr, 10));
        struct stat st = {};
        sockaddr_storage peer = {};
        socklen_t len = sizeof(peer);
        if (entry->d_name[0] == '.' || fstat(fd, &st) < 0 || !S_ISSOCK(st.st_mode)) continue;
        if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &len) < 0) continue;
        if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found[st.st_ino] = fd;
    }
    return found;
}

} // namespace

// ---- buffers ----

class Buffer;

// Shared by the group's context, its buffers and the thread.
class Watch {
  public:
    Watch(std::shared_ptr<Transport> inner, const std::map<ino_t, int> &before);
    ~Watch();

    const std::shared_ptr<Transport> inner;
    std::mutex mutex; // of the buffers and who is gone; never held while a pair or a buffer waits
    std::set<Buffer *> buffers;
    std::vector<char> gone; // by peer

    void give_up_all();
    void let_go(); // of all connections

    bool is_gone(int peer) const { return gone[static_cast<size_t>(peer)] != 0; }
    bool have_gone(const std::vector<int> &peers) const {
        return std::all_of(peers.begin(), peers.end(), [this](int r) { return is_gone(r); });
    }

  private:
    void watch(int socket);
    void run();
    void tell_gone(int fd);
    void look();
    bool breaks(int peer);
    void ask_whether_gone(const std::vector<int> &peers);

    Descriptor epoll_, end_;
    std::set<int> watched_; // under the mutex, too
    std::vector<std::unique_ptr<UnboundBuffer>> questions_; // by peer; the thread's alone
    char nothing_ = 0;
    std::thread thread_;
};

// One message, on a buffer of Gloo's own over the same memory: a buffer that has several under way
// would not tell which of them is whole.
struct Message {
    std::unique_ptr<UnboundBuffer> inner;
    std::vector<int> peers; // several: from whoever sends
};

// Messages of one direction; the first is waited for first.
struct Waiting {
    std::deque<Message> messages;
    std::unique_ptr<UnboundBuffer> spare; // of a message that is whole
    bool inside = false;                  // somebody is in the wait
};

class Buffer : public UnboundBuffer {
  public:
    Buffer(std::shared_ptr<Watch> watch, void *data, size_t len)
        : UnboundBuffer(data, len), watch_(std::move(watch)) {
        std::lock_guard<std::mutex> lock(watch_->mutex);
        watch_->buffers.insert(this);
    }
    ~Buffer() override {
        std::lock_guard<std::mutex> lock(watch_->mutex);
        watch_->buffers.erase(this);
    }

    void send(int to, uint64_t slot, size_t offset, size_t len) override {
        begin(sends, {to})->send(to, slot, offset, len);
    }
    void recv(int from, uint64_t slot, size_t offset, size_t len) override {
        begin(receives, {from})->recv(from, slot, offset, len);
    }
    void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t len) override {
        UnboundBuffer *inner = begin(receives, from);
        inner->recv(std::move(from), slot, offset, len);
    }

    bool waitSend(int *rank, milliseconds timeout) override {
        return wait(sends, rank, timeout, &UnboundBuffer::waitSend);
    }
    bool waitRecv(int *rank, milliseconds timeout) override {
        return wait(receives, rank, timeout, &UnboundBuffer::waitRecv);
    }

    // Nobody calls these: the group's end is WatchedContext::abort().
    void abortWaitSend() override {}
    void abortWaitRecv() override {}

    // Under the watch's mutex.
    Waiting sends, receives;
    void end_lost_waits() {
        if (is_lost(sends)) sends.messages.front().inner->abortWaitSend();
        if (is_lost(receives)) receives.messages.front().inner->abortWaitRecv();
    }

  private:
    using Wait = bool (UnboundBuffer::*)(int *, milliseconds);

    bool is_lost(const Waiting &w) const {
        return w.inside && watch_->have_gone(w.messages.front().peers);
    }

    UnboundBuffer *begin(Waiting &w, std::vector<int> peers) {
        auto inner = w.spare != nullptr ? std::move(w.spare)
                                        : watch_->inner->createUnboundBuffer(ptr, size);
        UnboundBuffer *borrowed = inner.get();
        std::lock_guard<std::mutex> lock(watch_->mutex);
        w.messages.push_back({std::move(inner), std::move(peers)});
        return borrowed;
    }

    bool enter(Waiting &w) {
        std::lock_guard<std::mutex> lock(watch_->mutex);
        w.inside = !watch_->have_gone(w.messages.front().peers);
        return w.inside;
    }

    void leave(Waiting &w) {
        std::lock_guard<std::mutex> lock(watch_->mutex);
        w.inside = false;
        w.spare = std::move(w.messages.front().inner);
        w.messages.pop_front();
    }

    // A wait that was ended early means: look again at who is gone, and perhaps go on.
    bool wait(Waiting &w, int *rank, milliseconds timeout, Wait inner) {
        GLOO_ENFORCE(!w.messages.empty(), "wait for a message that was not begun");
        UnboundBuffer *message = w.messages.front().inner.get();
        try {
            for (bool done = false; !done;) {
                done = enter(w) ? (message->*inner)(rank, timeout) : finish(w, rank, inner);
            }
        } catch (...) {
            watch_->let_go();
            throw;
        }
        leave(w);
        return true;
    }

    // The peer is gone. A message that had arrived whole before is well.
    bool finish(const Waiting &w, int *rank, Wait inner) {
        const Message &message = w.messages.front();
        try {
            return (message.inner.get()->*inner)(rank, milliseconds(1));
        } catch (const gloo::IoException &) {
            throw gloo::IoException(gloo::MakeString("Connection to rank ", message.peers.front(),
                                                     " of the group broke in a message"));
        }
    }

    std::shared_ptr<Watch> watch_;
};

namespace {

// Gloo's own context of the transport, with our buffers.
class WatchedTransport : public Transport {
  public:
    explicit WatchedTransport(std::shared_ptr<Watch> watch)
        : Transport(watch->inner->rank, watch->inner->size), watch_(std::move(watch)) {
        setTimeout(watch_->inner->getTimeout());
    }
    std::unique_ptr<gloo::transport::Pair> &getPair(int rank) override {
        return watch_->inner->getPair(rank);
    }
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override {
        return watch_->inner->createPair(rank);
    }
    std::unique_ptr<UnboundBuffer> createUnboundBuffer(void *data, size_t len) override {
        return std::make_unique<Buffer>(watch_, data, len);
    }

  private:
    std::shared_ptr<Watch> watch_;
};

} // namespace

// ---- the thread ----

Watch::Watch(std::shared_ptr<Transport> transport, const std::map<ino_t, int> &before)
    : inner(std::move(transport)), gone(static_cast<size_t>(inner->size)),
      epoll_(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"),
      end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"),
      questions_(static_cast<size_t>(inner->size)) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = end_.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end_.get(), &event) < 0) throw_errno("epoll_ctl");
    for (const auto &socket : connected_sockets()) {
        // Another thread may have closed its own meanwhile, or opened one: watched for nothing.
        if (before.count(socket.first) == 0) watch(socket.second);
    }
    HoldSignals hold;
    thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
    uint64_t one = 1;
    while (write(end_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
    let_go();
}

// Not at the program's cost: what is left of its descriptors is for itself.
void Watch::watch(int socket) {
    rlimit limit = {};
    int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    epoll_event event = {};
    event.events = EPOLLRDHUP; // ERR and HUP come unasked
    event.data.fd = fd;
    if (fd < 0) return;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || static_cast<rlim_t>(fd) > limit.rlim_cur / 4 * 3 ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        return;
    }
    watched_.insert(fd);
}

void Watch::let_go() {
    std::lock_guard<std::mutex> lock(mutex);
    for (int fd : watched_) close(fd);
    watched_.clear();
}

void Watch::tell_gone(int fd) {
    std::lock_guard<std::mutex> lock(mutex);
    if (watched_.erase(fd) > 0) close(fd);
}

void Watch::run() {
    int looks = 0, pause_ms = first_pause_ms;
    for (;;) {
        epoll_event event = {};
        int n = epoll_wait(epoll_.get(), &event, 1, looks > 0 ? pause_ms : -1);
        if (n < 0 && errno != EINTR) return;
        if (n == 1 && event.data.fd == end_.get()) return;
        if (n == 1) {
            tell_gone(event.data.fd);
            looks = looks_max;
            pause_ms = first_pause_ms;
        } else if (n == 0) {
            looks--;
            pause_ms = std::min(pause_ms * 2, last_pause_ms);
        }
        look();
    }
}

bool Watch::breaks(int peer) {
    auto &question = questions_[static_cast<size_t>(peer)];
    try {
        if (question == nullptr) {
            question = inner->createUnboundBuffer(&nothing_, sizeof(nothing_));
            question->recv(peer, question_slot);
        }
        question->abortWaitRecv(); // so that the wait only looks
        (void) question->waitRecv(nullptr, milliseconds(1));
        return false;
    } catch (const std::exception &) {
        return true;
    }
}

void Watch::ask_whether_gone(const std::vector<int> &peers) {
    for (int peer : peers) {
        if (!is_gone(peer) && breaks(peer)) gone[static_cast<size_t>(peer)] = 1;
    }
}

void Watch::look() {
    std::lock_guard<std::mutex> lock(mutex);
    for (Buffer *buffer : buffers) {
        for (const Message &m : buffer->sends.messages) ask_whether_gone(m.peers);
        for (const Message &m : buffer->receives.messages) ask_whether_gone(m.peers);
    }
    for (Buffer *buffer : buffers) buffer->end_lost_waits();
}

void Watch::give_up_all() {
    std::lock_guard<std::mutex> lock(mutex);
    std::fill(gone.begin(), gone.end(), 1);
    for (Buffer *buffer : buffers) buffer->end_lost_waits();
}

// ---- the group's context ----

WatchedContext::WatchedContext(int rank, int size) : gloo::rendezvous::Context(rank, size) {}

WatchedContext::~WatchedContext() = default;

void WatchedContext::connect(gloo::rendezvous::Store &store,
                             std::shared_ptr<gloo::transport::Device> &device) {
    if (size == 1) return connectFullMesh(store, device); // nobody to wait for
    const auto before = connected_sockets();
    connectFullMesh(store, device);
    watch_ = std::make_shared<Watch>(transportContext_, before);
    transportContext_ = std::make_shared<WatchedTransport>(watch_);
}

void WatchedContext::abort() {
    closeConnections();
    if (watch_ == nullptr) return;
    watch_->let_go();
    watch_->give_up_all();
}

} // namespace crunrt_gloo
