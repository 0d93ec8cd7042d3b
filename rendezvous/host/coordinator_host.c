/* Jobs, peers and time around the coordinators. Connections of remote nodes come from the store's
 * thread (they knock at its port with our magic) and live on the agent's loop from then on.
 *
 * A coordinator never frees a peer: it marks one as hung up, and settle(), which ends every event,
 * flushes what was said and closes what is over. */
#include "rendezvous/host/coordinator_host.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "rendezvous/protocol/message.h"
#include "rendezvous/rendezvous.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GREETING_MS   10000         /* from connecting to JOIN */
#define LINGER_MS     2000          /* for a node that was hung up on to hang up too */
#define UNREAD_MAX    ((size_t) 1 << 20) /* bytes that a node leaves unread */
#define READ_MAX      ((size_t) 65536)

/* One job: a coordinator and the key space of its current round. */
struct host_job {
    struct host_job *next;
    struct coordinator_host *host;
    char *run_id;
    struct coordinator *coordinator;
    struct store_space *space;
    uint32_t peers;     /* connections about this job */
    int64_t forget_ms;  /* with nobody connected until then, the job is forgotten */
};

/* One node that speaks to us. */
struct host_peer {
    struct host_peer *next, **link;        /* in host->peers */
    struct host_peer *next_dirty;
    struct coordinator_host *host;
    struct host_job *job;          /* NULL before HELLO */
    struct coordinator_seat *seat; /* NULL before JOIN, and after the coordinator hung up */
    struct cr_buffer in, out;
    int local, has_magic, dirty;
    int hung_up;                   /* we said all we have to say */

    /* a node of this process */
    void (*deliver)(void *arg, const char *data, size_t len);
    void *deliver_arg;

    /* a remote node */
    uv_tcp_t tcp;
    uv_timer_t timer; /* time to say JOIN, then to hang up */
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct cr_buffer writing; /* what the kernel has not taken yet */
    int write_busy, lingers, shut, closing, open_handles;
};

/* A connection on its way from the store's thread to ours. */
struct handoff {
    struct handoff *next;
    int fd;
    size_t len;
    char data[];
};

struct coordinator_host {
    uv_loop_t *loop;
    struct store_server *store;
    struct store_space *door; /* where nodes knock, unless the rounds' own fixed port is it */
    char *store_host;
    char store_addr[RDZV_ADDR_MAX];
    uint16_t store_port;
    int64_t close_timeout_ms;
    int leads;       /* nodes are welcome */
    uint64_t epoch;  /* of an elected host */

    struct store_space *spare; /* opened ahead for the first round, with its port */
    uint16_t spare_port, door_port;
    struct host_job *jobs;
    struct host_peer *peers, *dirty;

    uv_mutex_t lock; /* of these two */
    struct handoff *handoffs;
    int listens; /* `knock` exists */
    uv_async_t knock;
    uv_timer_t timer; /* the jobs' next deadline; when closing, the end of patience */
    char read_buffer[READ_MAX];

    int closing, finished, open_handles;
    char why[256];
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct coordinator_host *host) {
    return (int64_t) uv_now(host->loop);
}

static void settle(struct coordinator_host *host);

/* ---- stores ---- */

static int open_space(struct coordinator_host *host, struct store_space **space, uint16_t *port,
                      struct cr_error *err) {
    return store_server_open(host->store, host->store_host, host->store_port, space, port, err);
}

/* The coordinator's open_store: an empty key space; the last round's ends when this one is there. */
static int job_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                          struct cr_error *err) {
    struct host_job *job = arg;
    struct coordinator_host *host = job->host;
    uint16_t port = host->store_port;
    if (host->spare != NULL) {
        job->space = host->spare;
        port = host->spare_port;
        host->spare = NULL;
    } else if (host->store_port != 0 && job->space != NULL) {
        store_space_clear(job->space);
    } else {
        struct store_space *fresh = NULL;
        int rc = open_space(host, &fresh, &port, err);
        if (rc < 0) return rc;
        store_space_close(job->space);
        job->space = fresh;
    }
    (void) snprintf(out->addr, sizeof(out->addr), "%s", host->store_addr);
    out->port = port;
    cr_debug("round %" PRIu64 ": store at %s port %u", round, out->addr, out->port);
    return 0;
}

/* ---- what the coordinators want ---- */

static void mark_dirty(struct host_peer *peer) {
    if (peer->dirty) return;
    peer->dirty = 1;
    peer->next_dirty = peer->host->dirty;
    peer->host->dirty = peer;
}

static void job_hang_up(void *arg, void *peer_arg) {
    (void) arg;
    struct host_peer *peer = peer_arg;
    peer->seat = NULL;
    peer->hung_up = 1;
    mark_dirty(peer);
}

static void on_peer_timer(uv_timer_t *timer);

static void job_send(void *arg, void *peer_arg, const struct rdzv_message *m) {
    (void) arg;
    struct host_peer *peer = peer_arg;
    if (peer->closing || peer->hung_up) return;
    /* Without memory the node would miss a message; it is cut off instead, which it can handle. */
    if (rdzv_message_encode(m, &peer->out) < 0) peer->hung_up = 1;
    /* After END it is the node's turn to hang up. */
    if (m->type == RDZV_END && !peer->local) {
        (void) uv_timer_start(&peer->timer, on_peer_timer, (uint64_t) peer->host->close_timeout_ms, 0);
    }
    mark_dirty(peer);
}

static void job_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    if (cr_log_enabled(level)) cr_log(level, "%s", text);
}

static const struct coordinator_actions job_actions = {
    .send = job_send, .hang_up = job_hang_up, .open_store = job_open_store, .log = job_log};

static void job_free(struct host_job *job) {
    if (job == NULL) return;
    coordinator_free(job->coordinator);
    store_space_close(job->space);
    free(job->run_id);
    free(job);
}

/* The job of that id, made on first sight; NULL when memory is short. */
static struct host_job *find_job(struct coordinator_host *host, const char *run_id) {
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        if (strcmp(job->run_id, run_id) == 0) return job;
    }
    struct host_job *job = calloc(1, sizeof(*job));
    if (job == NULL) return NULL;
    job->host = host;
    job->run_id = strdup(run_id);
    job->coordinator = coordinator_new(run_id, &job_actions, job);
    if (job->run_id == NULL || job->coordinator == NULL) {
        job_free(job);
        return NULL;
    }
    job->next = host->jobs;
    host->jobs = job;
    return job;
}

/* ---- what an operator asks ---- */

struct telling {
    struct host_peer *to;
    int64_t now_ms;
};

static void tell_node(void *arg, const struct seat_view *s) {
    const struct telling *t = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_NODE};
    m.status_node = (struct rdzv_status_node){
        .host = s->host, .addr = s->addr, .role = s->role, .state = s->state, .pid = s->pid,
        .group_rank = s->group_rank, .first_rank = s->first_rank,
        .local_world_size = s->local_world_size,
        .silent_ms = s->local ? -1 : t->now_ms - s->heard_ms};
    job_send(NULL, t->to, &m);
}

static void tell_job(struct host_peer *to, const struct host_job *job) {
    struct coordinator_view v;
    struct telling telling = {.to = to, .now_ms = now_ms(to->host)};
    coordinator_look(job->coordinator, &v);
    struct rdzv_message m = {.type = RDZV_STATUS_JOB};
    m.status_job = (struct rdzv_status_job){
        .run_id = job->run_id, .phase = v.phase, .rounds = v.next_round,
        .restart_count = v.restart_count, .max_restarts = v.max_restarts,
        .min_nodes = v.min_nodes, .max_nodes = v.max_nodes,
        .group_world_size = v.group_world_size, .world_size = v.world_size,
        .nodes = v.seats, .awaited = v.awaited, .why = v.why};
    job_send(NULL, to, &m);
    coordinator_visit(job->coordinator, tell_node, &telling);
}

static void got_status(struct host_peer *peer) {
    struct rdzv_message done = {.type = RDZV_STATUS_DONE};
    for (const struct host_job *job = peer->host->jobs; job != NULL; job = job->next) {
        tell_job(peer, job);
        done.status_done.jobs++;
    }
    job_send(NULL, peer, &done);
    job_hang_up(NULL, peer);
}

static void refuse(struct host_peer *peer, const char *why);

static void got_operate(struct host_peer *peer, const struct rdzv_operate *o) {
    struct rdzv_message m = {.type = RDZV_OPERATED};
    const struct host_job *job = peer->host->jobs;
    char why[512];
    while (job != NULL && strcmp(job->run_id, o->run_id) != 0) job = job->next;
    if (job != NULL) m.operated.nodes = coordinator_operate(job->coordinator, o);
    if (m.operated.nodes == 0) {
        (void) snprintf(why, sizeof(why), "%s '%.200s'; crun-agent status shows what there is",
                        job == NULL ? "there is no job" : "the job has no such node:",
                        job == NULL ? o->run_id : o->host);
        refuse(peer, why);
        return;
    }
    job_send(NULL, peer, &m);
    job_hang_up(NULL, peer);
}

/* ---- what nodes say ---- */

static void refuse(struct host_peer *peer, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX, .why = why};
    job_send(NULL, peer, &m);
    job_hang_up(NULL, peer);
}

/* Whether we understand each other; says so if not. */
static int versions_overlap(struct host_peer *peer, const char *who, uint32_t min, uint32_t max) {
    if (min <= RDZV_VERSION_MAX && max >= RDZV_VERSION_MIN) return 1;
    char why[512];
    (void) snprintf(why, sizeof(why),
                    "the node ('%.100s') speaks rendezvous protocol %" PRIu32 " to %" PRIu32
                    ", the coordinator ('crun " CRUN_VERSION "') %d to %d; use builds that overlap",
                    who, min, max, RDZV_VERSION_MIN, RDZV_VERSION_MAX);
    refuse(peer, why);
    return 0;
}

static void got_hello(struct host_peer *peer, const struct rdzv_hello *h) {
    struct coordinator_host *host = peer->host;
    if (!versions_overlap(peer, h->software, h->version_min, h->version_max)) return;
    if (!host->leads || h->epoch > host->epoch) {
        /* It asks the election again, and finds who leads. */
        cr_debug("a node that obeyed epoch %" PRIu64 " is sent away: %s, epoch %" PRIu64, h->epoch,
                 host->leads ? "we are older" : "we do not lead", host->epoch);
        job_hang_up(NULL, peer);
        return;
    }
    if (host->closing) {
        refuse(peer, host->why);
        return;
    }
    peer->job = find_job(host, h->run_id);
    if (peer->job == NULL) {
        refuse(peer, "the coordinator is out of memory");
        return;
    }
    peer->job->peers++;
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome.version = h->version_max < RDZV_VERSION_MAX ? h->version_max : RDZV_VERSION_MAX;
    m.welcome.epoch = host->epoch;
    job_send(peer->job, peer, &m);
}

static void got_join(struct host_peer *peer, const struct rdzv_join *join) {
    peer->seat = coordinator_join(peer->job->coordinator, now_ms(peer->host), peer, peer->local, join);
    if (peer->seat == NULL) job_hang_up(NULL, peer);
    else if (!peer->local) (void) uv_timer_stop(&peer->timer);
}

static void got_message(struct host_peer *peer, const struct rdzv_message *m) {
    struct cr_error err = {0};
    if (peer->seat != NULL) {
        struct coordinator *c = peer->job->coordinator;
        struct coordinator_seat *seat = peer->seat;
        if (coordinator_receive(c, now_ms(peer->host), seat, m, &err) < 0) {
            refuse(peer, err.text);
            coordinator_lost(c, now_ms(peer->host), seat, err.text);
        }
    } else if (peer->job == NULL && m->type == RDZV_HELLO) {
        got_hello(peer, &m->hello);
    } else if (peer->job == NULL && m->type == RDZV_STATUS) {
        const struct rdzv_status *s = &m->status;
        if (versions_overlap(peer, "status", s->version_min, s->version_max)) got_status(peer);
    } else if (peer->job == NULL && m->type == RDZV_OPERATE) {
        const struct rdzv_operate *o = &m->operate;
        if (versions_overlap(peer, "operator", o->version_min, o->version_max)) got_operate(peer, o);
    } else if (peer->job != NULL && m->type == RDZV_JOIN) {
        got_join(peer, &m->join);
    } else {
        (void) cr_fail(&err, -EPROTO, "refuse a %s message before %s",
                       rdzv_message_name((unsigned) m->type), peer->job == NULL ? "HELLO" : "JOIN");
        refuse(peer, err.text);
    }
}

/* The seat of a node that we cannot talk to any more is empty. */
static void vacate(struct host_peer *peer, const char *why) {
    struct coordinator_seat *seat = peer->seat;
    peer->seat = NULL;
    if (seat != NULL) coordinator_lost(peer->job->coordinator, now_ms(peer->host), seat, why);
}

static void broken(struct host_peer *peer, const char *why) {
    struct coordinator_seat *seat = peer->seat;
    refuse(peer, why);
    peer->seat = seat;
    vacate(peer, why);
}

/* Takes the frames off the front of the input; the rest waits for more. */
static void read_frames(struct host_peer *peer) {
    struct cr_error err = {0};
    struct rdzv_message m;
    size_t at = 0, used = 1;
    if (!peer->has_magic) {
        if (peer->in.len < RDZV_MAGIC_LEN) return;
        if (memcmp(peer->in.data, RDZV_MAGIC, RDZV_MAGIC_LEN) != 0) {
            peer->hung_up = 1;
            mark_dirty(peer);
            return;
        }
        peer->has_magic = 1;
        at = RDZV_MAGIC_LEN;
    }
    while (used > 0 && !peer->hung_up) {
        if (rdzv_message_decode(peer->in.data + at, peer->in.len - at, &m, &used, &err) < 0) {
            broken(peer, err.text);
            return;
        }
        if (used > 0) got_message(peer, &m);
        at += used;
    }
    cr_buffer_consume(&peer->in, at);
}

static void peer_input(struct host_peer *peer, const char *data, size_t len) {
    if (peer->hung_up) return; /* it may say what it likes */
    if (cr_buffer_append(&peer->in, data, len) < 0) broken(peer, "the coordinator is out of memory");
    else read_frames(peer);
}

/* ---- peers: coming and going ---- */

static struct host_peer *peer_new(struct coordinator_host *host) {
    struct host_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) return NULL;
    peer->host = host;
    peer->next = host->peers;
    peer->link = &host->peers;
    if (peer->next != NULL) peer->next->link = &peer->next;
    host->peers = peer;
    return peer;
}

static void forget_dirty(struct host_peer *peer) {
    struct host_peer **p = &peer->host->dirty;
    while (*p != NULL && *p != peer) p = &(*p)->next_dirty;
    if (*p == peer) *p = peer->next_dirty;
}

/* A job whose last node hung up is kept for a while, so that late nodes hear how it ended. */
static void job_drop(struct coordinator_host *host, struct host_job *job) {
    if (--job->peers == 0) job->forget_ms = now_ms(host) + host->close_timeout_ms;
}

static void peer_free(struct host_peer *peer) {
    if (peer->dirty) forget_dirty(peer);
    if (peer->job != NULL) job_drop(peer->host, peer->job);
    *peer->link = peer->next;
    if (peer->next != NULL) peer->next->link = peer->link;
    cr_buffer_done(&peer->in);
    cr_buffer_done(&peer->out);
    cr_buffer_done(&peer->writing);
    free(peer);
}

static void on_peer_closed(uv_handle_t *handle) {
    struct host_peer *peer = handle->data;
    struct coordinator_host *host = peer->host;
    if (--peer->open_handles > 0) return;
    peer_free(peer);
    settle(host);
}

static void peer_close(struct host_peer *peer, const char *why) {
    if (peer->closing) return;
    peer->closing = 1;
    vacate(peer, why);
    uv_close((uv_handle_t *) &peer->tcp, on_peer_closed);
    uv_close((uv_handle_t *) &peer->timer, on_peer_closed);
}

static void on_peer_timer(uv_timer_t *timer) {
    struct host_peer *peer = timer->data;
    struct coordinator_host *host = peer->host;
    peer_close(peer, "it did not answer in time");
    settle(host);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    (void) suggested;
    struct host_peer *peer = handle->data;
    *buf = uv_buf_init(peer->host->read_buffer, (unsigned) READ_MAX);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct host_peer *peer = stream->data;
    struct coordinator_host *host = peer->host;
    if (n > 0) peer_input(peer, buf->base, (size_t) n);
    else if (n == UV_EOF) peer_close(peer, "its connection was closed");
    else if (n < 0) peer_close(peer, uv_strerror((int) n));
    settle(host);
}

/* ---- peers: sending ---- */

static void on_written(uv_write_t *req, int status) {
    struct host_peer *peer = CR_CONTAINER_OF(req, struct host_peer, write);
    struct coordinator_host *host = peer->host;
    peer->write_busy = 0;
    cr_buffer_clear(&peer->writing);
    if (status < 0) peer_close(peer, uv_strerror(status));
    else mark_dirty(peer);
    settle(host);
}

/* Hands the kernel what it takes now and queues the rest. */
static void peer_write(struct host_peer *peer) {
    uv_stream_t *stream = (uv_stream_t *) &peer->tcp;
    uv_buf_t buf = uv_buf_init(peer->out.data, (unsigned) peer->out.len);
    int n = uv_try_write(stream, &buf, 1);
    if (n < 0 && n != UV_EAGAIN) {
        peer_close(peer, uv_strerror(n));
        return;
    }
    cr_buffer_consume(&peer->out, n > 0 ? (size_t) n : 0);
    if (peer->out.len == 0) return;
    struct cr_buffer spare = peer->writing;
    peer->writing = peer->out;
    peer->out = spare;
    buf = uv_buf_init(peer->writing.data, (unsigned) peer->writing.len);
    peer->write_busy = uv_write(&peer->write, stream, &buf, 1, on_written) == 0;
    if (!peer->write_busy) peer_close(peer, "writing failed");
}

static void on_shut(uv_shutdown_t *req, int status) {
    (void) req;
    (void) status; /* its end of file, or the timer, ends the connection */
}

static void flush_remote(struct host_peer *peer) {
    if (peer->closing) return;
    if (peer->out.len > UNREAD_MAX && !peer->hung_up) {
        peer_close(peer, "it does not read what it is sent");
        return;
    }
    if (peer->out.len > 0 && !peer->write_busy) peer_write(peer);
    if (!peer->hung_up || peer->shut || peer->closing) return;
    if (!peer->lingers) (void) uv_timer_start(&peer->timer, on_peer_timer, LINGER_MS, 0);
    peer->lingers = 1;
    if (peer->out.len > 0) return; /* on_written comes back here */
    peer->shut = 1;
    (void) uv_shutdown(&peer->shutdown, (uv_stream_t *) &peer->tcp, on_shut);
}

static void flush_local(struct host_peer *peer) {
    if (peer->out.len > 0) peer->deliver(peer->deliver_arg, peer->out.data, peer->out.len);
    cr_buffer_clear(&peer->out);
    if (peer->hung_up) peer->deliver(peer->deliver_arg, NULL, 0);
}

/* ---- nodes of this process ---- */

struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg) {
    struct host_peer *peer = peer_new(host);
    if (peer == NULL) return NULL;
    peer->local = 1;
    peer->deliver = deliver;
    peer->deliver_arg = arg;
    return peer;
}

void host_peer_receive(struct host_peer *peer, const char *data, size_t len) {
    struct coordinator_host *host = peer->host;
    peer_input(peer, data, len);
    settle(host);
}

void host_peer_gone(struct host_peer *peer, const char *why) {
    struct coordinator_host *host = peer->host;
    vacate(peer, why);
    peer_free(peer);
    settle(host);
}

/* ---- remote nodes: from the store's thread to ours ---- */

/* On the store's thread. */
static void on_handoff(void *arg, const struct store_handoff *from) {
    struct coordinator_host *host = arg;
    struct handoff *h = malloc(sizeof(*h) + from->len);
    if (h == NULL) {
        (void) close(from->fd);
        return;
    }
    *h = (struct handoff){.fd = from->fd, .len = from->len};
    memcpy(h->data, from->data, from->len);
    uv_mutex_lock(&host->lock);
    h->next = host->handoffs;
    host->handoffs = h;
    if (host->listens) (void) uv_async_send(&host->knock);
    uv_mutex_unlock(&host->lock);
}

static struct handoff *take_handoffs(struct coordinator_host *host) {
    uv_mutex_lock(&host->lock);
    struct handoff *newest = host->handoffs, *oldest = NULL;
    host->handoffs = NULL;
    uv_mutex_unlock(&host->lock);
    while (newest != NULL) { /* first come, first served */
        struct handoff *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

static void take_in(struct coordinator_host *host, const struct handoff *h) {
    struct host_peer *peer = host->finished ? NULL : peer_new(host);
    if (peer == NULL) {
        (void) close(h->fd);
        return;
    }
    (void) uv_tcp_init(host->loop, &peer->tcp);
    (void) uv_timer_init(host->loop, &peer->timer);
    peer->tcp.data = peer->timer.data = peer;
    peer->open_handles = 2;
    int rc = uv_tcp_open(&peer->tcp, h->fd);
    if (rc < 0) (void) close(h->fd);
    if (rc == 0) rc = uv_read_start((uv_stream_t *) &peer->tcp, on_alloc, on_read);
    if (rc < 0) {
        peer_close(peer, uv_strerror(rc));
        return;
    }
    (void) uv_timer_start(&peer->timer, on_peer_timer, GREETING_MS, 0);
    peer_input(peer, h->data, h->len);
}

static void on_knock(uv_async_t *knock) {
    struct coordinator_host *host = knock->data;
    for (struct handoff *h = take_handoffs(host), *next; h != NULL; h = next) {
        next = h->next;
        take_in(host, h);
        free(h);
    }
    settle(host);
}

/* ---- the end of every event ---- */

static void on_timer(uv_timer_t *timer);
static void finish(struct coordinator_host *host);

static void arm_timer(struct coordinator_host *host) {
    int64_t when = CR_FOREVER, now = now_ms(host);
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        int64_t d = coordinator_deadline(job->coordinator);
        if (d < when) when = d;
        if (job->peers == 0 && job->forget_ms < when) when = job->forget_ms;
    }
    if (when == CR_FOREVER) (void) uv_timer_stop(&host->timer);
    else (void) uv_timer_start(&host->timer, on_timer, when > now ? (uint64_t) (when - now) : 0, 0);
}

static void settle(struct coordinator_host *host) {
    while (host->dirty != NULL) {
        struct host_peer *peer = host->dirty;
        host->dirty = peer->next_dirty;
        peer->dirty = 0;
        if (peer->local) flush_local(peer);
        else flush_remote(peer);
    }
    if (!host->closing) arm_timer(host);
    else if (host->peers == NULL) finish(host);
}

/* Only where nodes come from elsewhere: a job of this process has its host for itself. */
static void forget_jobs(struct coordinator_host *host) {
    for (struct host_job **p = &host->jobs; *p != NULL;) {
        struct host_job *job = *p;
        if (job->peers > 0 || now_ms(host) < job->forget_ms) {
            p = &job->next;
            continue;
        }
        cr_debug("job '%s' is forgotten", job->run_id);
        *p = job->next;
        job_free(job);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct coordinator_host *host = timer->data;
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        coordinator_tick(job->coordinator, now_ms(host));
    }
    forget_jobs(host);
    settle(host);
}

/* ---- opening ---- */

/* The stores' end; no handoff comes after it. */
static void close_stores(struct coordinator_host *host) {
    store_space_close(host->spare);
    store_space_close(host->door);
    host->spare = host->door = NULL;
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        store_space_close(job->space);
        job->space = NULL;
    }
    store_server_stop(host->store);
    host->store = NULL;
}

static void host_free(struct coordinator_host *host) {
    close_stores(host);
    while (host->jobs != NULL) {
        struct host_job *job = host->jobs;
        host->jobs = job->next;
        job_free(job);
    }
    for (struct handoff *h = host->handoffs, *next; h != NULL; h = next) {
        next = h->next;
        (void) close(h->fd);
        free(h);
    }
    uv_mutex_destroy(&host->lock);
    free(host->store_host);
    free(host);
}

static struct coordinator_host *host_new(const struct coordinator_host_options *o) {
    struct coordinator_host *host = calloc(1, sizeof(*host));
    if (host == NULL) return NULL;
    host->store_host = strdup(o->store_host);
    host->store_port = o->store_port;
    host->close_timeout_ms = o->close_timeout_ms;
    host->leads = !o->elected;
    (void) snprintf(host->store_addr, sizeof(host->store_addr), "%s",
                    o->store_addr != NULL ? o->store_addr : o->store_host);
    if (host->store_host != NULL && uv_mutex_init(&host->lock) == 0) return host;
    free(host->store_host);
    free(host);
    return NULL;
}

/* Whether nodes of other processes may come. */
static int wants_nodes(const struct coordinator_host_options *o) {
    return !o->alone && (o->store_port != 0 || o->listen_host != NULL);
}

static int open_stores(struct coordinator_host *host, const struct coordinator_host_options *o,
                       struct cr_error *err) {
    int rc = store_server_start(NULL, &host->store, err);
    /* Before the door is open, so that nobody is turned away: who comes now waits for us to listen. */
    if (rc == 0 && wants_nodes(o)) CR_ASSERT(store_server_register_magic(host->store, RDZV_MAGIC, on_handoff, host) == 0);
    if (rc == 0 && o->listen_host != NULL) {
        rc = store_server_open(host->store, o->listen_host, o->listen_port, &host->door,
                               &host->door_port, err);
    }
    if (rc == 0 && o->jobs_come_later) return 0;
    if (rc == 0) rc = open_space(host, &host->spare, &host->spare_port, err);
    return rc;
}

/* From now on nodes that knock are let in. */
static int start_listening(struct coordinator_host *host, struct cr_error *err) {
    int rc = uv_async_init(host->loop, &host->knock, on_knock);
    if (rc < 0) return cr_fail(err, rc, "cannot listen for nodes: %s", uv_strerror(rc));
    host->knock.data = host;
    host->open_handles++;
    uv_mutex_lock(&host->lock);
    host->listens = 1;
    if (host->handoffs != NULL) (void) uv_async_send(&host->knock);
    uv_mutex_unlock(&host->lock);
    return 0;
}

int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err) {
    struct coordinator_host *host = host_new(options);
    if (host == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    host->loop = loop;
    int rc = open_stores(host, options, err);
    if (rc == 0 && wants_nodes(options)) rc = start_listening(host, err);
    if (rc < 0) {
        host_free(host);
        return rc;
    }
    (void) uv_timer_init(loop, &host->timer);
    host->timer.data = host;
    host->open_handles++;
    *out = host;
    return 0;
}

uint16_t coordinator_host_port(const struct coordinator_host *host) {
    return host->door != NULL ? host->door_port : host->spare_port;
}

/* ---- closing: the last word to all, their hanging up, our handles, the stores ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct coordinator_host *host = handle->data;
    if (--host->open_handles > 0) return;
    void (*on_close)(void *) = host->on_close;
    void *arg = host->on_close_arg;
    host_free(host);
    if (on_close != NULL) on_close(arg);
}

static void finish(struct coordinator_host *host) {
    if (host->finished) return;
    host->finished = 1;
    close_stores(host);
    uv_close((uv_handle_t *) &host->timer, on_handle_closed);
    if (host->open_handles > 1) uv_close((uv_handle_t *) &host->knock, on_handle_closed);
}

static void on_patience_over(uv_timer_t *timer) {
    struct coordinator_host *host = timer->data;
    for (struct host_peer *peer = host->peers; peer != NULL; peer = peer->next) {
        if (!peer->local) peer_close(peer, host->why);
    }
}

void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch) {
    host->leads = 1;
    host->epoch = epoch;
}

void coordinator_host_depose(struct coordinator_host *host, const char *why) {
    host->leads = 0;
    for (struct host_peer *peer = host->peers; peer != NULL; peer = peer->next) {
        CR_ASSERT(!peer->local);
        peer->seat = NULL; /* goes with its coordinator */
        peer->job = NULL;
        peer_close(peer, why);
    }
    while (host->jobs != NULL) {
        struct host_job *job = host->jobs;
        host->jobs = job->next;
        job_free(job);
    }
    settle(host);
}

static int has_running_job(const struct coordinator_host *host) {
    struct coordinator_view v;
    for (const struct host_job *job = host->jobs; job != NULL; job = job->next) {
        coordinator_look(job->coordinator, &v);
        if (v.phase != COORDINATOR_ENDED) return 1;
    }
    return 0;
}

void coordinator_host_abandon(struct coordinator_host *host, const char *why) {
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        coordinator_abandon(job->coordinator, now_ms(host), why);
    }
    settle(host);
}

void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg) {
    CR_ASSERT(!host->closing);
    (void) snprintf(host->why, sizeof(host->why), "%s", why != NULL ? why : "it leads no more");
    host->on_close = on_close;
    host->on_close_arg = arg;
    host->closing = 1;
    if (why == NULL) host->leads = 0;
    (void) uv_timer_start(&host->timer, on_patience_over, (uint64_t) host->close_timeout_ms, 0);
    if (why != NULL) coordinator_host_abandon(host, why);
    else if (has_running_job(host)) coordinator_host_depose(host, host->why);
    else settle(host);
}
