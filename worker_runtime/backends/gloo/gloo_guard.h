// The border between Gloo and C: no exception passes it. guard() runs code that uses Gloo, and
// turns every exception into an error of ours.
#ifndef BACKENDS_GLOO_GUARD_H
#define BACKENDS_GLOO_GUARD_H

#include "worker_runtime/backends/backend.h"

#include <signal.h>

#include <chrono>
#include <stdexcept>

namespace crunrt_gloo {

// A failure of the store, on its way through Gloo's frames.
struct StoreError : std::runtime_error {
    explicit StoreError(const cr_error &e) : std::runtime_error(e.text), code(e.code) {}
    int code;
};

// A message of Gloo without the "[/build/…/file.cc:12] " in front.
const char *without_place(const char *text);

// Gloo takes 0 as "no limit", and adds the timeout to a clock, so it must not be huge.
std::chrono::milliseconds to_milliseconds(int64_t ms);

// Blocks SIGPIPE while it lives. Gloo writes to sockets without MSG_NOSIGNAL, and a dead peer must
// not end a program that does not handle SIGPIPE. The signal can only have come if Gloo has failed;
// eat() then removes it, so that it is not delivered when it is unblocked.
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
int translate(cr_error *err);

// Runs body(), which returns 0 or a negative errno.
template <typename Body> int guard(cr_error *err, Body body) {
    HoldSigpipe hold;
    try {
        return body();
    } catch (...) {
        hold.eat();
        return translate(err);
    }
}

} // namespace crunrt_gloo

#endif
