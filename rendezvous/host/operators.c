/* Answers operators: the status of all jobs, and orders to the nodes of one job. */
#include "rendezvous/host/host_internal.h"

#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/server.h"

#include <errno.h>

/* ---- status: each job, followed by its nodes ---- */

/* The receiver of a visit, and the time at which it is made. */
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
        .local_world_size = s->local_world_size,
        .silent_ms = s->local ? -1 : v->now_ms - s->heard_ms};
    v->events->on_node(v->arg, &node);
}

static void visit_job(struct visit *visit, const struct host_job *job) {
    struct coordinator_view v;
    coordinator_look(job->coordinator, &v);
    const struct rdzv_status_job status = {
        .run_id = job->run_id, .phase = v.phase, .rounds = v.next_round,
        .restart_count = v.restart_count, .max_restarts = v.max_restarts,
        .min_nodes = v.min_nodes, .max_nodes = v.max_nodes,
        .group_world_size = v.group_world_size, .world_size = v.world_size,
        .nodes = v.seats, .awaited = v.awaited, .why = v.why};
    visit->events->on_job(visit->arg, &status);
    coordinator_visit(job->coordinator, visit_node, visit);
}

void coordinator_host_visit(const struct coordinator_host *host,
                            const struct rendezvous_status_events *events, void *arg) {
    struct visit visit = {.events = events, .arg = arg, .now_ms = host_now_ms(host)};
    const struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) visit_job(&visit, job);
}

/* An operator who gets the answer to STATUS. */
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

void host_answer_status(struct host_peer *peer) {
    static const struct rendezvous_status_events events = {send_job, send_node};
    struct answer a = {.peer = peer};
    coordinator_host_visit(peer->host, &events, &a);
    struct rdzv_message done = {.type = RDZV_STATUS_DONE, .status_done.jobs = a.jobs};
    host_peer_send(peer, &done);
}

/* ---- orders of operators ---- */

int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *o,
                        struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_OPERATED};
    struct host_job *job = host_find_job(peer->host, o->run_id);
    if (job == NULL) {
        return cr_fail(err, -ENOENT,
                       "there is no job '%.200s'; crun-agent status lists the jobs",
                       o->run_id);
    }
    m.operated.nodes = coordinator_operate(job->coordinator, o);
    if (m.operated.nodes == 0) {
        return cr_fail(err, -ENOENT,
                       "the job has no such node: '%.200s'; crun-agent status lists the nodes",
                       o->host);
    }
    host_peer_send(peer, &m);
    return 0;
}
