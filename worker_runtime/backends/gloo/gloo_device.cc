// Makes Gloo's devices, and makes their event loops run more often by timers.
#include "worker_runtime/backends/gloo/gloo_device.h"

#include "worker_runtime/backends/gloo/gloo_guard.h"
#include "worker_runtime/backends/gloo/hold_signals.h"

#include <gloo/transport/tcp/device.h>

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

namespace crunrt_gloo {

using Device = gloo::transport::Device;
using TcpDevice = gloo::transport::tcp::Device;

static constexpr long turn_ns = 100000; // time between two turns of a loop while a Hurry exists

// ---- the timer ----

// A timer in the loop of a device. Each time it expires, the loop makes a turn.
class LoopTimer : public gloo::transport::tcp::Handler {
  public:
    explicit LoopTimer(TcpDevice &device) : fd_(make()) {
        device.registerDescriptor(fd_, /* EPOLLIN */ 1, this);
    }
    ~LoopTimer() override { close(fd_); }

    // The loop's thread calls this when the timer has expired. After the read the timer's
    // descriptor is not readable until the timer expires again. Without the read it would stay
    // readable, and the loop would turn without a pause.
    void handleEvents(int) override {
        uint64_t expired = 0;
        (void) !read(fd_, &expired, sizeof(expired));
    }

    void begin() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (users_++ == 0) set(turn_ns);
    }
    void end() {
        std::lock_guard<std::mutex> lock(mutex_);
        if (--users_ == 0) set(0);
    }

  private:
    static int make() {
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (fd < 0) throw std::system_error(errno, std::generic_category(), "timerfd_create");
        return fd;
    }
    // A period of 0 stops the timer.
    void set(long period_ns) const {
        itimerspec spec = {};
        spec.it_interval.tv_nsec = spec.it_value.tv_nsec = period_ns;
        (void) timerfd_settime(fd_, 0, &spec, nullptr);
    }

    const int fd_;
    std::mutex mutex_;
    int users_ = 0; // number of Hurry objects; protected by the mutex
};

// ---- the device ----

SharedDevice::SharedDevice(std::shared_ptr<Device> made) : device(std::move(made)) {
    auto tcp = std::dynamic_pointer_cast<TcpDevice>(device);
    if (tcp != nullptr) timer_ = std::make_unique<LoopTimer>(*tcp);
}

// Gloo's destructor of a device waits for a turn of the device's loop, so the timer is started
// first. If another object still refers to the device, the loop goes on after this destructor and
// may use the timer, so the timer is not freed.
SharedDevice::~SharedDevice() {
    if (timer_ == nullptr) return;
    if (device.use_count() > 1) {
        (void) timer_.release();
        return;
    }
    timer_->begin();
    device.reset();
}

Hurry::Hurry(const std::shared_ptr<SharedDevice> &shared) : shared_(shared) {
    if (shared_->timer_ != nullptr) shared_->timer_->begin();
}

Hurry::~Hurry() {
    if (shared_->timer_ != nullptr) shared_->timer_->end();
}

static std::shared_ptr<Device> create_device(const gloo::transport::tcp::attr &attr) {
    try {
        return gloo::transport::tcp::CreateDevice(attr);
    } catch (const std::exception &e) {
        if (attr.iface.empty()) throw;
        throw std::runtime_error("GLOO_SOCKET_IFNAME='" + attr.iface + "': " +
                                 without_place(e.what()) + "; 'ip address' lists what there is");
    }
}

std::shared_ptr<SharedDevice> shared_device(const char *bind_address) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<SharedDevice>> devices;
    gloo::transport::tcp::attr attr;
    const char *iface = std::getenv("GLOO_SOCKET_IFNAME");
    if (iface != nullptr && iface[0] != '\0')
        attr.iface = std::string(iface, std::strcspn(iface, ","));
    else
        attr.hostname = bind_address;
    std::lock_guard<std::mutex> lock(mutex);
    auto &entry = devices[attr.iface + "/" + attr.hostname];
    auto shared = entry.lock();
    if (shared == nullptr) {
        HoldSignals hold;
        shared = std::make_shared<SharedDevice>(create_device(attr));
        entry = shared;
    }
    return shared;
}

} // namespace crunrt_gloo
