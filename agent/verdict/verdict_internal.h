/* Declarations that several files of agent/verdict/ share. */
#ifndef AGENT_VERDICT_INTERNAL_H
#define AGENT_VERDICT_INTERNAL_H

#include "agent/verdict/decision.h"

/* Makes the function in which TRY() stands return the error of `call`, if `call` fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ < 0) return rc_;                                                                   \
    } while (0)

/* Returns the name of a signal without "SIG", such as "TERM" for 15; or "?" if there is no such
 * signal. */
const char *verdict_signal_name(int signum);

/* Appends the box that torchrun writes when a job fails, in torchrun's format, because tools parse
 * it. `first` is the index of the worker that failed first. Returns 0 or -ENOMEM. */
int verdict_box(struct cr_buffer *out, const struct verdict *v, size_t first);

#endif
