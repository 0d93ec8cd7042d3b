/* Limits the rate of log lines that somebody else can cause: a client of a port, a peer that sends
 * nonsense, a worker. Without a limit such a program could fill the disk and hide other lines.
 *
 * Each source of lines has a struct cr_log_limit. In each window of CR_LOG_LIMIT_WINDOW_MS, lines
 * are logged until the limit is reached. At the limit, one line says that further lines of this
 * window are only counted. Their number is logged before the first line of a later window, or by
 * cr_log_limit_end(). */
#ifndef CR_LOG_LIMIT_H
#define CR_LOG_LIMIT_H

#include "base/log/log.h"

#include <stdbool.h>

#define CR_LOG_LIMIT_WINDOW_MS INT64_C(10000)
#define CR_LOG_LIMIT_LINES     20 /* limit of the lines in a window if the field `max` is 0 */

/* The limit of one source of lines. Only one thread at a time may use it. Before the first use, set
 * `about`, and `max` if the default does not fit; the other fields are 0. */
struct cr_log_limit {
    const char *about; /* what the lines are about, in the plural: "the store's clients" */
    unsigned max;      /* limit of the lines in a window; 0 means CR_LOG_LIMIT_LINES */
    int64_t since_ms;  /* when the present window began, on the monotonic clock */
    unsigned count;    /* number of lines that were logged in the present window */
    uint64_t suppressed; /* number of lines not logged since this number was last reported */
};

/* What the caller has to do with a line; the result of cr_log_limit_decide(). */
struct cr_log_limit_decision {
    bool is_admitted;  /* true if the caller must log the line */
    bool begins;       /* true if the caller must log that further lines are only counted */
    uint64_t reported; /* if not 0: the caller must first log that this number of lines was not
                        * logged */
};

/* Decides about one line at the time now_ms. This function does no I/O; cr_log_limited() calls it
 * and carries out the decision. */
struct cr_log_limit_decision cr_log_limit_decide(struct cr_log_limit *l, int64_t now_ms);

/* Logs a line as cr_log() does, unless the limit is reached. A line whose level is not logged does
 * not count towards the limit. */
void cr_log_limited(struct cr_log_limit *l, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Call this when no more lines of this source will come. It reports the number of suppressed
 * lines, if there are any. */
void cr_log_limit_end(struct cr_log_limit *l);

#endif
