// Keeps C++ exceptions from reaching C code: guard() runs code that calls Gloo, and turns every
// exception into an error code and text.
#ifndef BACKENDS_GLOO_GUARD_H
#define BACKENDS_GLOO_GUARD_H

#include "worker_runtime/backends/backend.h"

#include <signal.h>

#include <chrono>
#include <stdexcept>

namespace crunrt_gloo {

// A failure of the store, thrown by GroupStore through Gloo's code and caught by guard().
struct StoreError : std::runtime_error {
    explicit StoreError(const cr_error &e) : std::runtime_error(e.text), code(e.code) {}
    int code;
};

// Returns a message of Gloo without the source location "[/build/…/file.cc:12] " in front.
const char *without_place(const char *text);

// Converts a timeout to Gloo's type, limited to 1 ms … 1 year: Gloo takes 0 as "no limit", and adds
// the timeout to a clock, which a huge value would overflow.
std::chrono::milliseconds to_milliseconds(int64_t ms);

// While an object of this class exists, SIGPIPE is blocked in this thread. Gloo writes to sockets
// without MSG_NOSIGNAL, and a dead peer must not end a program that does not handle SIGPIPE. The
// kernel generates the signal only if a call of Gloo fails. After such a failure eat() removes the
// pending signal, so that it is not delivered when the signal is unblocked.
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

// Call this in a catch block. Writes the exception that is being handled to *err, and returns the
// negative errno that fits the exception.
int translate(cr_error *err);

// Runs body() and returns what it returns, 0 or a negative errno. If body() throws an exception,
// sets *err to the exception's text and returns a negative errno that fits it.
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
