/* Where a pure state machine reports the changes of its state. Pure code does no I/O, so its owner
 * sets a function that logs the text; cr_log_trace() of base/log/log.h returns one for the level
 * debug. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

struct cr_trace {
    void (*log)(void *arg, const char *text); /* NULL if nothing is logged */
    void *arg;
};

/* Calls the trace's function with a text, which is cut after 255 bytes. If the trace has no
 * function, does nothing. */
void cr_trace(const struct cr_trace *trace, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
