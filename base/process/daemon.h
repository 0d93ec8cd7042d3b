/* Functions that programs call at their start and end. They open missing standard descriptors,
 * raise the limit of open files, report to systemd that a daemon is ready or stops, and end the
 * program by a signal. */
#ifndef CR_DAEMON_H
#define CR_DAEMON_H

/* Reports `state`, "READY=1" or "STOPPING=1", to systemd, as sd_notify(3) does: sends one datagram
 * to the socket that the environment variable NOTIFY_SOCKET names. Does nothing if that variable is
 * not set. */
void cr_notify(const char *state);

/* Raises the soft limit of open files to the hard limit. A server needs one descriptor per
 * connection, and the usual soft limit of 1024 is too low for a large job. */
void cr_raise_descriptor_limit(void);

/* Call this first in main. Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed.
 * Otherwise the next file or socket that the program opens would get one of these numbers, and text
 * that is printed to stdout or stderr would be written into it. */
void cr_keep_standard_files(void);

/* Ends this process by the signal, as if it had no handler for it, so that its parent can see which
 * signal ended it. Returns only if the signal does not end processes. */
void cr_die_by(int signum);

#endif
