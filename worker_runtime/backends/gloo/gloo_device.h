// Gloo's device: a thread with an event loop, which serves the connections of all groups that use
// one address; and a way to make Gloo connect and close without delays.
//
// Gloo's function that takes a descriptor out of the loop waits until the loop's thread has made a
// turn. An idle loop makes a turn every 10 ms. Gloo calls this function for each connection that is
// connected and for each that is closed, one after the other, and also waits for a turn when a
// device ends. So a group of 4 ranks took 30 to 45 ms to connect and 20 ms to close, nearly all of
// it waiting. While a Hurry exists, a timer makes the loop turn every 0.1 ms.
#ifndef BACKENDS_GLOO_DEVICE_H
#define BACKENDS_GLOO_DEVICE_H

#include <gloo/transport/device.h>

#include <memory>

namespace crunrt_gloo {

class LoopTimer;

// One device of Gloo and the timer of its loop. All Gloo contexts that use the device must be freed
// before the last reference to the SharedDevice is dropped.
class SharedDevice {
  public:
    explicit SharedDevice(std::shared_ptr<gloo::transport::Device> made);
    ~SharedDevice();
    SharedDevice(const SharedDevice &) = delete;
    SharedDevice &operator=(const SharedDevice &) = delete;

    std::shared_ptr<gloo::transport::Device> device;

  private:
    friend class Hurry;
    std::unique_ptr<LoopTimer> timer_; // NULL if the device is not one for TCP
};

// Lets the loop of a device turn every 0.1 ms, as long as this object exists.
class Hurry {
  public:
    explicit Hurry(const std::shared_ptr<SharedDevice> &shared);
    ~Hurry();
    Hurry(const Hurry &) = delete;
    Hurry &operator=(const Hurry &) = delete;

  private:
    std::shared_ptr<SharedDevice> shared_;
};

// Returns the device for this address. All groups of this process that use the same address or
// interface share one device.
std::shared_ptr<SharedDevice> shared_device(const char *bind_address);

} // namespace crunrt_gloo

#endif
