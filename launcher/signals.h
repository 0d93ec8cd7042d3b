/* Receives the signals that crun handles, each with its sender. The signals are blocked and read
 * from a signalfd, because libuv's signal handles do not say who has sent a signal. */
#ifndef LAUNCHER_SIGNALS_H
#define LAUNCHER_SIGNALS_H

#include "base/error.h"

#include <signal.h>
#include <uv.h>

#define SIGNAL_SENDER_MAX 96

struct signals {
    int fd; /* the signalfd, or -1 */
    uv_poll_t poll;
    sigset_t set;
    /* `sender` describes who has sent the signal, such as "pid 4711 (bash, uid 1000)" */
    void (*on_signal)(void *arg, int signum, const char *sender);
    void *arg;
};

/* Starts handling the signals of `set`, also signals that were ignored before: for each signal, the
 * loop calls on_signal(). Call this before other threads start, because they must inherit that the
 * signals are blocked. The handle alone does not keep the loop running. Returns 0; or a negative
 * errno, and sets err. */
int signals_open(struct signals *s, uv_loop_t *loop, const sigset_t *set,
                 void (*on_signal)(void *arg, int signum, const char *sender), void *arg,
                 struct cr_error *err);

/* Stops handling the signals. From now on they have their default effects. */
void signals_close(struct signals *s);

#endif
