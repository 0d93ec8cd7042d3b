/* What a daemon tells its supervisor, and asks of the kernel. */
#ifndef CR_DAEMON_H
#define CR_DAEMON_H

/* systemd's protocol, "READY=1" or "STOPPING=1": one datagram to the socket named in NOTIFY_SOCKET; does
 * nothing without one. */
void cr_notify(const char *state);

/* A connection is a descriptor: takes as many as the hard limit allows. */
void cr_raise_descriptor_limit(void);

#endif
