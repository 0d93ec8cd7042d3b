/* What every program of the project does at its start: standard descriptors, the limit of open
 * files, and the readiness protocol of systemd. */
#ifndef CR_DAEMON_H
#define CR_DAEMON_H

/* Reports a state to systemd, "READY=1" or "STOPPING=1": one datagram to the socket named by
 * NOTIFY_SOCKET (sd_notify(3)). Without that variable it does nothing. */
void cr_notify(const char *state);

/* Raises the limit of open files to the hard limit, because every connection is a descriptor. */
void cr_raise_descriptor_limit(void);

/* Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Otherwise the next file
 * that is opened would get such a number, and what is printed would go into it. Call it first in
 * main. */
void cr_keep_standard_files(void);

#endif
