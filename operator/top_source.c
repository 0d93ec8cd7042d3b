/* Where crun-agent top gets its snapshots from: implements the first half of top_internal.h. */
#include "operator/operator_internal.h"
#include "operator/top_internal.h"

#include "status/attach.h"
#include "status/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Longest time in ms for a coordinator's answer. top tries HOST:PORT first as a coordinator, then
 * as a status address. An HTTP server does not answer the first try, because it waits for the rest
 * of a request. The user has to wait for all of this time, so it is short. */
#define COORDINATOR_TIMEOUT_MS 3000
#define LOOK_TIMEOUT_MS 1000 /* longest time in ms for all crun processes of this host to answer */

/* ---- jobs of this host ---- */

/* Returns the job of the crun that made the snapshot: the only job of the snapshot that says what
 * the crun's own node does. Returns NULL if the snapshot has no such job. */
static json_t *own_job(const json_t *snapshot) {
    size_t i;
    json_t *job;
    json_array_foreach(json_object_get(snapshot, "jobs"), i, job) {
        if (json_object_get(job, "group_state") != NULL) return job;
    }
    return NULL;
}

static const char *id_of(const json_t *snapshot) {
    const char *id = json_string_value(json_object_get(own_job(snapshot), "id"));
    return id != NULL ? id : "";
}

/* Checks that all snapshots are of one job. Returns 0; or -EINVAL, and sets err to a text that
 * lists the jobs. */
static int check_one_job(const json_t *found, struct cr_error *err) {
    char list[512] = "";
    size_t i, used = 0;
    const json_t *snapshot;
    bool is_one = true;
    json_array_foreach(found, i, snapshot) {
        if (strcmp(id_of(snapshot), id_of(json_array_get(found, 0))) != 0) is_one = false;
        int n = snprintf(list + used, sizeof(list) - used, "%s'%.64s'", i > 0 ? ", " : "",
                         id_of(snapshot));
        if (n > 0 && (size_t) n < sizeof(list) - used) used += (size_t) n;
    }
    if (is_one) return 0;
    return cr_fail(err, -EINVAL, "several jobs run on this host: %s; give one of these ids", list);
}

/* Merges the snapshots of those nodes of one job that run on this host: adds all ranks to one of
 * the snapshots. This is the snapshot of the node that hosts the rendezvous or, if that node runs
 * elsewhere, the first one. Returns a new reference to this snapshot. */
static json_t *merge(const json_t *found) {
    json_t *result = json_array_get(found, 0), *snapshot, *rank;
    size_t i, j;
    json_array_foreach(found, i, snapshot) {
        if (json_array_size(json_object_get(own_job(snapshot), "nodes")) > 0) result = snapshot;
    }
    json_array_foreach(found, i, snapshot) {
        if (snapshot == result) continue;
        json_array_foreach(json_object_get(own_job(snapshot), "ranks"), j, rank) {
            status_put_rank(own_job(result), json_incref(rank));
        }
    }
    if (json_array_size(found) > 1) status_judge(own_job(result));
    return json_incref(result);
}

static int read_here(const struct top_source *s, json_t **out, struct cr_error *err) {
    json_auto_t *found = status_find(s->target, LOOK_TIMEOUT_MS);
    if (json_array_size(found) == 0) {
        return cr_fail(err, -ESRCH,
                       s->target == NULL
                           ? "no job of this user runs on this host%s; give HOST:PORT or unix:PATH"
                           : "there is no job '%.200s' on this host; give its id, HOST:PORT or "
                             "unix:PATH",
                       s->target == NULL ? "" : s->target);
    }
    int rc = check_one_job(found, err);
    if (rc == 0) *out = merge(found);
    return rc;
}

/* ---- a coordinator ---- */

static int read_coordinator(const struct top_source *s, json_t **out, struct cr_error *err) {
    static const struct rendezvous_status_events events = {.on_job = status_add_job,
                                                           .on_node = status_add_node};
    json_t *jobs = json_array();
    int rc = rendezvous_status(&s->endpoint, COORDINATOR_TIMEOUT_MS, &events, jobs, err);
    if (rc < 0) json_decref(jobs);
    else *out = status_snapshot(jobs);
    if (rc == 0 && *out == NULL) rc = cr_fail(err, -ENOMEM, "no memory left");
    return rc;
}

/* ---- choosing ---- */

int top_source_read(const struct top_source *s, json_t **out, struct cr_error *err) {
    switch (s->kind) {
    case TOP_HERE: return read_here(s, out, err);
    case TOP_COORDINATOR: return read_coordinator(s, out, err);
    case TOP_ADDRESS: break;
    }
    return status_fetch(s->target, OPERATOR_TIMEOUT_MS, out, err);
}

static bool is_address(const char *target) {
    return strncmp(target, "unix:", 5) == 0 || strncmp(target, "http://", 7) == 0;
}

int top_source_open(struct top_source *s, const char *target, json_t **out, struct cr_error *err) {
    struct cr_error other = {0};
    *s = (struct top_source){.kind = TOP_HERE, .target = target};
    if (target != NULL && is_address(target)) s->kind = TOP_ADDRESS;
    int rc = top_source_read(s, out, err);
    if (rc != -ESRCH || target == NULL || strchr(target, ':') == NULL) return rc;
    if (cr_endpoint_parse(target, OPERATOR_PORT, &s->endpoint, &other) < 0) return rc;
    s->kind = TOP_COORDINATOR;
    rc = top_source_read(s, out, err);
    if (rc != -EPROTO && rc != -ETIMEDOUT) return rc;
    s->kind = TOP_ADDRESS; /* no coordinator answers at HOST:PORT */
    return status_fetch(target, OPERATOR_TIMEOUT_MS, out, &other) == 0 ? 0 : rc;
}
