/* A TCP client on a libuv loop that can connect again and again: it resolves the host, connects,
 * and carries bytes in both directions, whatever they mean. A dial (dial.c) uses one for each
 * address that it tries. */
#ifndef RENDEZVOUS_TCP_STREAM_INTERNAL_H
#define RENDEZVOUS_TCP_STREAM_INTERNAL_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct tcp_stream;

/* Called on the loop's thread, never from inside a function of this header. */
struct tcp_stream_events {
    /* The connection is established; own_addr and peer_addr are the numeric addresses of its
     * ends. */
    void (*on_open)(void *arg, const char *own_addr, const char *peer_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* The connection could not be established, or has ended. No callback follows until the next
     * tcp_stream_open(). */
    void (*on_lost)(void *arg, enum rendezvous_loss how, const char *why);
};

/* Creates a stream, which does not connect yet. Copies `host`; `events` must live until on_close.
 * Returns NULL when memory is short. */
struct tcp_stream *tcp_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                          const struct tcp_stream_events *events, void *arg);

/* Tries to connect to the host's addresses, one after the other; on_open or on_lost follows. The
 * stream must not be open. */
void tcp_stream_open(struct tcp_stream *s);

/* Returns whether the stream is connected or tries to connect. */
bool tcp_stream_is_open(const struct tcp_stream *s);

/* Queues bytes; tcp_stream_flush() passes them to the kernel. If the stream is not open, the bytes
 * are dropped. */
void tcp_stream_send(struct tcp_stream *s, const void *data, size_t len);
void tcp_stream_flush(struct tcp_stream *s);

/* Call this if the owner has an error after which the connection is of no use. Closes the
 * connection; on_lost follows with `why`, which must stay valid until then. */
void tcp_stream_break(struct tcp_stream *s, const char *why);

/* Resets the connection: drops the queued bytes, and the other end gets an error and not an
 * end-of-file. So the other end does not believe that this process has ended. No callback follows
 * until the next tcp_stream_open(). */
void tcp_stream_reset(struct tcp_stream *s);

/* If the stream is connected, sends the queued bytes and closes the connection; if it is
 * connecting, stops that. No callback follows until the next tcp_stream_open(). */
void tcp_stream_shut(struct tcp_stream *s);

/* Calls tcp_stream_shut(), frees the stream when all its libuv handles are closed, and calls
 * on_close. */
void tcp_stream_close(struct tcp_stream *s, void (*on_close)(void *arg), void *arg);

#endif
