/* Shared by the files that write the verdict. */
#ifndef AGENT_VERDICT_INTERNAL_H
#define AGENT_VERDICT_INTERNAL_H

#include "agent/report/verdict.h"

/* Returns from the calling function if `call` fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ < 0) return rc_;                                                                   \
    } while (0)

/* "TERM" for 15; "?" for a number that is not a signal. */
const char *verdict_signal_name(int signum);

/* Appends the box that torchrun writes, in its format, because tools parse it. `first` is the
 * index of the worker that failed first. 0 or -ENOMEM. */
int verdict_box(struct cr_buffer *out, const struct verdict *v, size_t first);

#endif
