// Ends a wait when its peer is gone. There are three parts:
//
//   Buffer             wraps Gloo's buffer, and records for which peers each direction waits. It
//                      uses a separate buffer of Gloo for each message, because a buffer with
//                      several messages under way does not show which of them are complete.
//   Watch              has a thread, which sleeps in epoll on all connections of the group.
//   WatchedTransport   is Gloo's transport context, but makes Buffers.
//
// When a connection breaks:
//
//   1. The kernel reports RDHUP or ERR, and the thread wakes. It does not know which peer is gone,
//      because Gloo does not show which descriptor belongs to which peer.
//   2. The thread calls look(), at once and several times more with growing pauses. The repetition
//      is needed because Gloo's own thread closes the connection only after it has read all data
//      that had arrived.
//   3. look() probes all peers for which a Buffer waits: once per peer it posts a receive of one
//      byte that is never sent. Gloo refuses this receive if the connection is broken, and fails it
//      if the connection breaks later. A peer whose probe fails is gone.
//   4. look() ends the waits for peers that are gone (end_lost_waits). In the waiting thread,
//      Buffer::wait() checks whether the message was complete after all (finish_wait), and throws
//      IoException if it was not.
//
// Descriptors: the thread watches duplicates of Gloo's descriptors, because epoll drops the events
// of a descriptor that is closed. But while a duplicate is open, the peer does not see that Gloo
// has closed its end. So a duplicate is closed as soon as it has reported an event, and all
// duplicates are closed when a wait fails or the group is aborted. A duplicate is taken out of
// epoll before it is closed: epoll drops a socket only when all descriptors of it are closed, so
// until Gloo's thread has closed its own, epoll_wait() would return the same event again and again.
//
// Locks: Watch::mutex protects the set of buffers, their messages and `gone`. It is never held
// while Gloo waits for a message.
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

// the first and the longest pause in ms between two calls of look(); the pause doubles each time
constexpr int first_pause_ms = 1, last_pause_ms = 1000;
// number of calls of look() after an event; with their pauses they take about six seconds
constexpr int looks_max = 16;
// a slot that no message and no collective uses
constexpr uint64_t probe_slot = ~UINT64_C(0);

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

// ---- finding the connections, because Gloo does not return them ----

// Returns the connected TCP sockets of this process, as a map from inode to descriptor.
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

// Watches the connections of one group. The object is shared by the group's context, its buffers
// and the thread.
class Watch {
  public:
    Watch(std::shared_ptr<Transport> inner, const std::map<ino_t, int> &before, int agent_fd,
          bool (*is_over)(void *arg), void *arg);
    ~Watch();

    const std::shared_ptr<Transport> inner;
    std::mutex mutex;
    std::set<Buffer *> buffers;
    std::vector<char> gone; // [peer]
    bool over = false;      // true if the waits have ended because the agent has ended the round

    void end_all_waits();
    void close_duplicates();

    bool is_gone(int peer) const { return gone[static_cast<size_t>(peer)] != 0; }
    bool are_gone(const std::vector<int> &peers) const {
        return std::all_of(peers.begin(), peers.end(), [this](int r) { return is_gone(r); });
    }

  private:
    int watch(int socket, uint32_t events);
    void end_if_over();
    void run();
    void forget(int fd);
    void close_duplicate(int fd);
    void look();
    bool is_broken(int peer);
    void probe_peers(const std::vector<int> &peers);

    bool (*const is_over_)(void *arg);
    void *const arg_;
    Descriptor epoll_, end_;
    int agent_ = -1; // the duplicate of agent_fd; -1 if agent_fd is not watched
    std::set<int> duplicates_; // protected by the mutex
    std::vector<std::unique_ptr<UnboundBuffer>> probes_; // [peer]; used only by the thread
    char nothing_ = 0;
    std::thread thread_;
};

// One message, with a buffer of Gloo's own on the same memory.
struct Message {
    std::unique_ptr<UnboundBuffer> inner;
    // the peers of the message; several if it may be received from any of them
    std::vector<int> peers;
};

// The messages of one direction, sends or receives, in the order in which they began. They are
// waited for in this order.
struct Waiting {
    std::deque<Message> messages;
    std::unique_ptr<UnboundBuffer> spare; // buffer of a complete message, kept for the next message
    // true while a thread is in Gloo's wait for the first message
    bool is_inside = false;
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

    // These two functions do nothing, because WatchedContext::abort() ends all waits.
    void abortWaitSend() override {}
    void abortWaitRecv() override {}

    // `sends` and `receives` are protected by the watch's mutex.
    Waiting sends, receives;
    void end_lost_waits() {
        if (is_lost(sends)) sends.messages.front().inner->abortWaitSend();
        if (is_lost(receives)) receives.messages.front().inner->abortWaitRecv();
    }

  private:
    using Wait = bool (UnboundBuffer::*)(int *, milliseconds);

    bool is_lost(const Waiting &w) const {
        return w.is_inside && watch_->are_gone(w.messages.front().peers);
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
        w.is_inside = !watch_->are_gone(w.messages.front().peers);
        return w.is_inside;
    }

    void leave(Waiting &w) {
        std::lock_guard<std::mutex> lock(watch_->mutex);
        w.is_inside = false;
        w.spare = std::move(w.messages.front().inner);
        w.messages.pop_front();
    }

    // Waits for the first message of `w`. Gloo's wait returns false if look() has ended it. In that
    // case the next turn of the loop checks whether the message's peer is gone.
    bool wait(Waiting &w, int *rank, milliseconds timeout, Wait inner) {
        GLOO_ENFORCE(!w.messages.empty(), "wait for a message that was not begun");
        UnboundBuffer *message = w.messages.front().inner.get();
        try {
            for (bool done = false; !done;) {
                done = enter(w) ? (message->*inner)(rank, timeout) : finish_wait(w, rank, inner);
            }
        } catch (...) {
            watch_->close_duplicates();
            throw;
        }
        leave(w);
        return true;
    }

    // Call this if the peer of the first message of `w` is gone. Returns true if the message was
    // complete before the peer was lost; otherwise throws IoException.
    bool finish_wait(const Waiting &w, int *rank, Wait inner) {
        const Message &message = w.messages.front();
        bool over;
        {
            std::lock_guard<std::mutex> lock(watch_->mutex);
            over = watch_->over;
        }
        try {
            return (message.inner.get()->*inner)(rank, milliseconds(1));
        } catch (const gloo::IoException &) {
            if (over) throw gloo::IoException("the agent has ended the round: a worker failed");
            throw gloo::IoException(gloo::MakeString("Connection to rank ", message.peers.front(),
                                                     " of the group broke in a message"));
        }
    }

    std::shared_ptr<Watch> watch_;
};

namespace {

// Gloo's transport context, except that its buffers are of class Buffer.
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

Watch::Watch(std::shared_ptr<Transport> transport, const std::map<ino_t, int> &before,
             int agent_fd, bool (*is_over)(void *arg), void *arg)
    : inner(std::move(transport)), gone(static_cast<size_t>(inner->size)), is_over_(is_over),
      arg_(arg),
      epoll_(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"),
      end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"),
      probes_(static_cast<size_t>(inner->size)) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = end_.get();
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, end_.get(), &event) < 0) throw_errno("epoll_ctl");
    for (const auto &socket : connected_sockets()) {
        // `before` has the sockets that were connected before the group was. Any other socket
        // belongs to this group, or another thread has opened it since `before` was made. To watch
        // a socket of another thread does no harm.
        if (before.count(socket.first) == 0) watch(socket.second, EPOLLRDHUP);
    }
    // EPOLLET, because another thread reads what the agent sends: the descriptor may stay readable
    // for long, and without EPOLLET epoll_wait() would return the event again and again
    if (agent_fd >= 0) agent_ = watch(agent_fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    HoldSignals hold;
    thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
    uint64_t one = 1;
    while (write(end_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
    close_duplicates();
}

// Watches a duplicate of the socket, and returns the duplicate. Returns -1 if the socket cannot be
// watched, or if the duplicate's number is in the last quarter of the process's descriptor limit,
// because these numbers are left to the program.
int Watch::watch(int socket, uint32_t events) {
    rlimit limit = {};
    int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    epoll_event event = {};
    event.events = events; // epoll always reports EPOLLERR and EPOLLHUP, without a request
    event.data.fd = fd;
    if (fd < 0) return -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || static_cast<rlim_t>(fd) > limit.rlim_cur / 4 * 3 ||
        epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        return -1;
    }
    duplicates_.insert(fd);
    return fd;
}

void Watch::forget(int fd) {
    (void) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    close(fd);
}

void Watch::close_duplicates() {
    std::lock_guard<std::mutex> lock(mutex);
    for (int fd : duplicates_) forget(fd);
    duplicates_.clear();
}

void Watch::close_duplicate(int fd) {
    std::lock_guard<std::mutex> lock(mutex);
    if (duplicates_.erase(fd) > 0) forget(fd);
}

// Ends all waits if the agent has ended the round. This is faster than to wait for a broken
// connection: the agent notices the death of a worker at once, but a rank that waits for another
// peer than the dead worker notices nothing until that peer has failed, too.
void Watch::end_if_over() {
    if (!is_over_(arg_)) return;
    std::lock_guard<std::mutex> lock(mutex);
    over = true;
    std::fill(gone.begin(), gone.end(), 1);
    for (Buffer *buffer : buffers) buffer->end_lost_waits();
}

void Watch::run() {
    int looks = 0, pause_ms = first_pause_ms;
    for (;;) {
        epoll_event event = {};
        int n = epoll_wait(epoll_.get(), &event, 1, looks > 0 ? pause_ms : -1);
        if (n < 0 && errno != EINTR) return;
        if (n == 1 && event.data.fd == end_.get()) return;
        if (n == 1 && event.data.fd == agent_) {
            end_if_over();
            if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) close_duplicate(agent_);
            continue;
        }
        if (n == 1) {
            close_duplicate(event.data.fd);
            looks = looks_max;
            pause_ms = first_pause_ms;
        } else if (n == 0) {
            looks--;
            pause_ms = std::min(pause_ms * 2, last_pause_ms);
        }
        look();
    }
}

bool Watch::is_broken(int peer) {
    auto &probe = probes_[static_cast<size_t>(peer)];
    try {
        if (probe == nullptr) {
            probe = inner->createUnboundBuffer(&nothing_, sizeof(nothing_));
            probe->recv(peer, probe_slot);
        }
        probe->abortWaitRecv(); // makes the wait below return at once
        (void) probe->waitRecv(nullptr, milliseconds(1));
        return false;
    } catch (const std::exception &) {
        return true;
    }
}

void Watch::probe_peers(const std::vector<int> &peers) {
    for (int peer : peers) {
        if (!is_gone(peer) && is_broken(peer)) gone[static_cast<size_t>(peer)] = 1;
    }
}

void Watch::look() {
    std::lock_guard<std::mutex> lock(mutex);
    for (Buffer *buffer : buffers) {
        for (const Message &m : buffer->sends.messages) probe_peers(m.peers);
        for (const Message &m : buffer->receives.messages) probe_peers(m.peers);
    }
    for (Buffer *buffer : buffers) buffer->end_lost_waits();
}

void Watch::end_all_waits() {
    std::lock_guard<std::mutex> lock(mutex);
    std::fill(gone.begin(), gone.end(), 1);
    for (Buffer *buffer : buffers) buffer->end_lost_waits();
}

// ---- the group's context ----

WatchedContext::WatchedContext(int rank, int size) : gloo::rendezvous::Context(rank, size) {}

WatchedContext::~WatchedContext() = default;

void WatchedContext::connect(gloo::rendezvous::Store &store,
                             std::shared_ptr<gloo::transport::Device> &device, int agent_fd,
                             bool (*is_over)(void *arg), void *arg) {
    // a group of one rank has no peer to watch
    if (size == 1) return connectFullMesh(store, device);
    const auto before = connected_sockets();
    connectFullMesh(store, device);
    watch_ = std::make_shared<Watch>(transportContext_, before, agent_fd, is_over, arg);
    transportContext_ = std::make_shared<WatchedTransport>(watch_);
}

void WatchedContext::abort() {
    closeConnections();
    if (watch_ == nullptr) return;
    watch_->close_duplicates();
    watch_->end_all_waits();
}

} // namespace crunrt_gloo
