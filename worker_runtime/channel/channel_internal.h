/* The functions of dump.c that channel.c calls. dump.c has the signal handler that writes the
 * flight record and reports it to the agent. */
#ifndef RUNTIME_CHANNEL_INTERNAL_H
#define RUNTIME_CHANNEL_INTERNAL_H

#include "contract/channel.h"

#include <stdbool.h>

/* Installs the handler that writes the flight record when the agent sends a signal. The number of
 * the signal is in the environment variable CRUNRT_DUMP_SIGNAL; the default is SIGRTMIN+5. If the
 * program already handles or ignores this signal, nothing is installed. Returns the signal's
 * number, or 0 if the handler is not installed. */
int dump_install_handler(void);

/* After this call, the signal handler of dump_install_handler() reports each dump to the agent on
 * the connection `fd`. `fd` and `page` must stay valid until dump_disconnect(). */
void dump_connect(int fd, struct channel_page *page);

/* Call this before `fd` is closed. If dump_connect() was called with `fd`, makes the handler stop
 * using `fd`, waits until no handler is running on any thread, and returns true. Otherwise does
 * nothing and returns false. */
bool dump_disconnect(int fd);

#endif
