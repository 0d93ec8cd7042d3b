/* Watches whether this machine was suspended, and calls the agent when it runs again. */
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

/* Begins to watch. on_resumed runs on the loop after each suspension; slept_ms is its length in ms.
 * If the kernel cannot report suspensions, watches nothing. */
void suspension_watch_open(struct suspension_watch *s, uv_loop_t *loop,
                           void (*on_resumed)(void *arg, int64_t slept_ms), void *arg);

/* Ends the watch. Returns true if on_close will run on the loop, and false if nothing was watched,
 * so that on_close does not run. */
bool suspension_watch_close(struct suspension_watch *s, void (*on_close)(void *arg));

#endif
