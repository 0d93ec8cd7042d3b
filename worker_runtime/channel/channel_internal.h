/* What dump.c offers to channel.c: the signal handler that writes the flight record and reports it
 * to the agent. */
#ifndef RUNTIME_CHANNEL_INTERNAL_H
#define RUNTIME_CHANNEL_INTERNAL_H

#include "contract/channel.h"

#include <stdbool.h>

/* Installs the handler that writes the flight record when the agent sends a signal. The signal is
 * CRUNRT_DUMP_SIGNAL, or SIGRTMIN+5 if this variable is unset. If the program already handles or
 * ignores the signal, nothing is installed. Returns the signal's number, or 0 if our handler is not
 * installed. */
int dump_install_handler(void);

/* From this call on the handler reports each dump to the agent on connection `fd`. fd and page must
 * stay valid until dump_disconnect(). */
void dump_connect(int fd, struct channel_page *page);

/* Stops the handler's use of `fd`, so that the caller may close it; if a handler runs on another
 * thread, waits until it returns. If the handler does not report on `fd`, nothing happens. Returns
 * whether it reported on `fd`. */
bool dump_disconnect(int fd);

#endif
