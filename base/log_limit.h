/* Limits the rate of log lines that somebody else can cause: a client of a port, a peer that sends
 * nonsense, a worker. Without a limit such a program could fill the disk and hide other lines.
 *
 * Each source of lines has a struct cr_log_limit. In each window of CR_LOG_LIMIT_WINDOW_MS, the
 * first lines are logged, as many as the limit allows. Further ones are only counted; one line says
 * that this begins, and another one how many lines were not logged. That number is logged before
 * the first line of a later window, or by cr_log_limit_end(). */
#ifndef CR_LOG_LIMIT_H
#define CR_LOG_LIMIT_H

#include "base/log.h"

#include <stdbool.h>

#define CR_LOG_LIMIT_WINDOW_MS INT64_C(10000)
#define CR_LOG_LIMIT_LINES     20 /* most lines in a window if the field `max` is 0 */

/* The limit of one source of lines. Only one thread at a time may use it. Before the first use, set
 * `about`, and `max` if the default does not fit; the other fields are 0. */
struct cr_log_limit {
    const char *about; /* what the lines are about, in the plural: "the store's clients" */
    unsigned max;      /* most lines in a window; 0 means CR_LOG_LIMIT_LINES */
    int64_t since_ms;  /* when the present window began, on the monotonic clock */
    unsigned count;    /* number of lines that were logged in the present window */
    uint64_t suppressed; /* number of lines not logged since this number was last reported */
};

/* What the caller has to do with a line; the result of cr_log_limit_decide(). */
struct cr_log_limit_decision {
    bool is_admitted;  /* true: log the line */
    bool begins;       /* true: log that further lines are not logged, only counted */
    uint64_t reported; /* if not 0: first log that this number of lines was not logged */
};

/* Decides about one line at the time now_ms. This function does no I/O; cr_log_limited() calls it
 * and carries out the decision. */
struct cr_log_limit_decision cr_log_limit_decide(struct cr_log_limit *l, int64_t now_ms);

/* Logs a line like cr_log(), unless the limit is reached. A line of a level that is not logged does
 * not count. */
void cr_log_limited(struct cr_log_limit *l, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Call this when no more lines of this source will come. It reports the number of suppressed
 * lines, if there are any. */
void cr_log_limit_end(struct cr_log_limit *l);

#endif
