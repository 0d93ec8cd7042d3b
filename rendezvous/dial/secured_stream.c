/* Implements secured_stream_internal.h.
 *
 * With MUNGE, a thread of libuv's pool makes the tunnel, because munged may take up to 0.5 s to
 * make the credential in it. The loop serves everything else meanwhile. */
#include "rendezvous/dial/secured_stream_internal.h"

#include "base/buffer.h"
#include "rendezvous/dial/stranger_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_OF_MEMORY "out of memory"
/* Most bytes that are kept from the other end before the tunnel exists. A coordinator sends nothing
 * before it has the first handshake message, so these bytes only show which other program it is. */
#define EARLY_MAX     ((size_t) 1024)

/* The making of a tunnel on another thread, which writes `tunnel`, `rc` and `err`. */
struct making {
    uv_work_t work;
    struct secured_stream *stream;
    struct secure_tunnel *tunnel;
    int rc;
    struct cr_error err;
    char own_addr[RDZV_ADDR_MAX], peer_addr[RDZV_ADDR_MAX];
};

struct secured_stream {
    uv_loop_t *loop;
    struct tcp_stream *tcp; /* NULL once it is closed */
    struct secure_ring *ring;
    char *run_id;
    const struct secured_stream_events *events;
    void *arg;
    struct making *making;          /* the making of the tunnel that is under way, or NULL */
    struct secure_tunnel *tunnel; /* NULL until it is made, and if `ring` is NULL */
    struct cr_buffer early;         /* bytes that came before the tunnel was made */
    struct cr_buffer waiting;       /* plain text to send once the tunnel is open */
    bool is_over;                   /* true: the owner knows that the stream is refused or lost; no
                                     * event follows */
    bool is_closing;                /* true: secured_stream_close() was called */
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
    s->is_over = true;
    if (failure == SECURE_CHANGED) tcp_stream_reset(s->tcp);
    s->events->on_refused(s->arg, failure, why);
}

static void take_bytes(struct secured_stream *s, const char *data, size_t len) {
    secure_tunnel_receive(s->tunnel, data, len);
    struct cr_buffer *in = secure_tunnel_in(s->tunnel);
    send_waiting(s);
    send_sealed(s);
    if (in->len > 0) s->events->on_data(s->arg, in->data, in->len);
    cr_buffer_clear(in);
    if (secure_tunnel_state(s->tunnel) == SECURE_FAILED) refuse(s);
}

/* Call this when the tunnel is made, or could not be made: in that case `rc` is negative, and `err`
 * says why. */
static void begin(struct secured_stream *s, int rc, const struct cr_error *err,
                  const char *own_addr, const char *peer_addr) {
    if (rc < 0) {
        s->is_over = true;
        s->events->on_refused(s->arg, SECURE_NO_SECRET, err->text);
        return;
    }
    if (s->tunnel != NULL) send_sealed(s);
    s->events->on_open(s->arg, own_addr, peer_addr);
    if (s->early.len > 0 && !s->is_closing) take_bytes(s, s->early.data, s->early.len);
    cr_buffer_done(&s->early);
}

/* ---- making the tunnel on another thread ---- */

static void finish_closing(struct secured_stream *s);

static void make_tunnel(uv_work_t *work) {
    struct making *m = work->data;
    const struct secured_stream *s = m->stream;
    m->rc = secure_ring_connect(s->ring, SECURE_MEMBER, s->run_id, &m->tunnel, &m->err);
}

static void on_made(uv_work_t *work, int status) {
    struct making *m = work->data;
    struct secured_stream *s = m->stream;
    s->making = NULL;
    if (status == 0 && !s->is_closing && !s->is_over) {
        s->tunnel = m->tunnel;
        begin(s, m->rc, &m->err, m->own_addr, m->peer_addr);
    } else {
        secure_tunnel_free(m->tunnel);
        if (s->is_closing) finish_closing(s);
    }
    free(m);
}

/* Passes the making of the tunnel to the pool. Returns 0 or -ENOMEM. */
static int begin_later(struct secured_stream *s, const char *own_addr, const char *peer_addr) {
    struct making *m = calloc(1, sizeof(*m));
    if (m == NULL) return -ENOMEM;
    m->stream = s;
    m->work.data = m;
    (void) snprintf(m->own_addr, sizeof(m->own_addr), "%s", own_addr);
    (void) snprintf(m->peer_addr, sizeof(m->peer_addr), "%s", peer_addr);
    s->making = m;
    (void) uv_queue_work(s->loop, &m->work, make_tunnel, on_made);
    return 0;
}

/* ---- the events of the connection ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct secured_stream *s = arg;
    struct cr_error err = {0};
    int rc = 0;
    if (s->ring != NULL && secure_ring_is_munge(s->ring)) {
        if (begin_later(s, own_addr, peer_addr) < 0) tcp_stream_break(s->tcp, OUT_OF_MEMORY);
        return;
    }
    if (s->ring != NULL) {
        rc = secure_ring_connect(s->ring, SECURE_MEMBER, s->run_id, &s->tunnel, &err);
    }
    begin(s, rc, &err, own_addr, peer_addr);
}

/* Keeps bytes until the tunnel is made, at most EARLY_MAX. */
static void keep_early(struct secured_stream *s, const char *data, size_t len) {
    size_t room = EARLY_MAX - s->early.len;
    if (cr_buffer_append(&s->early, data, len < room ? len : room) < 0) {
        tcp_stream_break(s->tcp, OUT_OF_MEMORY);
    }
}

static void on_data(void *arg, const char *data, size_t len) {
    struct secured_stream *s = arg;
    if (s->is_over) return;
    if (s->making != NULL) keep_early(s, data, len);
    else if (s->tunnel == NULL) s->events->on_data(s->arg, data, len);
    else take_bytes(s, data, len);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct secured_stream *s = arg;
    if (s->is_over) return;
    s->is_over = true;
    s->events->on_lost(s->arg, how, why);
}

static const struct tcp_stream_events tcp_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost};

/* ---- the owner's calls ---- */

static void secured_stream_free(struct secured_stream *s) {
    secure_tunnel_free(s->tunnel);
    cr_buffer_done(&s->early);
    cr_buffer_done(&s->waiting);
    free(s->run_id);
    free(s);
}

struct secured_stream *secured_stream_new(uv_loop_t *loop, const char *host, uint16_t port,
                                          struct secure_ring *ring, const char *run_id,
                                          const struct secured_stream_events *events, void *arg) {
    struct secured_stream *s = calloc(1, sizeof(*s));
    if (s == NULL) return NULL;
    *s = (struct secured_stream){.loop = loop, .ring = ring, .events = events, .arg = arg};
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

/* Frees a stream that the owner has closed, once its connection is closed and no thread makes its
 * tunnel any more. */
static void finish_closing(struct secured_stream *s) {
    if (s->tcp != NULL || s->making != NULL) return;
    void (*on_close)(void *) = s->on_close;
    void *owner = s->on_close_arg;
    secured_stream_free(s);
    on_close(owner);
}

static void on_tcp_closed(void *arg) {
    struct secured_stream *s = arg;
    s->tcp = NULL;
    finish_closing(s);
}

void secured_stream_close(struct secured_stream *s, void (*on_close)(void *arg), void *arg) {
    s->is_closing = true;
    s->on_close = on_close;
    s->on_close_arg = arg;
    if (s->tunnel != NULL && secure_tunnel_is_open(s->tunnel)) secured_stream_flush(s);
    if (s->making != NULL) (void) uv_cancel((uv_req_t *) &s->making->work);
    tcp_stream_close(s->tcp, on_tcp_closed, s);
}
