/* The connections of nodes and operators to a host. Each has a host_session, which handles the
 * protocol, and a transport. The transport of a remote node or an operator is a TCP connection;
 * that of a node of this process is the pair of buffers in rendezvous/way/local_way.c. */
#include "rendezvous/host/host_internal.h"

#include "base/log/log.h"
#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* how many bytes may wait to be sent to one peer; if there are more, its connection is closed */
#define UNREAD_MAX ((size_t) 1 << 20)
/* how many bytes may wait to be sent to an operator who has ordered an inspection; the limit is
 * larger, because all rows come at once */
#define UNREAD_ROWS_MAX ((size_t) 32 << 20)

/* how many bytes may wait to be sent to a relay, which has up to 64 members */
#define UNREAD_RELAY_MAX ((size_t) 16 << 20)

void host_peer_mark(struct host_peer *peer) {
    struct coordinator_host *host = peer->host;
    if (peer->is_unsent) return;
    peer->is_unsent = true;
    LIST_INSERT_HEAD(peer->trunk != NULL ? &host->unsent_relays : &host->unsent, peer,
                     unsent_entry);
}

void host_peer_send(struct host_peer *peer, const struct rdzv_message *m) {
    if (peer->is_relayed && host_relay_keeps(peer, m)) return;
    host_session_send(&peer->session, host_now_ms(peer->host), m);
    host_peer_mark(peer);
}

void host_peer_hang_up(struct host_peer *peer) {
    peer->seat = NULL;
    host_session_hang_up(&peer->session, host_now_ms(peer->host));
    host_peer_mark(peer);
}

/* ---- the session's actions ---- */

static int on_hello(void *arg, const struct rdzv_hello *hello, struct cr_error *err) {
    struct host_peer *peer = arg;
    int rc = host_check_member(peer, hello->run_id, err);
    if (rc < 0) return rc;
    rc = host_connect_job(peer, hello->run_id, err);
    if (rc < 0) return rc;
    peer->named_epoch = hello->epoch;
    return 0;
}

static struct host_session_verdict judge(void *arg, const struct rdzv_hello *hello) {
    const struct host_peer *peer = arg;
    /* `serves` is true so that on_hello() is called and refuses the node: a node without the right
     * key must not learn who leads the job */
    if (host_check_member(peer, hello->run_id, NULL) < 0)
        return (struct host_session_verdict){.serves = true};
    return job_table_judge(&peer->host->jobs, host_now_ms(peer->host), hello);
}

static void on_leads(void *arg, const struct rdzv_leads *leads) {
    const struct host_peer *peer = arg;
    struct coordinator_host *host = peer->host;
    struct cr_error err = {0};
    struct host_job *job;
    bool names_host = leads->addr[0] != '\0' && leads->port >= 1 && leads->port <= UINT16_MAX;
    if (host_check_member(peer, leads->run_id, NULL) < 0) return;
    if (!host->jobs.allows_heirs || !names_host) return;
    if (host_get_job(host, peer, leads->run_id, &job, &err) < 0) return;
    job_table_hear_leader(job, leads->epoch, leads->addr, (uint16_t) leads->port);
}

static int on_join(void *arg, const struct rdzv_join *join) {
    struct host_peer *peer = arg;
    host_note_addresses(peer, join);
    peer->seat =
        coordinator_join(peer->job->coordinator, host_now_ms(peer->host), peer, peer->local, join);
    if (peer->seat != NULL) job_table_admitted(peer->job, peer->named_epoch);
    return peer->seat != NULL ? 0 : -EACCES;
}

static int on_resume(void *arg, const struct rdzv_resume *resume) {
    struct host_peer *peer = arg;
    struct rdzv_join join;
    rdzv_join_of_resume(resume, &join);
    host_note_addresses(peer, &join);
    peer->seat =
        coordinator_resume(peer->job->coordinator, host_now_ms(peer->host), peer, resume);
    if (peer->seat != NULL) job_table_admitted(peer->job, peer->named_epoch);
    return peer->seat != NULL ? 0 : -EACCES;
}

static int on_message(void *arg, const struct rdzv_message *m, struct cr_error *err) {
    struct host_peer *peer = arg;
    if (m->type == RDZV_FAILURE) return host_pass_failure(peer, &m->failure), 0;
    if (m->type == RDZV_BEAT) {
        host_note_clock(peer, m->beat.wall_ns);
        peer->member.rounds_over = m->beat.rounds_over;
        peer->member.rounds_seen = m->beat.rounds_seen;
    }
    uint64_t inspection = m->type == RDZV_ROW         ? m->row.id
                          : m->type == RDZV_INSPECTED ? m->inspected.id
                                                      : RDZV_INSPECTION_OF_HANG;
    bool is_for_operator = (inspection & RDZV_INSPECTION_OF_HANG) == 0;
    if (is_for_operator) return host_pass_row(peer, m), 0;
    if (m->type == RDZV_JOIN) host_note_addresses(peer, &m->join);
    return coordinator_receive(peer->job->coordinator, host_now_ms(peer->host), peer->seat, m, err);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct host_peer *peer = arg;
    struct coordinator_seat *seat = peer->seat;
    int64_t now_ms = host_now_ms(peer->host);
    peer->seat = NULL;
    if (seat == NULL) return;
    if (how == RENDEZVOUS_BROKEN) coordinator_suspend(peer->job->coordinator, now_ms, seat, why);
    else coordinator_lost(peer->job->coordinator, now_ms, seat, why);
}

static void on_status(void *arg) { host_answer_status(arg); }

static int on_operate(void *arg, const struct rdzv_operate *what, struct cr_error *err) {
    return host_answer_operate(arg, what, err);
}

static void on_log(void *arg, enum cr_log_level level, const char *text) {
    const struct host_peer *peer = arg;
    host_log(peer->host, level, text);
}

static const struct host_session_actions session_actions = {
    .judge = judge, .on_leads = on_leads,
    .on_hello = on_hello, .on_join = on_join, .on_resume = on_resume,
    .on_relay = host_on_relay, .on_trunk = host_on_trunk,
    .on_message = on_message, .on_lost = on_lost, .on_status = on_status,
    .on_operate = on_operate, .log = on_log};

/* ---- adding and closing peers ---- */

struct host_peer *host_peer_new(struct coordinator_host *host, bool local) {
    struct host_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) return NULL;
    peer->host = host;
    peer->local = local;
    peer->offset_error_ns = local ? 0 : -1;
    LIST_INSERT_HEAD(&host->peers, peer, entry);
    host_session_open(&peer->session, host_now_ms(host), local, &host->terms, &session_actions,
                      peer);
    host_peer_mark(peer);
    return peer;
}

void host_peer_free(struct host_peer *peer) {
    if (peer->is_unsent) LIST_REMOVE(peer, unsent_entry);
    if (peer->job != NULL) job_table_disconnect(peer->job, host_now_ms(peer->host));
    LIST_REMOVE(peer, entry);
    host_session_done(&peer->session);
    cr_network_list_done(&peer->addresses);
    host_trunk_free(peer->trunk);
    if (peer->wire != NULL) {
        if (peer->host->store != NULL) store_server_given_back(peer->host->store);
        secure_tunnel_free(peer->wire->tunnel);
        cr_buffer_done(&peer->wire->writing);
        free(peer->wire);
    }
    free(peer);
}

void host_peer_handle_closed(struct host_peer *peer) {
    if (--peer->wire->open_handles == 0) host_peer_free(peer);
}

static void on_peer_closed(uv_handle_t *handle) {
    struct host_peer *peer = handle->data;
    struct coordinator_host *host = peer->host;
    host_peer_handle_closed(peer);
    host_end_event(host);
}

void host_peer_close(struct host_peer *peer, enum rendezvous_loss how, const char *why) {
    if (peer->closing) return;
    peer->closing = true;
    host_session_lost(&peer->session, host_now_ms(peer->host), how, why);
    if (peer->is_relayed) {
        host_peer_mark(peer); /* host_flush_relayed() frees it */
        return;
    }
    host_relay_lost(peer, why);
    struct host_wire *w = peer->wire;
    if (!w->resets || uv_tcp_close_reset(&w->tcp, on_peer_closed) < 0) {
        uv_close((uv_handle_t *) &w->tcp, on_peer_closed);
    }
    uv_close((uv_handle_t *) &w->timer, on_peer_closed);
}

void host_peer_forget(struct host_peer *peer, const char *why) {
    peer->job = NULL;
    host_peer_hang_up(peer);
    host_peer_close(peer, RENDEZVOUS_CLOSED, why);
}

void host_peer_say_goodbye(struct host_peer *peer, const char *why) {
    struct rdzv_message m = {.type = RDZV_GOODBYE};
    m.goodbye.why = why;
    if (peer->local || peer->closing || peer->seat == NULL) return;
    host_peer_send(peer, &m);
    if (peer->is_relayed) host_push_relayed(peer);
    host_peer_flush(peer->is_relayed ? host_relay_of(peer) : peer);
}

/* Closes the connection after the error `rc`. EPIPE means that the node has closed the connection.
 * With every other error the node may still run, because the network may be the cause. */
static void broken(struct host_peer *peer, int rc) {
    host_peer_close(peer, rc == UV_EPIPE ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN, uv_strerror(rc));
}

/* ---- nodes of this process ---- */

struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg) {
    struct host_peer *peer = host_peer_new(host, true);
    if (peer == NULL) return NULL;
    peer->deliver = deliver;
    peer->deliver_arg = arg;
    return peer;
}

void host_peer_receive(struct host_peer *peer, const char *data, size_t len) {
    struct coordinator_host *host = peer->host;
    host_session_receive(&peer->session, host_now_ms(host), data, len);
    host_peer_mark(peer);
    host_end_event(host);
}

void host_peer_gone(struct host_peer *peer, const char *why) {
    struct coordinator_host *host = peer->host;
    host_session_lost(&peer->session, host_now_ms(host), RENDEZVOUS_CLOSED, why);
    host_peer_free(peer);
    host_end_event(host);
}

static void flush_local(struct host_peer *peer) {
    struct cr_buffer *out = &peer->session.out;
    if (out->len > 0) peer->deliver(peer->deliver_arg, out->data, out->len);
    cr_buffer_clear(out);
    if (peer->session.state >= HOST_SESSION_CLOSING) peer->deliver(peer->deliver_arg, NULL, 0);
}

/* ---- remote nodes: reading ---- */

#define READ_MAX 65536 /* how many bytes one read takes from a connection at most */

/* All connections use the host's one read buffer, because on_read() handles all bytes before the
 * next read. The buffer is allocated here, because a host without nodes in other processes needs
 * none. If memory is short, libuv calls on_read() with UV_ENOBUFS. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void) suggested;
    struct coordinator_host *host = ((struct host_peer *) handle->data)->host;
    if (host->read_buffer == NULL) host->read_buffer = malloc(READ_MAX);
    *buf = uv_buf_init(host->read_buffer, READ_MAX);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct host_peer *peer = stream->data;
    struct coordinator_host *host = peer->host;
    if (n > 0) host_receive(peer, buf->base, (size_t) n);
    else if (n == UV_EOF) host_peer_close(peer, RENDEZVOUS_CLOSED, "its connection was closed");
    else if (n < 0) broken(peer, (int) n);
    host_peer_mark(peer);
    host_end_event(host);
}

/* Adds a peer with a TCP connection, whose handles are not initialised yet. */
static struct host_peer *new_wired(struct coordinator_host *host) {
    struct host_wire *wire = calloc(1, sizeof(*wire));
    struct host_peer *peer = wire != NULL ? host_peer_new(host, false) : NULL;
    if (peer == NULL) {
        free(wire);
        return NULL;
    }
    wire->armed_ms = CR_FOREVER;
    peer->wire = wire;
    return peer;
}

void host_add_remote(struct coordinator_host *host, int fd, const char *data, size_t len) {
    struct host_peer *peer = new_wired(host);
    if (peer == NULL) {
        (void) close(fd);
        return;
    }
    struct host_wire *w = peer->wire;
    (void) uv_tcp_init(host->loop, &w->tcp);
    (void) uv_timer_init(host->loop, &w->timer);
    w->tcp.data = w->timer.data = w->write.data = peer;
    w->open_handles = 2;
    int rc = uv_tcp_open(&w->tcp, fd);
    if (rc < 0) (void) close(fd);
    if (rc == 0) rc = host_open_tunnel(peer);
    if (rc == 0) rc = uv_read_start((uv_stream_t *) &w->tcp, on_alloc, on_read);
    if (rc < 0) broken(peer, rc);
    else host_receive(peer, data, len);
}

/* ---- remote nodes: the session's deadline ---- */

static void on_peer_timer(uv_timer_t *timer) {
    struct host_peer *peer = timer->data;
    struct coordinator_host *host = peer->host;
    peer->wire->armed_ms = CR_FOREVER;
    host_session_tick(&peer->session, host_now_ms(host));
    if (peer->trunk != NULL) trunk_end_tick(&peer->trunk->end, host_now_ms(host));
    host_peer_mark(peer);
    host_end_event(host);
}

static void arm_peer_timer(struct host_peer *peer) {
    int64_t when_ms = host_session_deadline(&peer->session), now_ms = host_now_ms(peer->host);
    int64_t members_ms =
        peer->trunk != NULL ? trunk_end_deadline(&peer->trunk->end) : CR_FOREVER;
    struct host_wire *w = peer->wire;
    if (members_ms < when_ms) when_ms = members_ms;
    if (when_ms == w->armed_ms) return;
    w->armed_ms = when_ms;
    if (when_ms == CR_FOREVER) {
        (void) uv_timer_stop(&w->timer);
    } else {
        (void) uv_timer_start(&w->timer, on_peer_timer,
                              when_ms > now_ms ? (uint64_t) (when_ms - now_ms) : 0, 0);
    }
}

/* ---- remote nodes: writing ---- */

static void on_written(uv_write_t *req, int status) {
    struct host_peer *peer = req->data;
    struct coordinator_host *host = peer->host;
    peer->wire->write_busy = false;
    cr_buffer_done(&peer->wire->writing);
    if (status < 0) broken(peer, status);
    else host_peer_mark(peer);
    host_end_event(host);
}

/* Passes as many of the bytes in `out` to the kernel as it accepts now, and starts a uv_write() for
 * the rest. */
static void peer_write(struct host_peer *peer, struct cr_buffer *out) {
    struct host_wire *w = peer->wire;
    uv_stream_t *stream = (uv_stream_t *) &w->tcp;
    uv_buf_t buf = uv_buf_init(out->data, (unsigned) out->len);
    int n = uv_try_write(stream, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        broken(peer, n);
        return;
    }
    cr_buffer_consume(out, n > 0 ? (size_t) n : 0);
    if (out->len == 0) return;
    struct cr_buffer spare = w->writing;
    w->writing = *out;
    *out = spare;
    buf = uv_buf_init(w->writing.data, (unsigned) w->writing.len);
    w->write_busy = uv_write(&w->write, stream, &buf, 1, on_written) == 0;
    if (!w->write_busy) host_peer_close(peer, RENDEZVOUS_BROKEN, "writing failed");
}

static void on_shut(uv_shutdown_t *req, int status) {
    (void) req;
    /* An error needs no handling: end-of-file from the node or the session's deadline closes the
     * connection in any case. */
    (void) status;
}

static void flush_remote(struct host_peer *peer) {
    const struct host_session *s = &peer->session;
    struct host_wire *w = peer->wire;
    if (peer->closing) return;
    if (s->state == HOST_SESSION_CLOSED) {
        host_peer_close(peer, RENDEZVOUS_CLOSED, "closed");
        return;
    }
    struct cr_buffer *out = host_outgoing(peer);
    if (out == NULL) {
        host_peer_close(peer, RENDEZVOUS_BROKEN, "out of memory");
        return;
    }
    size_t most = s->state == HOST_SESSION_INSPECTING ? UNREAD_ROWS_MAX
                  : peer->trunk != NULL               ? UNREAD_RELAY_MAX
                                                      : UNREAD_MAX;
    if (out->len > most && s->state != HOST_SESSION_CLOSING) {
        host_peer_close(peer, RENDEZVOUS_BROKEN, "it does not read what it is sent");
        return;
    }
    if (out->len > 0 && !w->write_busy) peer_write(peer, out);
    /* everything is sent: frees the memory of a relay's output, which may be large */
    if (out->len == 0 && peer->trunk != NULL) cr_buffer_done(out);
    if (peer->closing) return;
    arm_peer_timer(peer);
    if (s->state != HOST_SESSION_CLOSING || out->len > 0 || w->shut) return;
    w->shut = true; /* libuv shuts down the connection only after the queued writes */
    (void) uv_shutdown(&w->shutdown, (uv_stream_t *) &w->tcp, on_shut);
}

void host_peer_flush(struct host_peer *peer) {
    if (peer->is_unsent) LIST_REMOVE(peer, unsent_entry);
    peer->is_unsent = false;
    if (peer->local) flush_local(peer);
    else if (peer->is_relayed) host_flush_relayed(peer);
    else flush_remote(peer);
}
