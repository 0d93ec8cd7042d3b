/* The connections of the nodes of a relay: the relay's end of their tunnels, and their greeting. */
#include "rendezvous/relay/relay_internal.h"

#include "base/log/log.h"
#include "base/network/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* how many bytes may wait to be sent to one node; if there are more, its connection is reset */
#define UNREAD_MAX  ((size_t) 1 << 20)
/* most bytes before HELLO is complete */
#define HELLO_MAX   (RDZV_MAGIC_LEN + RDZV_FRAME_MAX)

static int64_t now_ms(const struct relay_node *n) { return (int64_t) uv_now(n->owner->loop); }

/* ---- closing ---- */

static void handle_closed(struct relay_node *n) {
    struct rendezvous_relay *owner = n->owner;
    if (--n->open_handles > 0) return;
    LIST_REMOVE(n, entry);
    secure_tunnel_free(n->tunnel);
    cr_buffer_done(&n->in);
    cr_buffer_done(&n->plain);
    cr_buffer_done(&n->writing);
    free(n);
    relay_freed_one(owner);
}

static void on_closed(uv_handle_t *handle) { handle_closed(handle->data); }

static void close_node(struct relay_node *n, bool is_broken) {
    if (n->closing) return;
    n->closing = true;
    if (!is_broken || uv_tcp_close_reset(&n->tcp, on_closed) < 0) {
        uv_close((uv_handle_t *) &n->tcp, on_closed);
    }
    uv_close((uv_handle_t *) &n->timer, on_closed);
}

/* Call this when the node's connection is over or has to end. Closes it, and takes the node from
 * its trunk. */
static void lost(struct relay_node *n, enum rendezvous_loss how) {
    struct relay_trunk *t = n->trunk;
    n->trunk = NULL;
    close_node(n, how == RENDEZVOUS_BROKEN);
    if (t == NULL) return;
    t->nodes[n->place] = NULL;
    relay_lost(&t->core, n->place, how);
    relay_trunk_settle(t);
}

static void on_time_up(uv_timer_t *timer) { lost(timer->data, RENDEZVOUS_CLOSED); }

/* ---- writing ---- */

static void flush(struct relay_node *n);

static void on_written(uv_write_t *req, int status) {
    struct relay_node *n = req->data;
    n->write_busy = false;
    cr_buffer_done(&n->writing);
    if (n->closing) return;
    if (status < 0) lost(n, RENDEZVOUS_BROKEN);
    else flush(n);
}

static void on_shut(uv_shutdown_t *req, int status) {
    /* an error needs no handling: end-of-file from the node or the timer closes the connection */
    (void) req;
    (void) status;
}

/* Returns the buffer with the bytes to send; NULL when memory is short. */
static struct cr_buffer *outgoing(struct relay_node *n) {
    enum secure_state state = secure_tunnel_state(n->tunnel);
    if (state == SECURE_PLAIN) return &n->plain;
    if (state == SECURE_OPEN && n->plain.len > 0 &&
        secure_tunnel_send(n->tunnel, n->plain.data, n->plain.len) < 0)
        return NULL;
    cr_buffer_done(&n->plain);
    return secure_tunnel_out(n->tunnel);
}

static void write_some(struct relay_node *n, struct cr_buffer *out) {
    uv_stream_t *stream = (uv_stream_t *) &n->tcp;
    uv_buf_t buf = uv_buf_init(out->data, (unsigned) out->len);
    int sent = uv_try_write(stream, &buf, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        lost(n, RENDEZVOUS_BROKEN);
        return;
    }
    cr_buffer_consume(out, sent > 0 ? (size_t) sent : 0);
    if (out->len == 0) {
        cr_buffer_done(out);
        return;
    }
    n->writing = *out;
    *out = (struct cr_buffer){0};
    buf = uv_buf_init(n->writing.data, (unsigned) n->writing.len);
    n->write_busy = uv_write(&n->write, stream, &buf, 1, on_written) == 0;
    if (!n->write_busy) lost(n, RENDEZVOUS_BROKEN);
}

static void flush(struct relay_node *n) {
    if (n->closing || n->write_busy) return;
    struct cr_buffer *out = outgoing(n);
    if (out == NULL || out->len > UNREAD_MAX) lost(n, RENDEZVOUS_BROKEN);
    else if (out->len > 0) write_some(n, out);
    if (n->closing || n->write_busy || !n->ends || n->is_shut) return;
    n->is_shut = true;
    (void) uv_shutdown(&n->shutdown, (uv_stream_t *) &n->tcp, on_shut);
}

void relay_node_send(struct relay_node *n, const void *data, size_t len) {
    if (cr_buffer_append(&n->plain, data, len) < 0 || n->plain.len > UNREAD_MAX) {
        lost(n, RENDEZVOUS_BROKEN);
        return;
    }
    flush(n);
}

void relay_node_end(struct relay_node *n, bool is_broken) {
    n->ends = true;
    if (is_broken) {
        close_node(n, true);
        return;
    }
    flush(n);
    if (n->closing) return;
    (void) uv_timer_start(&n->timer, on_time_up, (uint64_t) SESSION_LINGER_MS, 0);
}

/* ---- the greeting ---- */

/* Sends REFUSED with the reason `why`, and ends the node's connection. */
static void refuse(struct relay_node *n, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){.version_min = RDZV_VERSION_MIN,
                                      .version_max = RDZV_VERSION_MAX, .why = why};
    (void) rdzv_message_encode(&m, RDZV_VERSION_MIN, &n->plain);
    relay_node_end(n, false);
}

static void format_peer(const struct relay_node *n, char out[RDZV_ADDR_MAX]) {
    struct sockaddr_storage from;
    int len = sizeof(from);
    struct cr_ip ip;
    out[0] = '\0';
    if (uv_tcp_getpeername(&n->tcp, (struct sockaddr *) &from, &len) < 0) return;
    if (cr_address_ip((struct sockaddr *) &from, &ip)) cr_ip_format(&ip, out);
}

/* Returns whether the node has shown that it has the key of a member of the job. */
static bool is_member(const struct relay_node *n, const char *run_id) {
    if (n->owner->ring == NULL) return true;
    return secure_tunnel_role(n->tunnel) == SECURE_MEMBER &&
           strcmp(secure_tunnel_run_id(n->tunnel), run_id) == 0;
}

static void got_hello(struct relay_node *n, const struct rdzv_hello *hello) {
    char addr[RDZV_ADDR_MAX];
    format_peer(n, addr);
    if (!is_member(n, hello->run_id)) {
        refuse(n, "the node does not have the key of this job");
        return;
    }
    if (relay_trunk_add(n, hello->run_id, addr) < 0) {
        lost(n, RENDEZVOUS_CLOSED);
        return;
    }
    (void) uv_timer_stop(&n->timer);
    struct cr_buffer in = n->in;
    n->in = (struct cr_buffer){0};
    relay_receive(&n->trunk->core, now_ms(n), n->place, in.data + RDZV_MAGIC_LEN,
                  in.len - RDZV_MAGIC_LEN);
    cr_buffer_done(&in);
    relay_trunk_settle(n->trunk);
}

/* Handles the bytes received so far, until HELLO is complete. */
static void greet(struct relay_node *n) {
    struct rdzv_message m;
    struct cr_error err = {0};
    size_t used = 0, have = n->in.len;
    if (have < RDZV_MAGIC_LEN) return;
    bool is_ours = memcmp(n->in.data, RDZV_MAGIC, RDZV_MAGIC_LEN) == 0;
    int rc = is_ours ? rdzv_message_decode(n->in.data + RDZV_MAGIC_LEN, have - RDZV_MAGIC_LEN, &m,
                                           &used, &err)
                     : -EPROTO;
    if (!is_ours || have > HELLO_MAX) lost(n, RENDEZVOUS_CLOSED);
    else if (rc < 0) refuse(n, err.text);
    else if (used > 0 && m.type == RDZV_HELLO) got_hello(n, &m.hello);
    else if (used > 0) refuse(n, "a relay carries nodes only; ask the coordinator itself");
}

/* ---- reading ---- */

static void got_plain(struct relay_node *n, const char *data, size_t len) {
    if (n->ends) return;
    if (n->trunk != NULL) {
        struct relay_trunk *t = n->trunk;
        relay_receive(&t->core, now_ms(n), n->place, data, len);
        relay_trunk_settle(t);
    } else if (cr_buffer_append(&n->in, data, len) < 0) {
        lost(n, RENDEZVOUS_BROKEN);
    } else {
        greet(n);
    }
}

static void agree(struct relay_node *n);

/* Handles the bytes that have come through the tunnel, sends those that wait in it, and ends the
 * connection if the tunnel has failed. */
static void settle(struct relay_node *n) {
    struct cr_buffer *in = secure_tunnel_in(n->tunnel);
    struct cr_buffer plain = *in;
    *in = (struct cr_buffer){0};
    if (plain.len > 0) got_plain(n, plain.data, plain.len);
    cr_buffer_done(&plain);
    if (n->closing) return;
    if (secure_tunnel_state(n->tunnel) == SECURE_AGREE) agree(n);
    if (secure_tunnel_state(n->tunnel) != SECURE_FAILED || n->ends) {
        flush(n);
        return;
    }
    enum secure_failure why = secure_tunnel_failure(n->tunnel);
    cr_debug("relay: refused a node: %s", secure_failure_text(why, true));
    if (n->trunk != NULL) lost(n, RENDEZVOUS_BROKEN);
    else relay_node_end(n, why == SECURE_CHANGED || why == SECURE_MEMORY);
}

static void compute(uv_work_t *work) {
    const struct relay_node *n = work->data;
    secure_tunnel_agree(n->tunnel);
}

static void on_computed(uv_work_t *work, int status) {
    struct relay_node *n = work->data;
    n->agrees = false;
    if (!n->closing && status == 0) {
        secure_tunnel_agreed(n->tunnel);
        settle(n);
    }
    handle_closed(n);
}

/* Lets a thread of libuv's pool check the node's credential and answer its handshake, because
 * munged may take up to 0.5 s. */
static void agree(struct relay_node *n) {
    if (n->agrees) return;
    n->agrees = true;
    n->open_handles++;
    (void) uv_queue_work(n->owner->loop, &n->work, compute, on_computed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void) suggested;
    struct rendezvous_relay *owner = ((struct relay_node *) handle->data)->owner;
    *buf = uv_buf_init(owner->read_buffer, sizeof(owner->read_buffer));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct relay_node *node = stream->data;
    if (n > 0) {
        secure_tunnel_receive(node->tunnel, buf->base, (size_t) n);
        settle(node);
    } else if (n < 0) {
        lost(node, n == UV_EOF ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN);
    }
}

/* ---- accepting ---- */

static int open_tunnel(struct relay_node *n) {
    struct secure_ring *ring = n->owner->ring;
    int rc = secure_accept(ring != NULL ? secure_ring_keys(ring) : NULL, &n->tunnel, NULL);
    if (rc == 0 && ring != NULL && secure_ring_is_munge(ring)) secure_tunnel_defer(n->tunnel);
    return rc;
}

int relay_node_accept(struct rendezvous_relay *relay) {
    struct relay_node *n = calloc(1, sizeof(*n));
    if (n == NULL) return -ENOMEM;
    n->owner = relay;
    (void) uv_tcp_init(relay->loop, &n->tcp);
    (void) uv_timer_init(relay->loop, &n->timer);
    n->tcp.data = n->timer.data = n->write.data = n->work.data = n;
    n->open_handles = 2;
    LIST_INSERT_HEAD(&relay->nodes, n, entry);
    int rc = uv_accept((uv_stream_t *) &relay->listener, (uv_stream_t *) &n->tcp);
    if (rc == 0) rc = open_tunnel(n);
    if (rc == 0) rc = uv_read_start((uv_stream_t *) &n->tcp, on_alloc, on_read);
    if (rc < 0) {
        close_node(n, true);
        return 0;
    }
    (void) uv_tcp_nodelay(&n->tcp, 1);
    (void) uv_timer_start(&n->timer, on_time_up, (uint64_t) SESSION_GREETING_MS, 0);
    return 0;
}
