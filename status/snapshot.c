/* Makes the parts of a snapshot that do not depend on the program: see snapshot.h. */
#include "status/snapshot.h"

#include "base/time/clock.h"
#include "rendezvous/server.h"
#include "status/json_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA 1 /* increased when a field is removed or changes its meaning */

json_t *status_snapshot(json_t *jobs) {
    int64_t wall_ns = cr_wall_ns();
    char now[CR_UTC_TEXT_MAX], host[256] = "";
    cr_utc_text(now, wall_ns, 3);
    (void) gethostname(host, sizeof(host) - 1);
    return json_pack("{s:i, s:s, s:s, s:f, s:f, s:o, s:i, s:o}", "schema", SCHEMA, "crun",
                     CRUN_VERSION, "time", now, "time_s", (double) wall_ns / 1e9, "monotonic_s",
                     (double) cr_monotonic_ns() / 1e9, "host", status_json_text(host), "pid",
                     (int) getpid(), "jobs", jobs);
}

json_t *status_word(const char *name) {
    char text[32];
    size_t i = 0;
    for (; i < sizeof(text) - 1 && name[i] != '\0'; i++) {
        text[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char) (name[i] - 'A' + 'a') : name[i];
    }
    text[i] = '\0';
    return json_string(text);
}

void status_add_job(void *jobs, const struct rdzv_status_job *j) {
    json_t *job = json_pack(
        "{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:[]}", "id",
        status_json_text(j->run_id), "phase", status_word(rendezvous_phase_name(j->phase)), "round",
        (json_int_t) j->rounds - 1, "restarts", (json_int_t) j->restart_count, "max_restarts",
        (json_int_t) j->max_restarts, "min_nodes", (json_int_t) j->min_nodes, "max_nodes",
        (json_int_t) j->max_nodes, "nodes_in_round", (json_int_t) j->group_world_size,
        "world_size", (json_int_t) j->world_size, "awaited", (json_int_t) j->awaited, "why",
        status_json_text(j->why), "nodes");
    if (j->slow != NULL && j->slow[0] != '\0') {
        (void) json_object_set_new(job, "slow", status_json_text(j->slow));
    }
    (void) json_array_append_new(jobs, job); /* json_array_append_new() also fails if `job` is
                                              * NULL */
}

void status_add_node(void *jobs, const struct rdzv_status_node *n) {
    json_t *node = json_pack(
        "{s:o, s:o, s:I, s:o, s:o, s:I, s:I, s:I, s:f, s:o}", "host", status_json_text(n->host),
        "addr", status_json_text(n->addr), "pid", (json_int_t) n->pid, "role",
        status_json_text(n->role),
        "state", status_word(rendezvous_state_name(n->state)), "group_rank",
        (json_int_t) n->group_rank, "first_rank", (json_int_t) n->first_rank, "workers",
        (json_int_t) n->local_world_size, "heard_s_ago",
        n->silent_ms < 0 ? 0.0 : (double) n->silent_ms / 1000, "unfit",
        status_json_text(n->unfit != NULL ? n->unfit : ""));
    json_t *job = json_array_get(jobs, json_array_size(jobs) - 1);
    (void) json_array_append_new(json_object_get(job, "nodes"), node);
}

static bool has_number(const json_t *rank, const json_t *number) {
    return json_equal(json_object_get(rank, "rank"), number) == 1;
}

void status_put_rank(json_t *job, json_t *rank) {
    json_t *ranks = json_object_get(job, "ranks"), *old;
    const json_t *number = json_object_get(rank, "rank");
    size_t i;
    if (ranks == NULL && json_object_set_new(job, "ranks", json_array()) == 0) {
        ranks = json_object_get(job, "ranks");
    }
    json_array_foreach(ranks, i, old) {
        if (!has_number(old, number)) continue;
        (void) json_array_set_new(ranks, i, rank);
        return;
    }
    (void) json_array_append_new(ranks, rank);
}

static void add_steps(json_t *rank, const struct rdzv_rank *r, int64_t age_ms) {
    if (r->steps == 0) return;
    (void) json_object_set_new(rank, "step", json_integer((json_int_t) r->steps));
    (void) json_object_set_new(rank, "step_age_s",
                               json_real((double) (r->step_age_ms + age_ms) / 1000));
    if (r->steps_per_ks == 0) return;
    (void) json_object_set_new(rank, "steps_per_s", json_real((double) r->steps_per_ks / 1000));
}

static void add_output(json_t *rank, const struct rdzv_rank *r, int64_t age_ms) {
    if (r->output_age_ms >= 0) {
        (void) json_object_set_new(rank, "output_age_s",
                                   json_real((double) (r->output_age_ms + age_ms) / 1000));
    }
    if (r->last_line[0] != '\0') {
        (void) json_object_set_new(rank, "last_line", status_json_text(r->last_line));
    }
}

void status_add_rank(void *jobs, const struct rdzv_status_rank *s) {
    const struct rdzv_rank *r = s->rank;
    json_t *job = json_array_get(jobs, json_array_size(jobs) - 1);
    json_t *rank = json_pack("{s:I, s:I, s:o, s:o, s:I, s:f}", "rank", (json_int_t) r->rank,
                             "local_rank", (json_int_t) r->local_rank, "state",
                             status_json_text(r->state), "host", status_json_text(s->host), "pid",
                             (json_int_t) r->pid, "seen_s_ago", (double) s->age_ms / 1000);
    if (r->kernel_state[0] != '\0') {
        (void) json_object_set_new(rank, "kernel_state", status_json_text(r->kernel_state));
        (void) json_object_set_new(rank, "uninterruptible",
                                   json_boolean(r->kernel_state[0] == 'D'));
    }
    if (r->rss_bytes > 0) {
        (void) json_object_set_new(rank, "rss_bytes", json_integer((json_int_t) r->rss_bytes));
    }
    add_steps(rank, r, s->age_ms);
    add_output(rank, r, s->age_ms);
    status_put_rank(job, rank);
}
