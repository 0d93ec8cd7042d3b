/* Functions that the programs call at their start: they open missing standard descriptors, raise
 * the limit of open files, and report to systemd that a daemon is ready. */
#ifndef CR_DAEMON_H
#define CR_DAEMON_H

/* Reports `state`, "READY=1" or "STOPPING=1", to systemd, as sd_notify(3) does: it sends one
 * datagram to the socket that the environment variable NOTIFY_SOCKET names. If the variable is not
 * set, it does nothing. */
void cr_notify(const char *state);

/* Raises the soft limit of open files to the hard limit. A server needs one descriptor per
 * connection, and the usual soft limit of 1024 would be too low for a large job. */
void cr_raise_descriptor_limit(void);

/* Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed. Otherwise the next file or
 * socket that the program opens would become its stdout or stderr, and printed text would go into
 * it. Call this first in main. */
void cr_keep_standard_files(void);

#endif
