/* Serves torch's timer files, as torchrun's timer watchdog does. Workers that use
 * torch.distributed.elastic.timer set timers for themselves by writing lines into a named pipe; a
 * worker whose timer expires gets the signal that its line asked for. A line is one JSON object
 * (timer_request.h):
 *
 *   {"version": 1, "pid": 4711, "scope_id": "train.py#12", "expiration_time": 1700000000.5,
 *   "signal": 9}
 *
 * The watchdog does not poll: the loop watches the pipe, and one timer of the loop runs until the
 * earliest expiration. When a signal of the watchdog ends a worker, crun treats that as the
 * worker's failure and may restart. (torchrun's watchdog ends the launcher since torch 2.4.) Code
 * outside agent/watchdog/ includes this header only. */
#ifndef AGENT_WATCHDOG_H
#define AGENT_WATCHDOG_H

#include "agent/watchdog/log_rules.h"
#include "agent/watchdog/quiet.h"
#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct watchdog;

struct watchdog_events {
    /* Returns whether the process belongs to this job. If it does not, the watchdog sends it no
     * signal. Otherwise whoever can write to the pipe could make crun end any process to which crun
     * is allowed to send a signal. */
    bool (*is_ours)(void *arg, pid_t pid);
    /* Runs just before a signal is sent to the process, one of whose timers has expired. */
    void (*on_expired)(void *arg, pid_t pid);
};

/* Creates the pipe at `path`, in place of any file there; only this user may open it. `events` is
 * copied. Returns 0; or a negative errno, and sets err to a text that names the path. */
int watchdog_open(uv_loop_t *loop, const char *path, const struct watchdog_events *events,
                  void *arg, struct watchdog **out, struct cr_error *err);

/* Call this when a process has ended. It removes the process's timers, because the kernel may give
 * the pid to another process. */
void watchdog_forget(struct watchdog *w, pid_t pid);

/* Removes the pipe and frees the watchdog. After that, on_close runs on the loop, unless it is
 * NULL. */
void watchdog_close(struct watchdog *w, void (*on_close)(void *arg));

#endif
