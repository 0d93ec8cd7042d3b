/* The timers that are set now. Pure: times are given by the caller, as milliseconds of the wall
 * clock since 1970. */
#ifndef AGENT_TIMERS_H
#define AGENT_TIMERS_H

#include "agent/watchdog/timer_request.h"

#include <sys/queue.h>

#define TIMERS_MAX 65536 /* set at one time */

struct timer {
    pid_t pid;
    char *scope;
    int64_t expires_ms;
    int signum; /* 0 = none */
    LIST_ENTRY(timer) entry;
};

/* Zero-initialise. */
struct timers {
    LIST_HEAD(timer_list, timer) list;
    size_t count;
};

/* Sets, changes or takes back the timer that the request names; may take the request's scope.
 * Returns 0, -ENOSPC if TIMERS_MAX timers are set, or -ENOMEM. */
int timers_apply(struct timers *t, struct timer_request *r);

/* Drops all timers of a process. Returns whether it had any. */
bool timers_forget(struct timers *t, pid_t pid);

/* When the earliest timer expires; INT64_MAX: there is none. */
int64_t timers_next_ms(const struct timers *t);

/* Removes an expired timer and returns it, or NULL if there is none; timer_free() releases it.
 * Timers with a signal come first, the earliest of them first. */
struct timer *timers_take_expired(struct timers *t, int64_t now_ms);
void timer_free(struct timer *timer);

void timers_done(struct timers *t);

#endif
