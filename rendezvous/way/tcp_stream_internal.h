/* A TCP connection on a libuv loop that can be opened again and again: resolve, connect, bytes
 * in and out. What the bytes mean is not its business. A node reaches its coordinator through
 * one, and a call to etcd is made over one. */
#ifndef RENDEZVOUS_TCP_STREAM_INTERNAL_H
#define RENDEZVOUS_TCP_STREAM_INTERNAL_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct tcp_stream;

/* Called on the loop, never from inside a call below. */
struct tcp_stream_events {
    /* Connected; the numeric addresses of both ends. */
    void (*on_open)(void *arg, const char *own_addr, const char *peer_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    /* The connection could not be made, or is gone. No event follows until the next
     * tcp_stream_open(). */
    void (*on_lost)(void *arg, const char *why);
};

/* `host` is copied, `events` borrowed. NULL when memory is short. */
struct tcp_stream *tcp_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                          const struct tcp_stream_events *events, void *arg);

/* Sets where the next tcp_stream_open() goes to. `host` is copied. Returns 0 or -ENOMEM. */
int tcp_stream_aim(struct tcp_stream *s, const char *host, uint16_t port);

/* Starts to connect, to the host's addresses one after the other; on_open or on_lost follows.
 * The stream must not be open. */
void tcp_stream_open(struct tcp_stream *s);

/* Whether it is connected, or connecting. */
bool tcp_stream_is_open(const struct tcp_stream *s);

/* Queues bytes; tcp_stream_flush() gives them to the kernel. Dropped if the stream is not open. */
void tcp_stream_send(struct tcp_stream *s, const void *data, size_t len);
void tcp_stream_flush(struct tcp_stream *s);

/* Sends what is queued, then closes; or cancels connecting. No event follows. */
void tcp_stream_shut(struct tcp_stream *s);

/* Shuts, and frees once all handles are closed. Then calls on_close. */
void tcp_stream_close(struct tcp_stream *s, void (*on_close)(void *arg), void *arg);

#endif
