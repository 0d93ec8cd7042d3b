#include "rendezvous/coordinator_host.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "rendezvous/message.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One job: a coordinator and the key space of its current round. */
struct host_job {
    struct host_job *next;
    struct coordinator_host *host;
    char *run_id;
    struct coordinator *coordinator;
    struct store_space *space;
};

/* One node that speaks to us. */
struct host_peer {
    struct host_peer *next, **link; /* in host->peers */
    struct coordinator_host *host;
    struct host_job *job;          /* NULL before HELLO */
    struct coordinator_seat *seat; /* NULL before JOIN, and after the coordinator hung up */
    void (*deliver)(void *arg, const char *data, size_t len);
    void *deliver_arg;
    struct cr_buffer in, out;
    int has_magic;
};

struct coordinator_host {
    uv_loop_t *loop;
    struct store_server *store;
    char *store_host;
    char store_addr[RDZV_ADDR_MAX];
    uint16_t store_port;
    int64_t close_timeout_ms;

    struct store_space *spare; /* opened ahead for the first round, with its port */
    uint16_t spare_port;
    struct host_job *jobs;
    struct host_peer *peers;

    uv_timer_t timer; /* the jobs' next deadline */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct coordinator_host *host) {
    return (int64_t) uv_now(host->loop);
}

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

/* ---- peers ---- */

static void peer_flush(struct host_peer *peer) {
    if (peer->out.len == 0) return;
    peer->deliver(peer->deliver_arg, peer->out.data, peer->out.len);
    cr_buffer_clear(&peer->out);
}

static void job_send(void *arg, void *peer_arg, const struct rdzv_message *m) {
    (void) arg;
    struct host_peer *peer = peer_arg;
    /* Without memory the node misses a message; it is cut off instead, which it can handle. */
    if (rdzv_message_encode(m, &peer->out) == 0) peer_flush(peer);
    else peer->deliver(peer->deliver_arg, NULL, 0);
}

static void job_hang_up(void *arg, void *peer_arg) {
    (void) arg;
    struct host_peer *peer = peer_arg;
    peer->seat = NULL;
    peer->deliver(peer->deliver_arg, NULL, 0);
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

/* ---- time ---- */

static void on_timer(uv_timer_t *timer);

static void arm_timer(struct coordinator_host *host) {
    int64_t when = CR_FOREVER, now = now_ms(host);
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        int64_t d = coordinator_deadline(job->coordinator);
        if (d < when) when = d;
    }
    if (when == CR_FOREVER) (void) uv_timer_stop(&host->timer);
    else (void) uv_timer_start(&host->timer, on_timer, when > now ? (uint64_t) (when - now) : 0, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct coordinator_host *host = timer->data;
    for (struct host_job *job = host->jobs; job != NULL; job = job->next) {
        coordinator_tick(job->coordinator, now_ms(host));
    }
    arm_timer(host);
}

/* ---- what nodes say ---- */

static void refuse(struct host_peer *peer, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){
        .version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX, .why = why};
    job_send(NULL, peer, &m);
    job_hang_up(NULL, peer);
}

static void got_hello(struct host_peer *peer, const struct rdzv_hello *h) {
    if (h->version_min > RDZV_VERSION_MAX || h->version_max < RDZV_VERSION_MIN) {
        char why[512];
        (void) snprintf(why, sizeof(why),
                        "the node ('%.100s') speaks rendezvous protocol %" PRIu32 " to %" PRIu32
                        ", the coordinator ('crun " CRUN_VERSION "') %d to %d; use builds that overlap",
                        h->software, h->version_min, h->version_max, RDZV_VERSION_MIN,
                        RDZV_VERSION_MAX);
        refuse(peer, why);
        return;
    }
    peer->job = find_job(peer->host, h->run_id);
    if (peer->job == NULL) {
        refuse(peer, "the coordinator is out of memory");
        return;
    }
    struct rdzv_message m = {.type = RDZV_WELCOME};
    m.welcome.version = h->version_max < RDZV_VERSION_MAX ? h->version_max : RDZV_VERSION_MAX;
    job_send(peer->job, peer, &m);
}

static void got_message(struct host_peer *peer, const struct rdzv_message *m) {
    struct cr_error err = {0};
    struct coordinator_host *host = peer->host;
    if (peer->job == NULL) {
        if (m->type == RDZV_HELLO) got_hello(peer, &m->hello);
        else refuse(peer, "it does not begin with HELLO");
    } else if (peer->seat != NULL) {
        int rc = coordinator_receive(peer->job->coordinator, now_ms(host), peer->seat, m, &err);
        if (rc < 0) {
            struct coordinator_seat *seat = peer->seat;
            refuse(peer, err.text);
            coordinator_lost(peer->job->coordinator, now_ms(host), seat, err.text);
        }
    } else if (m->type == RDZV_JOIN) {
        peer->seat = coordinator_join(peer->job->coordinator, now_ms(host), peer, 1, &m->join);
        if (peer->seat == NULL) job_hang_up(NULL, peer);
    }
}

/* Frames at the front of the input; the rest waits for more. */
static void read_frames(struct host_peer *peer) {
    struct cr_error err = {0};
    struct rdzv_message m;
    size_t at = 0, used;
    if (!peer->has_magic) {
        if (peer->in.len < RDZV_MAGIC_LEN) return;
        peer->has_magic = 1;
        at = RDZV_MAGIC_LEN;
    }
    while (rdzv_message_decode(peer->in.data + at, peer->in.len - at, &m, &used, &err) == 0) {
        if (used == 0) {
            cr_buffer_consume(&peer->in, at);
            return;
        }
        got_message(peer, &m);
        at += used;
    }
    refuse(peer, err.text);
}

void host_peer_receive(struct host_peer *peer, const char *data, size_t len) {
    struct coordinator_host *host = peer->host;
    if (cr_buffer_append(&peer->in, data, len) < 0) {
        refuse(peer, "the coordinator is out of memory");
        return;
    }
    read_frames(peer);
    arm_timer(host);
}

struct host_peer *coordinator_host_add_local(struct coordinator_host *host,
                                             void (*deliver)(void *arg, const char *data,
                                                             size_t len),
                                             void *arg) {
    struct host_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) return NULL;
    peer->host = host;
    peer->deliver = deliver;
    peer->deliver_arg = arg;
    peer->next = host->peers;
    peer->link = &host->peers;
    if (peer->next != NULL) peer->next->link = &peer->next;
    host->peers = peer;
    return peer;
}

void host_peer_gone(struct host_peer *peer, const char *why) {
    struct coordinator_host *host = peer->host;
    if (peer->seat != NULL) {
        coordinator_lost(peer->job->coordinator, now_ms(host), peer->seat, why);
    }
    *peer->link = peer->next;
    if (peer->next != NULL) peer->next->link = peer->link;
    cr_buffer_done(&peer->in);
    cr_buffer_done(&peer->out);
    free(peer);
    arm_timer(host);
}

/* ---- opening and closing ---- */

static void host_free(struct coordinator_host *host) {
    store_space_close(host->spare);
    while (host->jobs != NULL) {
        struct host_job *job = host->jobs;
        host->jobs = job->next;
        job_free(job);
    }
    store_server_stop(host->store);
    free(host->store_host);
    free(host);
}

int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err) {
    struct coordinator_host *host = calloc(1, sizeof(*host));
    if (host == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    host->loop = loop;
    host->store_host = strdup(options->store_host);
    host->store_port = options->store_port;
    host->close_timeout_ms = options->close_timeout_ms;
    (void) snprintf(host->store_addr, sizeof(host->store_addr), "%s",
                    options->store_addr != NULL ? options->store_addr : options->store_host);
    int rc = host->store_host != NULL ? 0 : cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    if (rc == 0) rc = store_server_start(NULL, &host->store, err);
    if (rc == 0) rc = open_space(host, &host->spare, &host->spare_port, err);
    if (rc < 0) {
        host_free(host);
        return rc;
    }
    (void) uv_timer_init(loop, &host->timer);
    host->timer.data = host;
    *out = host;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle) {
    struct coordinator_host *host = handle->data;
    void (*on_close)(void *) = host->on_close;
    void *arg = host->on_close_arg;
    host_free(host);
    on_close(arg);
}

void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg) {
    CR_ASSERT(host->peers == NULL);
    (void) why;
    host->on_close = on_close;
    host->on_close_arg = arg;
    uv_close((uv_handle_t *) &host->timer, on_timer_closed);
}
