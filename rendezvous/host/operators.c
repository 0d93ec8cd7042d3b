/* Answers operators: the status of all jobs, and orders to the nodes of one job. */
#include "rendezvous/host/host_internal.h"

#include "rendezvous/coordinator/coordinator.h"

#include <errno.h>

/* ---- status: each job, followed by its nodes ---- */

static void send_node(void *arg, const struct seat_view *s) {
    struct host_peer *to = arg;
    struct rdzv_message m = {.type = RDZV_STATUS_NODE};
    m.status_node = (struct rdzv_status_node){
        .host = s->host, .addr = s->addr, .role = s->role, .state = s->state, .pid = s->pid,
        .group_rank = s->group_rank, .first_rank = s->first_rank,
        .local_world_size = s->local_world_size,
        .silent_ms = s->local ? -1 : host_now_ms(to->host) - s->heard_ms};
    host_peer_send(to, &m);
}

static void send_job(struct host_peer *to, const struct host_job *job) {
    struct coordinator_view v;
    coordinator_look(job->coordinator, &v);
    struct rdzv_message m = {.type = RDZV_STATUS_JOB};
    m.status_job = (struct rdzv_status_job){
        .run_id = job->run_id, .phase = v.phase, .rounds = v.next_round,
        .restart_count = v.restart_count, .max_restarts = v.max_restarts,
        .min_nodes = v.min_nodes, .max_nodes = v.max_nodes,
        .group_world_size = v.group_world_size, .world_size = v.world_size,
        .nodes = v.seats, .awaited = v.awaited, .why = v.why};
    host_peer_send(to, &m);
    coordinator_visit(job->coordinator, send_node, to);
}

void host_answer_status(struct host_peer *peer) {
    struct rdzv_message done = {.type = RDZV_STATUS_DONE};
    const struct host_job *job;
    LIST_FOREACH(job, &peer->host->jobs, entry) {
        send_job(peer, job);
        done.status_done.jobs++;
    }
    host_peer_send(peer, &done);
}

/* ---- orders of operators ---- */

/* Answers ASK_NOTICE at once. The answer to ASK_DUMP comes when the inquiry is over. */
int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *o,
                        struct cr_error *err) {
    struct rdzv_message m = {.type = RDZV_OPERATED};
    struct host_job *job = host_find_job(peer->host, o->run_id);
    if (peer->awaits_inquiry) return cr_fail(err, -EPROTO, "a second order on one connection");
    if (job == NULL) {
        return cr_fail(err, -ENOENT,
                       "there is no job '%.200s'; crun-agent status lists the jobs",
                       o->run_id);
    }
    m.operated.nodes = coordinator_operate(job->coordinator, host_now_ms(peer->host), o);
    if (m.operated.nodes == 0) {
        return cr_fail(err, -ENOENT,
                       "the job has no such node: '%.200s'; crun-agent status lists the nodes",
                       o->host);
    }
    if (o->kind == 0) {
        peer->job = job;
        job->peers++;
        peer->awaits_inquiry = true;
        peer->nodes_told = m.operated.nodes;
        return 1;
    }
    m.operated.behind = "";
    host_peer_send(peer, &m);
    return 0;
}

void host_answer_inquiry(struct host_job *job, const char *what) {
    struct host_peer *peer;
    LIST_FOREACH(peer, &job->host->peers, entry) {
        if (!peer->awaits_inquiry || peer->job != job) continue;
        struct rdzv_message m = {.type = RDZV_OPERATED};
        m.operated.nodes = peer->nodes_told;
        m.operated.behind = what;
        peer->awaits_inquiry = false;
        host_peer_send(peer, &m);
        host_peer_hang_up(peer);
    }
}
