/* A TCP client whose connection is authenticated and encrypted before anything is sent on it: a
 * tcp_stream with the node's end of a secure tunnel (rendezvous/secure) on top. Without secrets it
 * only passes on the calls and events of its tcp_stream. */
#ifndef RENDEZVOUS_SECURED_STREAM_INTERNAL_H
#define RENDEZVOUS_SECURED_STREAM_INTERNAL_H

#include "rendezvous/secure/secure.h"
#include "rendezvous/dial/tcp_stream_internal.h"

struct secured_stream;

/* Called on the loop's thread, never from inside a function of this header. */
struct secured_stream_events {
    /* The TCP connection is established, and the ends begin to authenticate each other; with MUNGE,
     * this end has its credential. Bytes that the owner sends from now on are kept until the ends
     * have authenticated each other, and sent after that. */
    void (*on_open)(void *arg, const char *own_addr, const char *peer_addr);
    void (*on_data)(void *arg, const char *data, size_t len);
    void (*on_lost)(void *arg, enum rendezvous_loss how, const char *why);
    /* The ends could not authenticate each other, or bytes were changed on their way; the owner has
     * to close the stream. After changed bytes the connection is reset, so that the other end knows
     * that this process still runs. `why` is a phrase about the other end, such as "it has no
     * secret". */
    void (*on_refused)(void *arg, enum secure_failure failure, const char *why);
};

/* Creates a stream, which does not connect yet. Copies `host` and `run_id`; `ring` and `events`
 * must live until on_close. If `ring` is NULL, the connection is not authenticated. Returns NULL
 * when memory is short. */
struct secured_stream *secured_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                                          struct secure_ring *ring, const char *run_id,
                                          const struct secured_stream_events *events, void *arg);

/* The functions below do what those of tcp_stream_internal.h do. A stream connects only once. */
void secured_stream_open(struct secured_stream *s);
void secured_stream_send(struct secured_stream *s, const void *data, size_t len);
void secured_stream_flush(struct secured_stream *s);
void secured_stream_close(struct secured_stream *s, void (*on_close)(void *arg), void *arg);

#endif
