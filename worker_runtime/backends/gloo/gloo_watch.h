// Gloo's connections, watched: a wait whose peer is gone ends at once.
//
// Gloo ends the waits that still stand in its queues when a connection breaks, but forgets the
// message that is under way on it: whose bytes were partly sent, or partly received. Whoever waits
// for that one, waits out its timeout. So buffers are handed out in a wrapper that knows whom each
// waits for, and a thread of the group's sleeps on the connections themselves. When the kernel says
// that one broke, it asks Gloo which peer that was, and ends the waits for it.
#ifndef WORKER_RUNTIME_BACKENDS_GLOO_WATCH_H
#define WORKER_RUNTIME_BACKENDS_GLOO_WATCH_H

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

#include <memory>

namespace crunrt_gloo {

class Watch;

class WatchedContext : public gloo::rendezvous::Context {
  public:
    WatchedContext(int rank, int size);
    ~WatchedContext() override;

    // connectFullMesh(), and watched from then on. Throws what that throws, and std::system_error.
    void connect(gloo::rendezvous::Store &store,
                 std::shared_ptr<gloo::transport::Device> &device);

    // Closes all connections and ends all waits, of any thread; after connect().
    void abort();

  private:
    std::shared_ptr<Watch> watch_;
};

} // namespace crunrt_gloo

#endif
