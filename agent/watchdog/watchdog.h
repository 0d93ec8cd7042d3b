/* torchrun's timer watchdog: workers (torch.distributed.elastic.timer) set timers for themselves through
 * a named pipe; one whose time is over is sent the signal that it asked for. One JSON object a line:
 *
 *   {"version": 1, "pid": 4711, "scope_id": "train.py#12", "expiration_time": 1700000000.5, "signal": 9}
 *
 * A timer is its pid and scope; a negative time takes it back. Nothing polls: the pipe is watched, and
 * a timer of the loop runs to the earliest time. The worker's death is then a failure like any other;
 * the launcher goes on (torchrun's kills itself since 2.4). */
#ifndef AGENT_WATCHDOG_H
#define AGENT_WATCHDOG_H

#include "base/error.h"

#include <sys/types.h>
#include <uv.h>

#define WATCHDOG_TIMERS_MAX 65536 /* set at one time; more are refused with a warning */

struct watchdog;

/* Makes the pipe at `path` anew (only we may open it). on_expired runs before the signal is sent.
 * 0 or a negative errno with a text that names the path. */
int watchdog_open(uv_loop_t *loop, const char *path, void (*on_expired)(void *arg, pid_t pid),
                  void *arg, struct watchdog **out, struct cr_error *err);

/* The process has ended: its pid may soon be another's. */
void watchdog_forget(struct watchdog *w, pid_t pid);

/* Removes the pipe and frees, after the loop has run `on_close`. */
void watchdog_close(struct watchdog *w, void (*on_close)(void *arg));

#endif
