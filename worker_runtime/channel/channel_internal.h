/* The functions of dump.c for channel.c. dump.c has the signal handler that writes the flight
 * record and reports this to the agent. */
#ifndef RUNTIME_CHANNEL_INTERNAL_H
#define RUNTIME_CHANNEL_INTERNAL_H

#include "contract/channel.h"

#include <stdbool.h>

/* Installs the handler that writes the flight record when the agent sends the dump signal. The
 * signal's number comes from the environment variable CRUNRT_DUMP_SIGNAL; the default is
 * SIGRTMIN+5. If the program already handles or ignores this signal, installs nothing. Returns the
 * signal's number, or 0 if the handler is not installed. */
int dump_install_handler(void);

/* From now on, the handler that dump_install_handler() has installed reports each dump to the
 * agent, on the connection `fd`. `fd` and `page` must stay valid until dump_disconnect(). */
void dump_connect(int fd, struct channel_page *page);

/* Call this before `fd` is closed. If dump_connect() was called with `fd`, makes the handler stop
 * using `fd`, waits until the handler runs on no thread, and returns true. Otherwise does nothing
 * and returns false. */
bool dump_disconnect(int fd);

#endif
