/* Writes torchrun's events as lines of JSON. */
#include "agent/report/events.h"

#include "base/buffer.h"
#include "base/log/log.h"

#include <jansson.h>
#include <stdlib.h>

struct event {
    const char *state, *origin; /* `origin` is "AGENT" or "WORKER" */
    const struct event_source *source;
    const struct rendezvous_round *round;
    int64_t ran_ms;
    int64_t local_rank; /* local rank of the worker in an event of a worker; -1 in an event of the
                         * agent */
    pid_t pid;
    const struct worker_exit *how; /* how the worker ended, or NULL */
};

/* Returns the value of the inner field "metadata" as malloc'ed JSON text. In torchrun's events, the
 * object "metadata" has a field "metadata", which is an object written as a string. Returns NULL if
 * memory is short. */
static char *inner_metadata(const struct event *e) {
    const struct rendezvous_round *round = e->round;
    json_auto_t *m = json_pack("{s:i, s:s}", "group_world_size", (int) round->group_world_size,
                               "entry_point", e->source->entry_point);
    if (m != NULL && e->local_rank >= 0) {
        int role_rank = (int) (round->first_role_rank + e->local_rank);
        (void) json_object_set_new(m, "local_rank", json_pack("[i]", (int) e->local_rank));
        (void) json_object_set_new(m, "role_rank", json_pack("[i]", role_rank));
        (void) json_object_set_new(m, "role_world_size",
                                   json_pack("[i]", (int) round->role_world_size));
        (void) json_object_set_new(m, "worker_pid", json_pack("[i]", (int) e->pid));
    }
    if (m != NULL && e->how != NULL) {
        (void) json_object_set_new(m, "exit_code", json_pack("[i]", e->how->exit_code));
    }
    return m != NULL ? json_dumps(m, 0) : NULL;
}

static json_t *global_rank(const struct event *e) {
    return e->local_rank < 0 ? json_null() : json_integer(e->round->first_rank + e->local_rank);
}

static json_t *worker_id(const struct event *e) {
    return e->local_rank < 0 ? json_null() : json_sprintf("%d", (int) e->pid);
}

static json_t *outer_metadata(const struct event *e, const char *inner) {
    return json_pack("{s:s, s:o, s:i, s:o, s:s, s:s, s:s, s:i, s:s, s:n, s:s, s:i, s:I}", "run_id",
                     e->source->run_id, "global_rank", global_rank(e), "group_rank",
                     (int) e->round->group_rank, "worker_id", worker_id(e), "role", e->source->role,
                     "hostname", e->source->host, "state", e->state, "total_run_time",
                     (int) (e->ran_ms / 1000), "rdzv_backend", e->source->backend, "raw_error",
                     "metadata", inner, "agent_restarts", (int) e->round->restart_count,
                     "duration_ms", (json_int_t) e->ran_ms);
}

static int write_line(const char *text) {
    struct cr_buffer line = {0};
    int rc = cr_buffer_printf(&line, "%s\n", text);
    if (rc == 0) cr_log_text(line.data, line.len);
    cr_buffer_done(&line);
    return rc;
}

static void emit(const struct event *e) {
    if (!e->source->enabled) return;
    char *inner = inner_metadata(e);
    json_t *metadata = inner != NULL ? outer_metadata(e, inner) : NULL;
    json_auto_t *event = NULL;
    if (metadata != NULL) { /* json_pack() owns `metadata` from now on, even if it fails */
        event = json_pack("{s:o, s:s, s:i, s:o}", "name",
                          json_sprintf("torchelastic.worker.status.%s", e->state), "source",
                          e->origin, "timestamp", 0, "metadata", metadata);
    }
    char *text = event != NULL ? json_dumps(event, 0) : NULL;
    if (text == NULL || write_line(text) < 0) {
        cr_warn("cannot write the event %s of the %s: no memory left, or a text in it is not UTF-8",
                e->state, e->origin);
    }
    free(text);
    free(inner);
}

void events_round(struct event_source source, const struct rendezvous_round *round,
                  int64_t took_ms) {
    struct event e = {
        .origin = "AGENT", .source = &source, .round = round, .ran_ms = took_ms, .local_rank = -1};
    e.state = "RENDEZVOUS";
    emit(&e);
    e.state = "ASSIGN_WORKER_RANKS";
    emit(&e);
}

void events_worker_started(struct event_source source, const struct rendezvous_round *round,
                           uint32_t local_rank, pid_t pid) {
    emit(&(struct event){.state = "START",
                         .origin = "WORKER",
                         .source = &source,
                         .round = round,
                         .local_rank = local_rank,
                         .pid = pid});
}

void events_worker_ended(struct event_source source, const struct rendezvous_round *round,
                         uint32_t local_rank, const struct worker_exit *how, int64_t ran_ms) {
    const char *state = how->exit_code == 0     ? "SUCCEEDED"
                        : how->signal_sent != 0 ? "TERMINATED"
                                                : "FAILED";
    emit(&(struct event){.state = state,
                         .origin = "WORKER",
                         .source = &source,
                         .round = round,
                         .ran_ms = ran_ms,
                         .local_rank = local_rank,
                         .pid = how->pid,
                         .how = how});
}

void events_agent_ended(struct event_source source, const struct rendezvous_round *round,
                        bool succeeded, int64_t ran_ms) {
    emit(&(struct event){.state = succeeded ? "SUCCEEDED" : "FAILED",
                         .origin = "AGENT",
                         .source = &source,
                         .round = round,
                         .ran_ms = ran_ms,
                         .local_rank = -1});
}
