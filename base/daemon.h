/* What a program does before it begins, tells its supervisor, and asks of the kernel. */
#ifndef CR_DAEMON_H
#define CR_DAEMON_H

/* systemd's protocol, "READY=1" or "STOPPING=1": one datagram to the socket named in NOTIFY_SOCKET; does
 * nothing without one. */
void cr_notify(const char *state);

/* A connection is a descriptor: takes as many as the hard limit allows. */
void cr_raise_descriptor_limit(void);

/* Whoever started us may have closed 0, 1 or 2; the next files opened must not become them (libuv would
 * abort when it closes one): they become /dev/null. Before anything else is opened. */
void cr_keep_standard_files(void);

#endif
