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

/* From now on the handler reports each dump to the agent on the connection `fd`. `fd` and `page`
 * must stay valid until dump_disconnect(). */
void dump_connect(int fd, struct channel_page *page);

/* Makes the handler stop using `fd`, so that the caller may close it. If a handler is running on
 * another thread, it waits until that handler has returned. Returns whether the handler used `fd`;
 * if not, it does nothing. */
bool dump_disconnect(int fd);

#endif
