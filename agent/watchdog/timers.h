/* The set of timers that workers have set. Pure: no I/O and no clock; callers pass times as
 * milliseconds since 1970. */
#ifndef AGENT_TIMERS_H
#define AGENT_TIMERS_H

#include "agent/watchdog/timer_request.h"

#include <sys/queue.h>

#define TIMERS_MAX 65536 /* limit of the timers that are set at the same time */

struct timer {
    pid_t pid;
    char *scope;
    int64_t expires_ms;
    int signum; /* signal to send when the timer expires; 0 if none is to be sent */
    LIST_ENTRY(timer) entry;
};

/* All timers of this node's workers. Zero-initialise the struct. */
struct timers {
    LIST_HEAD(timer_list, timer) list;
    size_t count;
};

/* Sets, changes or cancels the timer that the request identifies. If it adds a timer, that timer
 * owns the request's scope, and r->scope is NULL afterwards. Returns 0, -ENOSPC if TIMERS_MAX
 * timers are set, or -ENOMEM. */
int timers_apply(struct timers *t, struct timer_request *r);

/* Removes all timers of a process. Returns true if the process had a timer. */
bool timers_forget(struct timers *t, pid_t pid);

/* Returns the time at which the earliest timer expires, in ms since 1970; INT64_MAX if no timer is
 * set. */
int64_t timers_next_ms(const struct timers *t);

/* Removes one expired timer from the set and returns it; the caller frees the timer with
 * timer_free(). If several timers have expired, it takes those with a signal before those without,
 * and otherwise the earliest first. Returns NULL if no timer has expired. */
struct timer *timers_take_expired(struct timers *t, int64_t now_ms);
void timer_free(struct timer *timer);

void timers_done(struct timers *t);

#endif
