/* Makes the snapshot of a node: implements agent/status.h. */
#include "agent/status.h"

#include "base/files/read_file.h"
#include "base/text/text.h"
#include "base/time/clock.h"
#include "rendezvous/server.h"
#include "status/json_text.h"
#include "status/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LAST_LINE_MAX 200 /* length in bytes to which a worker's last line is cut */

/* ---- what /proc says about a worker ---- */

/* Reads the start of /proc/<pid>/<name>. Returns the number of bytes, or a negative errno. */
static ssize_t read_proc(pid_t pid, const char *name, char *text, size_t size) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
    return cr_read_file(path, text, size);
}

/* Reads the state of the main thread, 'S' for example, and the resident memory in bytes. Returns
 * false if the process is gone. Field 24 of /proc/<pid>/stat is the memory in pages. */
static bool read_stat(pid_t pid, char *state, long long *rss) {
    char text[1024];
    if (read_proc(pid, "stat", text, sizeof(text)) <= 0) return false;
    const char *at = strrchr(text, ')'); /* the last ')' ends the name, because the name may contain
                                          * blanks and brackets */
    if (at == NULL || at[1] != ' ') return false;
    *state = at[2];
    for (int field = 2; field < 24 && at != NULL; field++) at = strchr(at + 1, ' ');
    *rss = at != NULL ? strtoll(at + 1, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
    return true;
}

static json_t *wait_channel(pid_t pid) {
    char text[64];
    if (read_proc(pid, "wchan", text, sizeof(text)) <= 0) return json_null();
    return strcmp(text, "0") == 0 ? json_null() : status_json_text(text);
}

static json_t *cpu_seconds(pid_t pid) {
    clockid_t id;
    struct timespec used;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &used) < 0) return json_null();
    return json_real((double) used.tv_sec + (double) used.tv_nsec / 1e9);
}

static void add_process(json_t *rank, const struct worker_process *process) {
    char state[2] = "";
    long long rss = 0;
    if (process == NULL) return;
    pid_t pid = worker_pid(process);
    (void) json_object_set_new(rank, "pid", json_integer(pid));
    if (!read_stat(pid, state, &rss)) return;
    (void) json_object_set_new(rank, "kernel_state", status_json_text(state));
    (void) json_object_set_new(rank, "uninterruptible", json_boolean(state[0] == 'D'));
    (void) json_object_set_new(rank, "wait_channel", wait_channel(pid));
    (void) json_object_set_new(rank, "rss_bytes", json_integer(rss));
    (void) json_object_set_new(rank, "cpu_s", cpu_seconds(pid));
}

/* ---- steps and output ---- */

static double seconds_since(int64_t then_ns) {
    int64_t ns = cr_monotonic_ns() - then_ns;
    return ns > 0 ? (double) ns / 1e9 : 0;
}

static void add_steps(json_t *rank, const struct node_status *s, uint32_t local_rank) {
    struct worker_steps steps;
    worker_channels_read_steps(s->channels, local_rank, &steps);
    if (!steps.connected || steps.count == 0) return;
    double took_s = (double) (steps.last_ns - steps.first_ns) / 1e9;
    double age_s = seconds_since(steps.last_ns);
    (void) json_object_set_new(rank, "step", json_integer((json_int_t) steps.count));
    (void) json_object_set_new(rank, "step_age_s", json_real(age_s));
    if (steps.first_ns <= 0 || steps.count < 2 || took_s <= 0) return;
    /* The time since the last step counts, too, if it is longer than two average steps. Otherwise
     * the rate of a worker that makes no more steps would never fall. */
    double made = (double) (steps.count - 1);
    if (age_s > 2 * took_s / made) took_s += age_s;
    (void) json_object_set_new(rank, "steps_per_s", json_real(made / took_s));
}

/* Returns the last line that is not blank. If that line is longer than LAST_LINE_MAX bytes, returns
 * only its last LAST_LINE_MAX bytes. A carriage return ends a line, too. Returns NULL if there is
 * no such line or memory is short. */
static json_t *last_line(const char *text, size_t len) {
    struct cr_buffer line = {0};
    size_t end = len;
    while (end > 0 && strchr("\r\n\t ", text[end - 1]) != NULL) end--;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] != '\n' && text[begin - 1] != '\r') begin--;
    if (end - begin > LAST_LINE_MAX) begin = end - LAST_LINE_MAX;
    int rc = cr_text_append(&line, text + begin, end - begin, "");
    json_t *result = rc < 0 || line.len == 0 ? NULL : json_stringn(line.data, line.len);
    cr_buffer_done(&line);
    return result;
}

static void add_output(json_t *rank, const struct node_status *s, uint32_t local_rank) {
    struct log_relay_look look;
    struct cr_buffer words = {0};
    log_relay_look(s->relay, local_rank, &look);
    if (look.last_ns != 0) {
        (void) json_object_set_new(rank, "output_age_s", json_real(seconds_since(look.last_ns)));
    }
    struct log_attempt attempt = s->case_file->workers[local_rank].attempt;
    if (log_relay_last_output(s->relay, attempt, local_rank, &words) == 0 && words.len > 0) {
        json_t *line = last_line(words.data, words.len);
        if (line != NULL) (void) json_object_set_new(rank, "last_line", line);
    }
    cr_buffer_done(&words);
}

/* ---- the job ---- */

static json_t *rank_json(const struct node_status *s, uint32_t local_rank) {
    json_int_t first = s->round != NULL ? s->round->first_rank : 0;
    json_t *rank = json_pack("{s:I, s:I, s:o}", "rank", first + local_rank, "local_rank",
                             (json_int_t) local_rank, "state",
                             status_word(worker_state_name(s->node->workers[local_rank].state)));
    add_process(rank, s->processes[local_rank]);
    add_steps(rank, s, local_rank);
    add_output(rank, s, local_rank);
    char folder[LOG_PATH_MAX];
    log_dir_path(s->case_file->logs, s->case_file->workers[local_rank].attempt, local_rank, "",
                 folder);
    if (folder[0] != '\0') (void) json_object_set_new(rank, "log_dir", status_json_text(folder));
    return rank;
}

/* Returns a new list of the jobs that this node hosts, each with its nodes. The list is empty if
 * this node hosts no job. */
static json_t *hosted_jobs(const struct node_status *s) {
    static const struct rendezvous_status_events events = {
        .on_job = status_add_job, .on_node = status_add_node, .on_rank = status_add_rank};
    json_t *jobs = json_array();
    if (s->rendezvous == NULL) return jobs;
    (void) rendezvous_visit(s->rendezvous, &events, jobs);
    rendezvous_watch_ranks(s->rendezvous);
    return jobs;
}

/* Returns this node's job in the list `jobs`. The list lacks the job if another node hosts it. In
 * that case this function first appends the job, with what this node knows of it. */
static json_t *own_job(const struct node_status *s, json_t *jobs) {
    const struct rendezvous_options *o = &s->job->rendezvous;
    size_t i;
    json_t *job, *id = status_json_text(o->run_id);
    json_array_foreach(jobs, i, job) {
        if (!json_equal(json_object_get(job, "id"), id)) continue;
        json_decref(id);
        return job;
    }
    const struct rendezvous_round *r = s->round;
    job = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:[]}", "id", id, "max_restarts",
                    (json_int_t) (r != NULL ? r->max_restarts : o->max_restarts), "restarts",
                    (json_int_t) (r != NULL ? r->restart_count : 0), "min_nodes",
                    (json_int_t) o->min_nodes, "max_nodes", (json_int_t) o->max_nodes, "awaited",
                    (json_int_t) 0, "nodes");
    (void) json_array_append_new(jobs, job);
    return job;
}

static void add_round(json_t *job, const struct node_status *s) {
    const struct rendezvous_round *r = s->round;
    (void) json_object_set_new(job, "title", status_json_text(s->job->title));
    (void) json_object_set_new(job, "role", status_json_text(s->job->rendezvous.role));
    (void) json_object_set_new(job, "group_state",
                               status_word(group_state_name(s->node->group.state)));
    if (r == NULL) return;
    (void) json_object_set_new(job, "round", json_integer((json_int_t) r->round));
    (void) json_object_set_new(job, "nodes_in_round", json_integer(r->group_world_size));
    (void) json_object_set_new(job, "world_size", json_integer(r->world_size));
    (void) json_object_set_new(job, "group_rank", json_integer(r->group_rank));
    (void) json_object_set_new(job, "first_rank", json_integer(r->first_rank));
}

static void add_ledger(json_t *job, struct history *history) {
    struct ledger *now = malloc(sizeof(*now));
    if (now == NULL) return;
    history_read(history, now);
    (void) json_object_set_new(job, "ledger", ledger_json(now));
    free(now);
}

json_t *node_status_snapshot(const struct node_status *s) {
    json_t *jobs = hosted_jobs(s), *job = own_job(s, jobs), *other;
    size_t k;
    add_round(job, s);
    for (uint32_t i = 0; i < s->job->rendezvous.local_world_size; i++) {
        status_put_rank(job, rank_json(s, i));
    }
    add_ledger(job, s->history);
    json_array_foreach(jobs, k, other) {
        if (json_object_get(other, "ranks") != NULL) status_judge(other);
    }
    return status_snapshot(jobs);
}

static int64_t ms_of(const json_t *rank, const char *name) {
    const json_t *value = json_object_get(rank, name);
    return value == NULL ? -1 : (int64_t) (json_number_value(value) * 1000);
}

static const char *text_of(const json_t *rank, const char *name) {
    const char *text = json_string_value(json_object_get(rank, name));
    return text != NULL ? text : "";
}

static uint64_t number_of(const json_t *rank, const char *name) {
    return (uint64_t) json_integer_value(json_object_get(rank, name));
}

void node_status_report(const struct node_status *s,
                        void (*take)(void *arg, const struct rendezvous_rank *rank), void *arg) {
    if (s->round == NULL) return;
    for (uint32_t i = 0; i < s->job->rendezvous.local_world_size; i++) {
        json_auto_t *rank = rank_json(s, i);
        double rate = json_number_value(json_object_get(rank, "steps_per_s"));
        const struct rendezvous_rank out = {
            .round = s->round->round, .rank = s->round->first_rank + i, .local_rank = i,
            .pid = (int64_t) number_of(rank, "pid"), .state = text_of(rank, "state"),
            .kernel_state = text_of(rank, "kernel_state"), .last_line = text_of(rank, "last_line"),
            .steps = number_of(rank, "step"), .steps_per_ks = (uint64_t) (rate * 1000),
            .rss_bytes = number_of(rank, "rss_bytes"),
            .step_age_ms = ms_of(rank, "step_age_s"),
            .output_age_ms = ms_of(rank, "output_age_s")};
        take(arg, &out);
    }
}

const char *node_status_why_not_ready(const struct node_status *s) {
    switch (s->node->group.state) {
    case GROUP_JOINING: return "joining: waits for a round";
    case GROUP_STOPPING: return "stopping: ends the workers";
    case GROUP_ENDED: return "ended";
    case GROUP_RUNNING:
    case GROUP_WAITING:
    case GROUP_STATE_COUNT: break;
    }
    return NULL;
}
