/* Answers operators: sends them the status of all jobs, and passes their orders on to the nodes of
 * one job. Passes on what nodes send to operators, and the failures that a node reports to all
 * nodes of its job. */
#include "rendezvous/host/host_internal.h"

#include "base/time/clock.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* ---- status: each job, followed by its nodes ---- */

/* What the functions below need to visit jobs: the callbacks with their argument, and the time of
 * the visit. */
struct visit {
    const struct rendezvous_status_events *events;
    void *arg;
    int64_t now_ms;
};

static void visit_node(void *arg, const struct seat_view *s) {
    const struct visit *v = arg;
    const struct rdzv_status_node node = {
        .host = s->host, .addr = s->addr, .role = s->role, .state = s->state, .pid = s->pid,
        .group_rank = s->group_rank, .first_rank = s->first_rank,
        .local_world_size = s->local_world_size, .unfit = s->unfit,
        .silent_ms = s->local ? -1 : v->now_ms - s->heard_ms};
    v->events->on_node(v->arg, &node);
}

static void visit_rank(void *arg, const struct rank_view *rank) {
    const struct visit *v = arg;
    const struct rdzv_status_rank out = {.host = rank->host, .age_ms = rank->age_ms,
                                         .rank = &rank->rank};
    v->events->on_rank(v->arg, &out);
}

static void visit_host(void *arg, const struct host_view *h) {
    const struct visit *v = arg;
    const struct rdzv_status_host host = {
        .host = h->host, .short_lives = h->short_lives, .failures = h->failures,
        .slowed_ms = h->slowed_ms, .refused_ms = h->refused_ms, .aside_ms = h->aside_ms};
    v->events->on_host(v->arg, &host);
}

static void visit_job(struct visit *visit, const struct host_job *job) {
    struct coordinator_view v;
    coordinator_look(job->coordinator, &v);
    const struct rdzv_status_job status = {
        .run_id = job->run_id, .phase = v.phase, .rounds = v.next_round,
        .restart_count = v.restart_count, .max_restarts = v.max_restarts,
        .min_nodes = v.min_nodes, .max_nodes = v.max_nodes,
        .group_world_size = v.group_world_size, .world_size = v.world_size,
        .nodes = v.seats, .awaited = v.awaited, .why = v.why,
        .slow = v.slow,
        .spent = v.spent, .losses = v.losses, .loss_limit = (uint32_t) (v.max_losses + 1),
        .backoff_ms = v.backoff_until_ms > visit->now_ms ? v.backoff_until_ms - visit->now_ms : 0};
    visit->events->on_job(visit->arg, &status);
    coordinator_visit(job->coordinator, visit_node, visit);
    if (visit->events->on_rank != NULL) {
        coordinator_visit_ranks(job->coordinator, visit->now_ms, visit_rank, visit);
    }
    if (visit->events->on_host == NULL) return;
    coordinator_visit_hosts(job->coordinator, visit->now_ms, visit_host, visit);
}

void coordinator_host_visit(const struct coordinator_host *host,
                            const struct rendezvous_status_events *events, void *arg) {
    struct visit visit = {.events = events, .arg = arg, .now_ms = host_now_ms(host)};
    const struct host_job *job;
    LIST_FOREACH(job, &host->jobs.list, entry) visit_job(&visit, job);
}

void coordinator_host_watch_ranks(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs.list, entry) {
        coordinator_watch_ranks(job->coordinator, host_now_ms(host));
    }
    host_end_event(host);
}

/* The answer to STATUS: the operator who gets it, and the number of jobs that were sent so far. */
struct answer {
    struct host_peer *peer;
    uint32_t jobs;
};

static void send_job(void *arg, const struct rdzv_status_job *job) {
    struct answer *a = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_JOB, .status_job = *job};
    a->jobs++;
    host_peer_send(a->peer, &m);
}

static void send_node(void *arg, const struct rdzv_status_node *node) {
    const struct answer *a = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_NODE, .status_node = *node};
    host_peer_send(a->peer, &m);
}

static void send_host(void *arg, const struct rdzv_status_host *host) {
    const struct answer *a = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_HOST, .status_host = *host};
    if (a->peer->session.version >= RDZV_VERSION_HOSTS) host_peer_send(a->peer, &m);
}

static void refuse(struct host_peer *peer, const char *why) {
    struct rdzv_message m = {.type = RDZV_REFUSED};
    m.refused = (struct rdzv_refused){.version_min = RDZV_VERSION_MIN,
                                      .version_max = RDZV_VERSION_MAX, .why = why};
    host_peer_send(peer, &m);
}

/* Returns whether the operator may see the job. An operator whose key is that of one job may see
 * only that job. */
static bool may_see(const struct host_peer *peer, const struct host_job *job) {
    return host_check_operator(peer, job->run_id, NULL) == 0;
}

void host_answer_status(struct host_peer *peer) {
    static const struct rendezvous_status_events events = {.on_job = send_job,
                                                           .on_node = send_node,
                                                           .on_host = send_host};
    struct answer a = {.peer = peer};
    struct visit visit = {
        .events = &events, .arg = &a, .now_ms = host_now_ms(peer->host)};
    struct cr_error err = {0};
    const char *run_id = peer->wire != NULL ? secure_tunnel_run_id(peer->wire->tunnel) : "";
    if (host_check_operator(peer, run_id, &err) < 0) {
        refuse(peer, err.text);
        return;
    }
    const struct host_job *job;
    LIST_FOREACH(job, &peer->host->jobs.list, entry) {
        if (may_see(peer, job)) visit_job(&visit, job);
    }
    struct rdzv_message done = {.type = RDZV_STATUS_DONE, .status_done.jobs = a.jobs};
    host_peer_send(peer, &done);
}

/* ---- orders of operators ---- */

/* Sends ASK_INSPECT to the nodes of the job. Returns how many nodes will answer. */
static uint32_t order_inspection(struct host_peer *peer, struct host_job *job,
                                 const struct rdzv_operate *o) {
    peer->inspection = ++peer->host->inspections;
    peer->inspects = job;
    peer->inspected_left = coordinator_inspect(job->coordinator, o->host, peer->inspection, o->why);
    return peer->inspected_left;
}

/* Answers an order to admit a host. */
static int answer_admit(struct host_peer *peer, struct host_job *job, const struct rdzv_operate *o,
                        struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_OPERATED};
    m.operated.nodes = coordinator_admit(job->coordinator, host_now_ms(peer->host), o->host);
    m.operated.behind = "";
    if (m.operated.nodes == 0) {
        return cr_fail(err, -ENOENT,
                       "nothing is held against host '%.200s'; crun-agent status lists the hosts "
                       "that are slowed, refused or set aside", o->host);
    }
    host_peer_send(peer, &m);
    return 0;
}

/* Sends OPERATED, the answer to an order. If the order requests flight records,
 * host_answer_inquiry() sends OPERATED later, with the result of the inquiry. OPERATED answers all
 * other orders at once; the rows of an inspection follow by host_pass_row(). */
int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *o,
                        struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_OPERATED};
    bool inspects = o->kind == RDZV_OPERATE_INSPECT;
    int rc = host_check_operator(peer, o->run_id, err);
    if (rc < 0) return rc;
    struct host_job *job = job_table_find(&peer->host->jobs, o->run_id);
    if (job == NULL) {
        return cr_fail(err, -ENOENT,
                       "there is no job '%.200s'; crun-agent status lists the jobs",
                       o->run_id);
    }
    if (o->kind == RDZV_OPERATE_ADMIT) return answer_admit(peer, job, o, err);
    m.operated.nodes =
        inspects ? order_inspection(peer, job, o)
                 : coordinator_operate(job->coordinator, host_now_ms(peer->host), o);
    if (m.operated.nodes == 0) {
        return cr_fail(err, -ENOENT,
                       "the job has no such node: '%.200s'; crun-agent status lists the nodes",
                       o->host);
    }
    if (o->kind == 0) {
        peer->job = job;
        job_table_hold(job);
        peer->awaits_inquiry = true;
        peer->nodes_told = m.operated.nodes;
        return 1;
    }
    m.operated.behind = "";
    host_peer_send(peer, &m);
    return inspects ? 1 : 0;
}

void host_pass_row(struct host_peer *from, const struct rdzv_message *m) {
    uint64_t id = m->type == RDZV_ROW ? m->row.id : m->inspected.id;
    struct host_peer *to;
    LIST_FOREACH(to, &from->host->peers, entry) {
        bool is_asked = to->inspection == id && to->inspects == from->job;
        if (is_asked && to->session.state == HOST_SESSION_INSPECTING) break;
    }
    /* the operator is gone, or the answer names the inspection of another job */
    if (to == NULL) return;
    host_peer_send(to, m);
    if (m->type == RDZV_INSPECTED && --to->inspected_left == 0) host_peer_hang_up(to);
}

/* ---- failures, which each node of a job learns ---- */

/* Returns half of the connection's round-trip time in ns, as TCP has measured it; -1 if it is not
 * known. */
static int64_t half_trip_ns(struct host_peer *peer) {
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *) &peer->wire->tcp, &fd) < 0) return -1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0) return -1;
    return (int64_t) info.tcpi_rtt * 1000 / 2;
}

/* The message with the node's clock took about half of a round trip to come here, so half of a
 * round trip is added to that clock; the error of the result is at most half of a round trip. A new
 * measurement replaces the old one unless its error is more than twice as large: clocks drift, so
 * an old measurement becomes wrong. Behind a relay nothing is measured, because TCP knows only the
 * round trip to the relay. */
void host_note_clock(struct host_peer *from, int64_t wall_ns) {
    if (from->wire == NULL || from->closing || wall_ns <= 0) return;
    int64_t half_ns = half_trip_ns(from);
    if (half_ns < 0) return;
    if (from->offset_error_ns >= 0 && half_ns > 2 * from->offset_error_ns) return;
    from->offset_error_ns = half_ns;
    /* unsigned, because a node may send any wall_ns, and a signed sum could overflow */
    from->offset_ns = (int64_t) ((uint64_t) wall_ns + (uint64_t) half_ns - (uint64_t) cr_wall_ns());
}

void host_pass_failure(struct host_peer *from, const struct rdzv_failure *failure) {
    struct rdzv_message m = {.type = RDZV_FAILURE};
    struct host_peer *to;
    host_note_clock(from, failure->wall_ns);
    m.failure = *failure;
    m.failure.offset_ns = from->offset_ns;
    m.failure.offset_error_ns = from->offset_error_ns;
    LIST_FOREACH(to, &from->host->peers, entry) {
        if (to->job == from->job && to->seat != NULL) host_peer_send(to, &m);
    }
}

void host_answer_inquiry(struct host_job *job, const char *what) {
    struct host_peer *peer;
    LIST_FOREACH(peer, &host_of_job(job)->peers, entry) {
        if (!peer->awaits_inquiry || peer->job != job) continue;
        struct rdzv_message m = {.type = RDZV_OPERATED};
        m.operated.nodes = peer->nodes_told;
        m.operated.behind = what;
        peer->awaits_inquiry = false;
        host_peer_send(peer, &m);
        host_peer_hang_up(peer);
    }
}
