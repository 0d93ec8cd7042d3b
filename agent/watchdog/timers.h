/* The set of timers that workers have set. Pure: no I/O and no clock; callers pass times as
 * milliseconds since 1970. */
#ifndef AGENT_TIMERS_H
#define AGENT_TIMERS_H

#include "agent/watchdog/timer_request.h"

#include <sys/queue.h>

#define TIMERS_MAX 65536 /* most timers that can be set at the same time */

struct timer {
    pid_t pid;
    char *scope;
    int64_t expires_ms;
    int signum; /* signal to send when the timer expires; 0: none */
    LIST_ENTRY(timer) entry;
};

/* All timers of this node's workers. Zero-initialise the struct. */
struct timers {
    LIST_HEAD(timer_list, timer) list;
    size_t count;
};

/* Sets, changes or cancels the timer that the request identifies. It may take ownership of the
 * request's scope and set r->scope to NULL. Returns 0, -ENOSPC if TIMERS_MAX timers are set, or
 * -ENOMEM. */
int timers_apply(struct timers *t, struct timer_request *r);

/* Removes all timers of a process. Returns whether it had any. */
bool timers_forget(struct timers *t, pid_t pid);

/* Returns the time at which the earliest timer expires, in ms since 1970; INT64_MAX if no timer is
 * set. */
int64_t timers_next_ms(const struct timers *t);

/* Removes an expired timer from the set and returns it; the caller frees it with timer_free().
 * Timers with a signal come first, and among these the earliest. Returns NULL if no timer has
 * expired. */
struct timer *timers_take_expired(struct timers *t, int64_t now_ms);
void timer_free(struct timer *timer);

void timers_done(struct timers *t);

#endif
