/* Writes the cycle info files: implements agent/report/cycle_info.h. */
#include "agent/report/cycle_info.h"

#include "base/buffer.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "rendezvous/server.h"
#include "status/json_text.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the nodes ---- */

/* The hosts of this job, which are collected from the nodes that rendezvous_visit() visits. A
 * coordinator's host may have other jobs, too. */
struct hosts {
    const char *run_id;
    bool is_ours; /* true while nodes of this job are visited */
    struct cr_buffer active, standby; /* names with commas between them */
};

static void on_job(void *arg, const struct rdzv_status_job *job) {
    struct hosts *h = arg;
    h->is_ours = strcmp(job->run_id, h->run_id) == 0;
}

static void add(struct cr_buffer *list, const char *host) {
    if (list->len > 0) (void) cr_buffer_append(list, ",", 1);
    (void) cr_buffer_append(list, host, strlen(host));
}

static void on_node(void *arg, const struct rdzv_status_node *node) {
    struct hosts *h = arg;
    bool is_fit = node->unfit == NULL || node->unfit[0] == '\0';
    if (h->is_ours && node->group_rank >= 0) add(&h->active, node->host);
    else if (h->is_ours && is_fit) add(&h->standby, node->host);
}

static json_t *text_of(const struct cr_buffer *list) {
    return list->len > 0 ? json_stringn(list->data, list->len) : json_string("");
}

/* ---- the files ---- */

/* Returns the job's id in the form of NVRx: the id of the Slurm job, or the run id if there is
 * none. */
static const char *job_id(const struct cycle_info *c) {
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *job = getenv("SLURM_JOB_ID");
    if (array != NULL && array[0] != '\0') return array;
    return job != NULL && job[0] != '\0' ? job : c->run_id;
}

/* Writes `file` to a temporary path and renames it to `path`, so that no reader sees an incomplete
 * file. Returns 0 or a negative errno. */
static int replace(const char *path, const json_t *file) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof(part), "%s.tmp", path) >= (int) sizeof(part)) return -ENAMETOOLONG;
    errno = 0;
    bool ok = json_dump_file(file, part, JSON_INDENT(2)) == 0 && rename(part, path) == 0;
    return ok ? 0 : -(errno != 0 ? errno : EIO);
}

/* Makes the link `cycle_info.JOB.current` point to the file `name`. */
static int point_to(const char *folder, const char *job, const char *name) {
    char link[PATH_MAX], part[PATH_MAX];
    int len = snprintf(link, sizeof(link), "%s/cycle_info.%s.current", folder, job);
    if (len < 0 || len + 4 >= (int) sizeof(link)) return -ENAMETOOLONG;
    (void) snprintf(part, sizeof(part), "%.*s.tmp", (int) sizeof(part) - 5, link);
    (void) unlink(part);
    return symlink(name, part) < 0 || rename(part, link) < 0 ? -errno : 0;
}

static void write_file(const struct cycle_info *c, bool is_new) {
    char name[NAME_MAX + 1], path[PATH_MAX];
    const char *job = json_string_value(json_object_get(c->file, "job_id"));
    (void) snprintf(name, sizeof(name), "cycle_info.%.150s.%lld.%lld", job,
                    (long long) json_integer_value(json_object_get(c->file, "attempt_index")),
                    (long long) json_integer_value(json_object_get(c->file, "cycle_number")));
    int len = snprintf(path, sizeof(path), "%s/%s", c->folder, name);
    int rc = len < 0 || len >= (int) sizeof(path) ? -ENAMETOOLONG : replace(path, c->file);
    if (rc == 0 && is_new) rc = point_to(c->folder, job, name);
    if (rc < 0) {
        cr_warn("cannot write the cycle info file '%.300s/%s': %s; make the folder, or give "
                "another --cycle-info-dir", c->folder, name, strerror(-rc));
    }
}

/* ---- the calls of cycle_info.h ---- */

void cycle_info_begin(struct cycle_info *c, const struct rendezvous *r,
                      const struct rendezvous_round *round, const char *host,
                      const char *log_folder) {
    static const struct rendezvous_status_events events = {.on_job = on_job, .on_node = on_node};
    struct hosts hosts = {.run_id = c->run_id};
    const char *count = getenv("SLURM_RESTART_COUNT");
    int attempt = count != NULL ? (int) strtol(count, NULL, 10) : 0;
    char now[CR_UTC_TEXT_MAX], ranks[32];
    if (c->folder == NULL) return;
    cycle_info_end(c);
    if (!rendezvous_visit(r, &events, &hosts)) add(&hosts.active, host);
    cr_utc_text(now, cr_wall_ns(), 6);
    (void) snprintf(ranks, sizeof(ranks), "0-%u", round->group_world_size - 1);
    if (round->group_world_size == 1) ranks[1] = '\0';
    c->file = json_pack(
        "{s:o, s:i, s:I, s:s, s:s, s:o, s:o, s:o, s:s, s:I}", "job_id",
        status_json_text(job_id(c)), "attempt_index", attempt,
        "cycle_number", (json_int_t) round->round, "cycle_start_time", now, "cycle_end_time", "",
        "cycle_log_file", status_json_text(log_folder), "active_nodes", text_of(&hosts.active),
        "standby_nodes", text_of(&hosts.standby), "active_ranks", ranks, "generation",
        (json_int_t) 0);
    cr_buffer_done(&hosts.active);
    cr_buffer_done(&hosts.standby);
    if (c->file != NULL) write_file(c, true);
}

void cycle_info_end(struct cycle_info *c) {
    char now[CR_UTC_TEXT_MAX];
    if (c->file == NULL) return;
    cr_utc_text(now, cr_wall_ns(), 6);
    (void) json_object_set_new(c->file, "cycle_end_time", json_string(now));
    (void) json_object_set_new(c->file, "generation", json_integer(1));
    write_file(c, false);
    json_decref(c->file);
    c->file = NULL;
}
