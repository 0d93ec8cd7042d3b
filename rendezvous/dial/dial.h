/* Connects to a coordinator whose host may have several addresses, and carries bytes in both
 * directions. All addresses are tried side by side (race_internal.h). On each connection the node's
 * greeting is sent; the first connection on which WELCOME comes is kept, and its bytes, the WELCOME
 * included, go to the owner. A program that does not answer the greeting is asked what it is, so
 * that an error text can name it (stranger_internal.h).
 *
 * A dial can connect again and again, to one coordinator at a time. This header is the door of
 * rendezvous/dial; it also shows the addresses of a host, the secured stream of one connection, and
 * how a listener without memory refuses a connection. */
#ifndef RENDEZVOUS_DIAL_H
#define RENDEZVOUS_DIAL_H

#include "rendezvous/dial/addresses_internal.h"
#include "rendezvous/dial/refusal_internal.h"
#include "rendezvous/dial/secured_stream_internal.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct dial;
struct secure_ring;

/* Called on the loop's thread, never from inside a function of this header. */
struct dial_events {
    /* A coordinator has answered; its bytes follow. own_addr and peer_addr are the numeric
     * addresses of the connection's ends. */
    void (*on_open)(void *arg, const char *own_addr, const char *peer_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* No coordinator has answered at any address, or the connection has ended. No callback follows
     * until the next dial_open(). */
    void (*on_lost)(void *arg, enum rendezvous_loss how, const char *why);
    /* No coordinator has answered, and another try cannot help: a torchrun serves this job at the
     * endpoint. No callback follows until the next dial_open(). */
    void (*on_hopeless)(void *arg, const char *why);
    /* No coordinator answers at this address, only a TCPStore of torch that is not torchrun's for
     * this job; own_addr is the address of this end of the connection to it. is_old: the store
     * speaks the protocol of torch 2.0 and earlier. Called only after dial_accept_stores(). No
     * callback follows until the next dial_open(). */
    void (*on_store)(void *arg, const char *own_addr, const char *addr, bool is_old);
};

/* Creates a dial, which does not connect yet. Copies `host` and `run_id`; `events` must live until
 * on_close. Returns NULL when memory is short. */
struct dial *dial_new(uv_loop_t *loop, const char *host, uint16_t port, const char *run_id,
                      const struct dial_events *events, void *arg);

/* Sets the host and port to which the next dial_open() connects. Copies `host`. Returns 0 or
 * -ENOMEM. */
int dial_aim(struct dial *d, const char *host, uint16_t port);
/* From now on, dial_open() tries the addresses in the order of race_sort(), which is the same on
 * all nodes. Without this call it uses race_order(), which begins with the address that won the
 * previous race. */
void dial_sort(struct dial *d);
/* Sets what happens from now on if a TCPStore at one of the addresses closes the connection without
 * an answer to the greeting. If `accepts` is true, the race ends with on_store. If `accepts` is
 * false, or without this call, the address counts as failed. */
void dial_accept_stores(struct dial *d, bool accepts);

/* From now on, the node and the coordinator authenticate each other with the secrets of `ring`
 * before anything else is sent. `ring` must live as long as the dial. */
void dial_secure(struct dial *d, struct secure_ring *ring);

/* Tries all addresses once; on_open, on_lost, on_hopeless or on_store follows. Copies the greeting.
 * The dial must not be open. */
void dial_open(struct dial *d, const void *greeting, size_t len);

/* Returns whether the dial is connected or tries to connect. */
bool dial_is_open(const struct dial *d);
/* Returns whether the last dial_open() has found addresses of the host. */
bool dial_has_addresses(const struct dial *d);
/* Returns what is known about each address since the last dial_open(), for error texts; "" = no
 * address was tried. Valid until the next call of this function. */
const char *dial_report(struct dial *d);

/* Returns whether another program than crun has answered at one of the addresses when the dial last
 * had a result there: since the last dial_open(), or if that has no result yet, before it. */
bool dial_has_stranger(const struct dial *d);

/* Queues bytes; dial_flush() passes them to the kernel. If the dial is not connected, the bytes are
 * dropped. */
void dial_send(struct dial *d, const void *data, size_t len);
void dial_flush(struct dial *d);

/* If the dial is connected, sends the queued bytes and closes the connection; if it is connecting,
 * stops that. No callback follows until the next dial_open(). */
void dial_shut(struct dial *d);

/* Calls dial_shut(), frees the dial when all its libuv handles are closed, and calls on_close. */
void dial_close(struct dial *d, void (*on_close)(void *arg), void *arg);

#endif
