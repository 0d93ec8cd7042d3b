/* Starts the workers of a round: implements agent/attempt/attempt.h. */
#include "agent/attempt/attempt.h"

#include "agent/attempt/environment.h"
#include "agent/attempt/role.h"
#include "base/time/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

static uint32_t worker_count(const struct attempt *a) {
    return a->job->rendezvous.local_world_size;
}

/* ---- starting workers ---- */

/* The arguments of worker_spawn_all(), and the memory to which they point. Both are kept until all
 * workers are started. */
struct launch {
    const struct attempt *attempt;
    struct environment shared, *each;
    struct worker_spawn *how;
    void **slots; /* [count]: for each worker, the address of its element in attempt.processes */
    struct worker_process **processes;
    int (*fds)[2];
    uint32_t count, prepared;
};

static int launch_init(struct launch *l, const struct attempt *a, uint32_t count) {
    *l = (struct launch){.attempt = a,
                         .count = count,
                         .each = calloc(count, sizeof(*l->each)),
                         .how = calloc(count, sizeof(*l->how)),
                         .slots = calloc(count, sizeof(*l->slots)),
                         .processes = calloc(count, sizeof(*l->processes)),
                         .fds = calloc(count, sizeof(*l->fds))};
    int rc = environment_init(&l->shared, environ, a->job, a->round);
    l->shared.has_torch_files = a->logs->has_pipes;
    bool all = l->each != NULL && l->how != NULL && l->slots != NULL && l->processes != NULL &&
               l->fds != NULL;
    return rc == 0 && all ? 0 : -ENOMEM;
}

static void launch_done(struct launch *l) {
    for (uint32_t i = 0; i < l->prepared; i++) {
        log_relay_started(l->fds[i]);
        environment_done(&l->each[i]);
    }
    environment_done(&l->shared);
    free(l->each);
    free(l->how);
    free(l->slots);
    free(l->processes);
    free(l->fds);
}

static int prepare_environment(struct launch *l, uint32_t i, uint32_t local_rank,
                               struct cr_error *err) {
    const struct attempt *a = l->attempt;
    char channel[WORKER_CHANNEL_VARIABLE_MAX], error_path[LOG_PATH_MAX];
    struct worker_spawn *how = &l->how[i];
    log_dir_path(a->logs, a->logs->attempt, local_rank, "error.json", error_path);
    int rc = worker_channels_prepare(a->channels, local_rank, channel);
    if (rc < 0) return cr_fail(err, rc, "cannot start the workers: no random token");
    rc = environment_for(&l->each[i], local_rank, error_path, channel, &how->envp, err);
    return rc < 0 ? rc : environment_arguments(&l->each[i], local_rank, &how->argv, err);
}

/* Prepares the arguments for the next worker that is to be started. */
static int prepare_worker(struct launch *l, uint32_t local_rank, struct cr_error *err) {
    const struct attempt *a = l->attempt;
    uint32_t i = l->prepared;
    struct worker_spawn *how = &l->how[i];
    const struct cr_cpu_mask *cpus = a->job->cpus;
    char *const *argv = agent_role_of(a->job, a->round, local_rank).argv;
    *how = (struct worker_spawn){.path = argv[0], .stdin_fd = -1};
    l->slots[i] = &a->processes[local_rank];
    int rc = environment_copy(&l->shared, &l->each[i]);
    if (rc < 0) return cr_fail(err, rc, "cannot start the workers: no memory left");
    l->fds[i][0] = l->fds[i][1] = -1;
    l->prepared++;
    rc = prepare_environment(l, i, local_rank, err);
    if (rc < 0) return rc;
    rc = log_relay_prepare(a->relay, local_rank, a->round->first_rank + local_rank, l->fds[i], err);
    if (cpus != NULL && cr_cpu_count(&cpus[local_rank]) > 0) how->cpus = &cpus[local_rank];
    how->stdout_fd = l->fds[i][0];
    how->stderr_fd = l->fds[i][1];
    a->case_file->workers[local_rank].started_ns = cr_wall_ns();
    return rc;
}

/* Starts the workers that the fork server has not started, by executing their programs. */
static int execute_rest(struct launch *l, struct cr_error *err) {
    size_t failed, rest = 0;
    struct worker_process **processes = calloc(l->count, sizeof(*processes));
    size_t *places = calloc(l->count, sizeof(*places));
    int rc = processes != NULL && places != NULL ? 0 : cr_fail(err, -ENOMEM, "no memory left");
    for (size_t i = 0; rc == 0 && i < l->count; i++) {
        if (l->processes[i] != NULL) continue;
        l->how[rest] = l->how[i];
        l->slots[rest] = l->slots[i];
        places[rest++] = i;
    }
    if (rc == 0) {
        rc = worker_spawn_all(l->attempt->nursery, l->how, l->slots, rest, processes, &failed, err);
    }
    for (size_t i = 0; processes != NULL && i < rest; i++) l->processes[places[i]] = processes[i];
    free(processes);
    free(places);
    return rc;
}

/* Stores each started process in its element of attempt.processes. worker_arg() returns the address
 * of that element. launch.slots cannot be used for this, because execute_rest() moves its elements
 * to other indices. */
static void enter_workers(struct launch *l) {
    const struct attempt *a = l->attempt;
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->processes[i] == NULL) continue;
        struct worker_process **slot = worker_arg(l->processes[i]);
        *slot = l->processes[i];
        events_worker_started(a->events, a->round, (uint32_t) (slot - a->processes),
                              worker_pid(*slot));
    }
}

static int launch_all(struct launch *l, struct cr_error *err) {
    const struct attempt *a = l->attempt;
    size_t failed, forked = 0;
    int rc = 0;
    if (a->fork_server != NULL) {
        forked = fork_server_start(a->fork_server, l->how, l->slots, l->count, l->processes);
        if (forked < l->count) rc = execute_rest(l, err);
    } else {
        rc = worker_spawn_all(a->nursery, l->how, l->slots, l->count, l->processes, &failed, err);
    }
    enter_workers(l);
    return rc;
}

static int launch_workers(const struct attempt *a, const bool *starts, uint32_t count,
                          struct cr_error *err) {
    struct launch l;
    if (count == 0) return 0;
    int rc = launch_init(&l, a, count);
    if (rc < 0) (void) cr_fail(err, rc, "cannot start the workers: no memory left");
    for (uint32_t i = 0; rc == 0 && i < worker_count(a); i++) {
        if (starts[i]) rc = prepare_worker(&l, i, err);
    }
    if (rc == 0) rc = launch_all(&l, err);
    launch_done(&l);
    return rc;
}

/* ---- attempt_start() ---- */

/* Makes the log folder of a new attempt, unless `count`, the number of workers to start, is 0. Then
 * begins the attempt in the relay. Parked workers need no new folder: they go on with their files
 * in the folders of earlier attempts. */
static int begin_logs(const struct attempt *a, const bool *starts, uint32_t count,
                      struct cr_error *err) {
    int rc = 0;
    if (count > 0) {
        rc = log_dir_begin(a->logs, a->round->restart_count, worker_count(a), starts, err);
    }
    return rc < 0 ? rc : log_relay_begin(a->relay, err);
}

int attempt_start(const struct attempt *a, bool *starts, struct cr_error *err) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < worker_count(a); i++) count += starts[i] ? 1 : 0;
    case_file_begin_round(a->case_file, a->round);
    int rc = begin_logs(a, starts, count, err);
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (starts[i]) case_file_begin_worker(a->case_file, i);
    }
    if (rc == 0) rc = launch_workers(a, starts, count, err);
    for (uint32_t i = 0; i < worker_count(a); i++) {
        if (starts[i]) starts[i] = a->processes[i] != NULL;
    }
    return rc;
}

/* ---- attempt_restart() ---- */

/* Kills the processes that the dead worker has left in its Unix process group, because they may
 * hold its GPU or port. The worker was reaped in this iteration of the loop, so no new process can
 * have got the number of the Unix process group yet. Processes that have left the Unix process
 * group live on until the round ends. */
static void end_leftovers(const struct attempt *a, uint32_t local_rank) {
    const struct case_worker *dead = &a->case_file->workers[local_rank];
    if (dead->has_ended && dead->how.pid > 1) (void) kill(-dead->how.pid, SIGKILL);
}

int attempt_restart(const struct attempt *a, uint32_t local_rank, struct cr_error *err) {
    char path[LOG_PATH_MAX];
    bool *starts = calloc(worker_count(a), sizeof(*starts));
    if (starts == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    end_leftovers(a, local_rank);
    log_relay_release(a->relay, local_rank);
    starts[local_rank] = true;
    int rc = log_dir_add_workers(a->logs, worker_count(a), starts, err);
    log_dir_path(a->logs, a->logs->attempt, local_rank, "error.json", path);
    if (path[0] != '\0') (void) unlink(path);
    /* torch makes no socket if the path still has the socket of the dead worker, so remove it */
    log_dir_path(a->logs, a->logs->attempt, local_rank, ENVIRONMENT_TORCH_SOCKET, path);
    if (path[0] != '\0') (void) unlink(path);
    case_file_begin_worker(a->case_file, local_rank);
    if (rc == 0) rc = launch_workers(a, starts, 1, err);
    free(starts);
    return rc;
}

/* ---- attempt_hand_over() ---- */

static void write_place(const struct attempt *a, uint32_t local_rank, struct channel_packet *p) {
    const struct rendezvous_round *r = a->round;
    struct agent_role role = agent_role_of(a->job, r, local_rank);
    *p = (struct channel_packet){.type = CHANNEL_ROUND,
                                 .place = {.round = r->round,
                                           .rank = r->first_rank + local_rank,
                                           .world_size = r->world_size,
                                           .local_rank = local_rank,
                                           .local_world_size = worker_count(a),
                                           .group_rank = r->group_rank,
                                           .group_world_size = r->group_world_size,
                                           .role_rank = role.rank,
                                           .role_world_size = role.world_size,
                                           .restart_count = r->restart_count,
                                           .master_port = r->master_port,
                                           .kept = (uint32_t) (r->kept + 1)}};
    (void) snprintf(p->place.master_addr, sizeof(p->place.master_addr), "%.63s", r->master_addr);
}

int attempt_hand_over(const struct attempt *a, uint32_t local_rank) {
    struct channel_packet p;
    struct case_worker *known = &a->case_file->workers[local_rank];
    write_place(a, local_rank, &p);
    known->started_ns = cr_wall_ns();
    known->hung_ms = 0;
    log_relay_rename(a->relay, local_rank, p.place.rank);
    worker_channels_begin_round(a->channels, local_rank);
    return worker_channels_send(a->channels, local_rank, &p);
}
