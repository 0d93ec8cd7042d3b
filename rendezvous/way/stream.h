/* A node's connection to a coordinator in another process: resolve, connect, bytes in and out.
 * The libuv shell on the member's side; what the bytes mean is not its business. */
#ifndef RENDEZVOUS_MEMBER_LINK_H
#define RENDEZVOUS_MEMBER_LINK_H

#include "base/error.h"
#include "rendezvous/coordinator/coordinator.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct member_link;

/* On the loop, never from inside a call below. */
struct member_link_events {
    /* Connected; the numeric addresses of both ends. */
    void (*on_open)(void *arg, const char *own_addr, const char *peer_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* Could not connect, or the connection is gone. Nothing follows until the next open. */
    void (*on_lost)(void *arg, const char *why);
};

/* `host` is copied, `events` borrowed. NULL when memory is short. */
struct member_link *member_link_new(uv_loop_t *loop, const char *host, uint16_t port,
                                    const struct member_link_events *events, void *arg);

/* Where the next open goes to; `host` is copied. 0 or -ENOMEM. */
int member_link_aim(struct member_link *link, const char *host, uint16_t port);

/* Starts connecting, trying the host's addresses one after the other; on_open or on_lost follows,
 * unless it returns -ENOMEM. */
int member_link_open(struct member_link *link);

/* Whether it is connected, or connecting. */
int member_link_is_open(const struct member_link *link);

/* Queues; member_link_flush() hands it to the kernel. 0 or -ENOMEM. */
int member_link_send(struct member_link *link, const void *data, size_t len);
void member_link_flush(struct member_link *link);

/* Sends what is queued, then closes; or cancels connecting. No event follows. */
void member_link_shut(struct member_link *link);

/* Shuts, and frees once all handles are closed. */
void member_link_close(struct member_link *link, void (*on_close)(void *arg), void *arg);

#endif
