// While an object of this class exists, all signals are blocked in this thread. If this thread
// starts a new thread during this time, the new thread inherits the blocked signals, so signals
// that are meant for the program are never delivered to it.
#ifndef WORKER_RUNTIME_BACKENDS_HOLD_SIGNALS_H
#define WORKER_RUNTIME_BACKENDS_HOLD_SIGNALS_H

#include <pthread.h>
#include <signal.h>

namespace crunrt_gloo {

class HoldSignals {
  public:
    HoldSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~HoldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    HoldSignals(const HoldSignals &) = delete;
    HoldSignals &operator=(const HoldSignals &) = delete;

  private:
    sigset_t before_;
};

} // namespace crunrt_gloo

#endif
