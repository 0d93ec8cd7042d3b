/* An attempt's start: log folders, streams, environments, then all workers at once. Those that stayed in
 * their processes are told of the new round instead of being started. */
#include "agent/agent_internal.h"

#include "agent/environment.h"
#include "agent/report/report.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

extern char **environ;

/* What the workers that are to be started are started with, until all of them are. */
struct starts {
    struct agent *agent;
    struct environment shared, *each;
    struct worker_spawn *how;
    void **workers; /* struct worker *, who the others stand for */
    struct worker_process **processes;
    int (*fds)[2];
    uint32_t count, prepared;
};

static int starts_init(struct starts *s, struct agent *a, uint32_t count) {
    *s = (struct starts){.agent = a,
                         .count = count,
                         .each = calloc(count, sizeof(*s->each)),
                         .how = calloc(count, sizeof(*s->how)),
                         .workers = calloc(count, sizeof(*s->workers)),
                         .processes = calloc(count, sizeof(*s->processes)),
                         .fds = calloc(count, sizeof(*s->fds))};
    int rc = environment_init(&s->shared, environ, a->job, &a->round);
    if (rc == 0 && s->each != NULL && s->how != NULL && s->workers != NULL &&
        s->processes != NULL && s->fds != NULL) {
        return 0;
    }
    return cr_fail(&a->error, -ENOMEM, "cannot start the workers: no memory left");
}

static void starts_done(struct starts *s) {
    for (uint32_t i = 0; i < s->prepared; i++) {
        log_relay_started(s->fds[i]);
        environment_done(&s->each[i]);
    }
    environment_done(&s->shared);
    free(s->each);
    free(s->how);
    free(s->workers);
    free(s->processes);
    free(s->fds);
}

/* The next of s. */
static int prepare_worker(struct starts *s, struct worker *w) {
    struct agent *a = s->agent;
    uint32_t i = s->prepared;
    struct environment *e = &s->each[i];
    struct worker_spawn *how = &s->how[i];
    char link[WORKER_CHANNEL_VARIABLE_MAX], error_path[LOG_PATH_MAX];
    log_dir_path(&a->logs, w->attempt, w->local_rank, "error.json", error_path);
    *how = (struct worker_spawn){.path = a->job->argv[0], .stdin_fd = -1};
    s->workers[i] = w;
    int rc = environment_copy(&s->shared, e);
    if (rc < 0) return cr_fail(&a->error, rc, "cannot start the workers: no memory left");
    s->fds[i][0] = s->fds[i][1] = -1;
    s->prepared++;
    rc = worker_channels_prepare(a->links, w->local_rank, link);
    if (rc < 0) return cr_fail(&a->error, rc, "cannot start the workers: no random token");
    rc = environment_for(e, w->local_rank, error_path, link, &how->envp, &a->error);
    if (rc == 0) rc = environment_arguments(e, w->local_rank, &how->argv, &a->error);
    if (rc == 0) {
        rc = log_relay_prepare(a->relay, w->local_rank, a->round.first_rank + w->local_rank,
                               s->fds[i], &a->error);
    }
    const struct cr_cpu_mask *cpus = a->job->cpus;
    if (cpus != NULL && cr_cpu_count(&cpus[w->local_rank]) > 0) how->cpus = &cpus[w->local_rank];
    how->stdout_fd = s->fds[i][0];
    how->stderr_fd = s->fds[i][1];
    w->started_ns = cr_wall_ns();
    return rc;
}

static uint32_t start_prepared(struct starts *s) {
    struct agent *a = s->agent;
    size_t failed;
    uint32_t started = 0;
    (void) worker_spawn_all(a->nursery, s->how, s->workers, s->count, s->processes, &failed,
                            &a->error);
    for (uint32_t i = 0; i < s->count; i++) {
        struct worker *w = s->workers[i];
        w->process = s->processes[i];
        w->started = w->process != NULL;
        started += w->started ? 1 : 0;
        if (!w->started) continue;
        events_worker_started(event_source(a), &a->round, w->local_rank, worker_pid(w->process));
    }
    return started;
}

/* Returns how many of `count` run now. */
static uint32_t start_fresh(struct agent *a, uint32_t count) {
    struct starts s;
    if (count == 0) return 0;
    int rc = starts_init(&s, a, count);
    for (uint32_t i = 0; rc == 0 && i < worker_count(a); i++) {
        if (!a->workers[i].parked) rc = prepare_worker(&s, &a->workers[i]);
    }
    uint32_t started = rc == 0 ? start_prepared(&s) : 0;
    starts_done(&s);
    return started;
}

/* ---- those that stayed ---- */

static void write_place(const struct agent *a, const struct worker *w, struct channel_packet *p) {
    const struct rendezvous_round *r = &a->round;
    *p = (struct channel_packet){.type = CHANNEL_ROUND,
                              .place = {.round = r->round,
                                          .rank = r->first_rank + w->local_rank,
                                          .world_size = r->world_size,
                                          .local_rank = w->local_rank,
                                          .local_world_size = worker_count(a),
                                          .group_rank = r->group_rank,
                                          .group_world_size = r->group_world_size,
                                          .role_rank = r->first_role_rank + w->local_rank,
                                          .role_world_size = r->role_world_size,
                                          .restart_count = r->restart_count,
                                          .master_port = r->master_port}};
    (void) snprintf(p->place.master_addr, sizeof(p->place.master_addr), "%.63s", r->master_addr);
}

/* One that cannot be told (its link broke) is ended, and fails as a worker of this round. */
static void hand_over(struct agent *a, struct worker *w) {
    struct channel_packet p;
    write_place(a, w, &p);
    worker_keep(w->process, 0);
    log_relay_keep(a->relay, w->local_rank, 0);
    log_relay_rename(a->relay, w->local_rank, p.place.rank);
    worker_channels_begin_round(a->links, w->local_rank);
    w->started_ns = cr_wall_ns();
    w->stays = w->parked = 0;
    if (worker_channels_send(a->links, w->local_rank, &p) < 0) worker_signal(w->process, SIGKILL);
}

static uint32_t hand_over_all(struct agent *a) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (!a->workers[i].parked) continue;
        hand_over(a, &a->workers[i]);
        count++;
    }
    return count;
}

/* ---- all ---- */

/* NULL if nobody stays: then the attempt's folder is begun anew as a whole. */
static int begin_logs(struct agent *a, uint32_t fresh) {
    uint32_t count = worker_count(a);
    uint8_t *stays = NULL;
    if (fresh < count) {
        stays = calloc(count, sizeof(*stays));
        if (stays == NULL) return cr_fail(&a->error, -ENOMEM, "cannot begin the logs: no memory");
        for (uint32_t i = 0; i < count; i++) stays[i] = a->workers[i].parked ? 1 : 0;
    }
    int rc = log_dir_begin(&a->logs, a->round.restart_count, count, stays, &a->error);
    free(stays);
    return rc < 0 ? rc : log_relay_begin(a->relay, &a->error);
}

static uint32_t renew_records(struct agent *a) {
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) {
        struct worker *w = &a->workers[i];
        w->takes_part = w->made_way = 0;
        if (w->parked) continue;
        *w = (struct worker){.agent = a, .local_rank = i, .attempt = a->round.restart_count};
        fresh++;
    }
    return fresh;
}

int attempt_start(struct agent *a, uint32_t *running) {
    uint32_t fresh = renew_records(a), started = 0;
    a->broken[0] = '\0';
    a->oom_kills = oom_kill_count();
    int rc = begin_logs(a, fresh);
    if (rc == 0) started = start_fresh(a, fresh);
    *running = started + hand_over_all(a); /* if only to be stopped like the rest */
    return rc == 0 && started == fresh ? 0 : -1;
}
