/* One end of the connection between a caller and a session: a socket, a tunnel, and messages. */
#ifndef REMOTE_WIRE_H
#define REMOTE_WIRE_H

#include "base/error.h"
#include "remote/message_internal.h"
#include "rendezvous/secure/secure.h"

#include <stdbool.h>

#define WIRE_QUEUE_MAX ((size_t) 256 << 10) /* if this many bytes wait to be sent, no more input is
                                             * read */

struct wire {
    int fd; /* a non-blocking TCP socket; the wire closes it */
    struct secure_tunnel *tunnel;
    bool has_ended; /* true if the other end has closed the connection */
};

/* Sets the options of the socket: small messages are sent without delay, and the kernel ends the
 * connection about half a minute after the other host has died or become unreachable. */
void wire_set_up(int fd);

/* Receives bytes once, without waiting, and passes them to the tunnel. Sets w->has_ended if the
 * other end has closed the connection. Returns 0, also if no bytes have come; or a negative
 * errno. */
int wire_read(struct wire *w);

/* Sends queued bytes, as many as the socket takes without waiting. Returns 0 or a negative
 * errno. */
int wire_flush(struct wire *w);

/* Queues a message. The tunnel must be open. Returns 0 or a negative errno. */
int wire_put(struct wire *w, enum remote_message type, const void *data, size_t len);

/* Returns how many bytes are queued. */
size_t wire_queued(const struct wire *w);
/* Returns the events for poll(2): POLLIN if `reads` is true, and POLLOUT if bytes are queued. */
short wire_events(const struct wire *w, bool reads);

void wire_close(struct wire *w);

#endif
