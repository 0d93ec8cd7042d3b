/* Implements secured_stream_internal.h. */
#include "rendezvous/dial/secured_stream_internal.h"

#include "base/buffer.h"
#include "rendezvous/dial/stranger_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY "out of memory"

struct secured_stream {
    struct tcp_stream *tcp;
    struct secure_ring *ring;
    char *run_id;
    const struct secured_stream_events *events;
    void *arg;
    struct secure_tunnel *tunnel; /* NULL until connected, and if `ring` is NULL */
    struct cr_buffer waiting;       /* plain text to send once the tunnel is open */
    bool is_refused;                /* true: on_refused was called; no event follows */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- sending ---- */

/* Passes the bytes in the tunnel's queue to the TCP stream, and sends them. */
static void send_sealed(struct secured_stream *s) {
    struct cr_buffer *out = secure_tunnel_out(s->tunnel);
    tcp_stream_send(s->tcp, out->data, out->len);
    tcp_stream_flush(s->tcp);
    cr_buffer_clear(out);
}

/* If the other end is authenticated, seals the bytes of s->waiting into the tunnel's queue, and
 * empties s->waiting. Otherwise does nothing. */
static void send_waiting(struct secured_stream *s) {
    if (!secure_tunnel_is_open(s->tunnel) || s->waiting.len == 0) return;
    if (secure_tunnel_send(s->tunnel, s->waiting.data, s->waiting.len) < 0) {
        tcp_stream_break(s->tcp, OUT_OF_MEMORY);
    }
    cr_buffer_clear(&s->waiting);
}

/* ---- the handshake ---- */

/* Begins the handshake of a new connection. Returns 0, or a negative errno and a text in err. */
static int begin(struct secured_stream *s, struct cr_error *err) {
    return secure_ring_connect(s->ring, SECURE_MEMBER, s->run_id, &s->tunnel, err);
}

/* Reports that the tunnel has failed. If the coordinator has another secret, the next connection
 * tries the next key of the token file. */
static void refuse(struct secured_stream *s) {
    enum secure_failure failure = secure_tunnel_failure(s->tunnel);
    const struct cr_buffer *raw = secure_tunnel_raw(s->tunnel);
    char why[192];
    if (failure == SECURE_WRONG_KEY) secure_ring_refused(s->ring);
    if (failure == SECURE_STRANGE) {
        (void) snprintf(why, sizeof(why), "it is not a crun: %s",
                        stranger_name(raw->data, raw->len));
    } else {
        (void) snprintf(why, sizeof(why), "%s", secure_failure_text(failure, false));
    }
    s->is_refused = true;
    if (failure == SECURE_CHANGED) tcp_stream_reset(s->tcp);
    s->events->on_refused(s->arg, failure, why);
}

/* ---- the events of the connection ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct secured_stream *s = arg;
    struct cr_error err = {0};
    if (s->ring != NULL && begin(s, &err) < 0) {
        s->is_refused = true;
        s->events->on_refused(s->arg, SECURE_NO_SECRET, err.text);
        return;
    }
    if (s->tunnel != NULL) send_sealed(s);
    s->events->on_open(s->arg, own_addr, peer_addr);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct secured_stream *s = arg;
    if (s->is_refused) return;
    if (s->tunnel == NULL) {
        s->events->on_data(s->arg, data, len);
        return;
    }
    secure_tunnel_receive(s->tunnel, data, len);
    struct cr_buffer *in = secure_tunnel_in(s->tunnel);
    send_waiting(s);
    send_sealed(s);
    if (in->len > 0) s->events->on_data(s->arg, in->data, in->len);
    cr_buffer_clear(in);
    if (secure_tunnel_state(s->tunnel) == SECURE_FAILED) refuse(s);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct secured_stream *s = arg;
    if (!s->is_refused) s->events->on_lost(s->arg, how, why);
}

static const struct tcp_stream_events tcp_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost};

/* ---- the owner's calls ---- */

static void secured_stream_free(struct secured_stream *s) {
    secure_tunnel_free(s->tunnel);
    cr_buffer_done(&s->waiting);
    free(s->run_id);
    free(s);
}

struct secured_stream *secured_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                                          struct secure_ring *ring, const char *run_id,
                                          const struct secured_stream_events *events, void *arg) {
    struct secured_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    *s = (struct secured_stream){.ring = ring, .events = events, .arg = arg};
    s->run_id = strdup(run_id);
    if (s->run_id != NULL) s->tcp = tcp_stream_new(loop, host, port, &tcp_events, s);
    if (s->tcp != NULL) return s;
    secured_stream_free(s);
    return NULL;
}

void secured_stream_open(struct secured_stream *s) { tcp_stream_open(s->tcp); }

void secured_stream_send(struct secured_stream *s, const void *data, size_t len) {
    if (s->ring == NULL) {
        tcp_stream_send(s->tcp, data, len);
    } else if (s->tunnel != NULL && cr_buffer_append(&s->waiting, data, len) < 0) {
        tcp_stream_break(s->tcp, OUT_OF_MEMORY);
    }
}

void secured_stream_flush(struct secured_stream *s) {
    if (s->tunnel != NULL) {
        send_waiting(s);
        send_sealed(s);
    }
    tcp_stream_flush(s->tcp);
}

static void on_tcp_closed(void *arg) {
    struct secured_stream *s = arg;
    void (*on_close)(void *) = s->on_close;
    void *owner = s->on_close_arg;
    secured_stream_free(s);
    on_close(owner);
}

void secured_stream_close(struct secured_stream *s, void (*on_close)(void *arg), void *arg) {
    s->on_close = on_close;
    s->on_close_arg = arg;
    if (s->tunnel != NULL && secure_tunnel_is_open(s->tunnel)) secured_stream_flush(s);
    tcp_stream_close(s->tcp, on_tcp_closed, s);
}
