/* Watches for suspensions of this machine, and calls the agent when the machine runs again. */
#ifndef AGENT_SUSPENSION_H
#define AGENT_SUSPENSION_H

#include "base/time/suspension.h"

#include <stdbool.h>
#include <uv.h>

struct suspension_watch {
    struct cr_suspension clocks;
    int timer_fd; /* -1 if the machine cannot be watched */
    uv_poll_t poll;
    void (*on_resumed)(void *arg, int64_t slept_ms);
    void *arg;
    void (*on_close)(void *arg);
};

/* Begins to watch for suspensions. on_resumed runs on the loop after each one; slept_ms is its
 * length in ms. If the kernel cannot report suspensions, on_resumed never runs. */
void suspension_watch_open(struct suspension_watch *s, uv_loop_t *loop,
                           void (*on_resumed)(void *arg, int64_t slept_ms), void *arg);

/* Stops watching for suspensions. Returns true if on_close will run on the loop. Returns false if
 * the kernel could not report suspensions; on_close does not run in that case. */
bool suspension_watch_close(struct suspension_watch *s, void (*on_close)(void *arg));

#endif
