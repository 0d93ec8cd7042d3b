/* Reports of pure state machines: see trace.h. */
#include "base/log/trace.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void cr_trace(const struct cr_trace *trace, const char *fmt, ...) {
    char text[256];
    va_list args;
    if (trace->log == NULL) return;
    va_start(args, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    trace->log(trace->arg, text);
}
