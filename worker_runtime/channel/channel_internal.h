/* Between channel.c and dump.c. */
#ifndef RUNTIME_CHANNEL_INTERNAL_H
#define RUNTIME_CHANNEL_INTERNAL_H

#include "contract/channel.h"

#include <stdbool.h>

/* Installs the handler that writes the flight record when the agent sends a signal. The signal is
 * CRUNRT_DUMP_SIGNAL, or SIGRTMIN+5; it is left alone if the program handles or ignores it.
 * Returns its number, or 0 if there is no handler of ours. */
int dump_install_handler(void);

/* The handler reports to the agent on this connection. Both must stay valid until
 * dump_disconnect(). */
void dump_connect(int fd, struct channel_page *page);

/* Afterwards no handler uses the descriptor any more. Waits for a handler on another thread. Does
 * nothing if the handler does not report on `fd`. Returns whether it did. */
bool dump_disconnect(int fd);

#endif
