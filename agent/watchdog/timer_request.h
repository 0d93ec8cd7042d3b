/* One line of the timer pipe, parsed. Any process of the user may write anything into the pipe.
 * Pure.
 *
 *   pid              the process that the timer is for
 *   scope_id         a text; pid and scope together name the timer
 *   expiration_time  seconds since 1970; a negative number takes the timer back
 *   signal           sent when the timer expires; 0 or less: the expiration is only logged
 *
 * Other members are ignored. Source: torch/distributed/elastic/timer/file_based_local_timer.py. */
#ifndef AGENT_TIMER_REQUEST_H
#define AGENT_TIMER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct timer_request {
    pid_t pid;          /* at least 2 */
    char *scope;        /* malloc'ed */
    bool cancels;       /* takes the timer back */
    int64_t expires_ms; /* wall clock, since 1970; INT64_MAX = never; 0 if it cancels */
    int signum;         /* 0 = none */
};

/* Parses a line without its newline. On success *out is to be released by timer_request_done().
 * Returns 0, -EINVAL if the line is not a request, or -ENOMEM. */
int timer_request_parse(struct timer_request *out, const char *line, size_t len);

void timer_request_done(struct timer_request *r);

#endif
