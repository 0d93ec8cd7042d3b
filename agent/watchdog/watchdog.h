/* torchrun's timer watchdog. Workers that use torch.distributed.elastic.timer set timers for
 * themselves by writing lines into a named pipe; a worker whose timer expires gets the signal that
 * it asked for. One line is one JSON object (timer_request.h):
 *
 *   {"version": 1, "pid": 4711, "scope_id": "train.py#12", "expiration_time": 1700000000.5,
 *   "signal": 9}
 *
 * Nothing polls: the loop watches the pipe, and one timer of the loop runs until the earliest
 * expiration. The worker's death is a failure like any other, and the launcher goes on. (torchrun's
 * watchdog ends the launcher since torch 2.4.) Code outside agent/watchdog/ includes this header
 * only. */
#ifndef AGENT_WATCHDOG_H
#define AGENT_WATCHDOG_H

#include "base/error.h"

#include <sys/types.h>
#include <uv.h>

struct watchdog;

/* Creates the pipe at `path`, in place of what is there; only this user may open it. on_expired
 * runs before the signal is sent. Returns 0, or a negative errno with a text that names the
 * path. */
int watchdog_open(uv_loop_t *loop, const char *path, void (*on_expired)(void *arg, pid_t pid),
                  void *arg, struct watchdog **out, struct cr_error *err);

/* The process has ended: drops its timers, because its pid may be given to another process. */
void watchdog_forget(struct watchdog *w, pid_t pid);

/* Removes the pipe and frees the watchdog; on_close (may be NULL) runs on the loop when that is
 * done. */
void watchdog_close(struct watchdog *w, void (*on_close)(void *arg));

#endif
