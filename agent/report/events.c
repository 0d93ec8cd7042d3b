#include "agent/report/events.h"

#include "base/buffer.h"
#include "base/log.h"

#include <jansson.h>
#include <stdlib.h>

struct event {
    const char *state, *source;
    const struct agent_job *job;
    const struct rendezvous_round *round;
    const char *host;
    int64_t ran_ms;
    const struct worker_exit *how; /* of a worker that ended */
    int64_t local_rank;            /* -1: an agent's event */
    pid_t pid;
};

/* torchrun puts this object into the event as text. */
static char *inner_metadata(const struct event *e) {
    json_t *m = json_pack("{s:i, s:s}", "group_world_size", (int) e->round->group_world_size,
                          "entry_point", e->job->title);
    if (m != NULL && e->local_rank >= 0) {
        int pid = e->how != NULL ? (int) e->how->pid : (int) e->pid;
        (void) json_object_set_new(m, "local_rank", json_pack("[i]", (int) e->local_rank));
        (void) json_object_set_new(
            m, "role_rank", json_pack("[i]", (int) (e->round->first_role_rank + e->local_rank)));
        (void) json_object_set_new(m, "role_world_size",
                                   json_pack("[i]", (int) e->round->role_world_size));
        (void) json_object_set_new(m, "worker_pid", json_pack("[i]", pid));
        if (e->how != NULL) {
            (void) json_object_set_new(m, "exit_code", json_pack("[i]", e->how->exit_code));
        }
    }
    char *text = m != NULL ? json_dumps(m, 0) : NULL;
    json_decref(m);
    return text;
}

static json_t *global_rank(const struct event *e) {
    return e->local_rank < 0 ? json_null() : json_integer(e->round->first_rank + e->local_rank);
}

static json_t *worker_id(const struct event *e) {
    return e->local_rank < 0 ? json_null() : json_sprintf("%d", e->how != NULL ? (int) e->how->pid
                                                                              : (int) e->pid);
}

static void emit(const struct event *e) {
    if (!e->job->console_events) return;
    char *inner = inner_metadata(e);
    json_t *metadata = json_pack(
        "{s:s, s:o, s:i, s:o, s:s, s:s, s:s, s:i, s:s, s:n, s:s, s:i}", "run_id",
        e->job->rendezvous.run_id, "global_rank", global_rank(e), "group_rank",
        (int) e->round->group_rank, "worker_id", worker_id(e), "role", e->job->rendezvous.role,
        "hostname", e->host, "state", e->state, "total_run_time", (int) (e->ran_ms / 1000),
        "rdzv_backend", e->job->rendezvous.backend, "raw_error", "metadata",
        inner != NULL ? inner : "{}", "agent_restarts", (int) e->round->restart_count);
    json_t *event = NULL;
    if (metadata != NULL) {
        (void) json_object_set_new(metadata, "duration_ms", json_integer(e->ran_ms));
        event = json_pack("{s:o, s:s, s:i, s:o}", "name",
                          json_sprintf("torchelastic.worker.status.%s", e->state), "source",
                          e->source, "timestamp", 0, "metadata", metadata);
    }
    char *text = event != NULL ? json_dumps(event, 0) : NULL;
    struct cr_buffer line = {0};
    if (text != NULL && cr_buffer_printf(&line, "%s\n", text) == 0) cr_log_text(line.data, line.len);
    cr_buffer_done(&line);
    free(text);
    free(inner);
    json_decref(event);
}

void events_round(const struct agent_job *job, const struct rendezvous_round *round,
                  const char *host, int64_t took_ms) {
    struct event e = {"RENDEZVOUS", "AGENT", job, round, host, took_ms, NULL, -1, 0};
    emit(&e);
    e.state = "ASSIGN_WORKER_RANKS";
    emit(&e);
}

void events_worker_started(const struct agent_job *job, const struct rendezvous_round *round,
                           const char *host, uint32_t local_rank, pid_t pid) {
    emit(&(struct event){"START", "WORKER", job, round, host, 0, NULL, local_rank, pid});
}

void events_worker_ended(const struct agent_job *job, const struct rendezvous_round *round,
                         const char *host, uint32_t local_rank, const struct worker_exit *how,
                         int64_t ran_ms) {
    const char *state = how->exit_code == 0   ? "SUCCEEDED"
                        : how->signal_sent != 0 ? "TERMINATED"
                                                : "FAILED";
    emit(&(struct event){state, "WORKER", job, round, host, ran_ms, how, local_rank, 0});
}

void events_agent_ended(const struct agent_job *job, const struct rendezvous_round *round,
                        const char *host, enum agent_outcome outcome, int64_t ran_ms) {
    int ended = outcome == AGENT_SUCCEEDED || outcome == AGENT_FAILED;
    emit(&(struct event){ended ? "SUCCEEDED" : "FAILED", "AGENT", job, round, host, ran_ms, NULL, -1,
                         0});
}
