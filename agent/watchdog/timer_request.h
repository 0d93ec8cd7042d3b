/* Parses one line of the timer pipe. Any process of this user may write anything into the pipe.
 * Pure: no I/O. A line is a JSON object with these fields; others are ignored:
 *
 *   pid              the process that the timer is for
 *   scope_id         a string; pid and scope_id together identify the timer
 *   expiration_time  seconds since 1970; a negative number cancels the timer
 *   signal           number of the signal that is sent when the timer expires; if it is 0 or less,
 *                    the expiration is only logged
 *
 * Source: torch/distributed/elastic/timer/file_based_local_timer.py. */
#ifndef AGENT_TIMER_REQUEST_H
#define AGENT_TIMER_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct timer_request {
    pid_t pid;          /* the process that the timer is for; at least 2 */
    char *scope;        /* name of the timer within its process; malloc'ed */
    bool cancels;       /* true if the request cancels the timer */
    int64_t expires_ms; /* time of expiration in ms since 1970 (wall clock); INT64_MAX if the timer
                         * never expires; 0 if `cancels` is true */
    int signum;         /* signal to send when the timer expires; 0 if none is to be sent */
};

/* Parses a line without its newline into *out, which timer_request_done() releases. Returns 0,
 * -EINVAL if the line is not a request, or -ENOMEM. */
int timer_request_parse(struct timer_request *out, const char *line, size_t len);

void timer_request_done(struct timer_request *r);

#endif
