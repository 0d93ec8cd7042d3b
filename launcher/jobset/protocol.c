/* Implements launcher/jobset/protocol_internal.h. */
#include "launcher/jobset/protocol_internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_MIN_MS INT64_C(250)
#define PAUSE_MAX_MS INT64_C(30000)
#define GONE         410 /* HTTP status: the API server has forgotten the version */

/* the characters that a version may have, because it is written into a URL without escapes */
static const char url_safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
static const char group[] = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/";
static const char annotation[] = "jobset.sigs.k8s.io/in-place-restart-attempt";
static const char disabled[] = "jobset.sigs.k8s.io/disable-in-place-restart";

enum jobset_call jobset_next(const struct jobset_protocol *p) {
    if (p->is_over || p->is_bypassed) return JOBSET_NOTHING;
    if (p->version[0] == '\0') return JOBSET_READ;
    return p->is_announced ? JOBSET_WATCH : JOBSET_ANNOUNCE;
}

/* ---- taking answers ---- */

static void take_version(struct jobset_protocol *p, const json_t *object) {
    const json_t *metadata = json_object_get(object, "metadata");
    const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));
    bool is_usable = version != NULL && strlen(version) < sizeof(p->version) &&
                     version[strspn(version, url_safe)] == '\0';
    if (!is_usable) version = "";
    (void) snprintf(p->version, sizeof(p->version), "%s", version);
}

/* Returns an attempt of the JobSet's status, or -1 if the status does not have it. */
static int64_t attempt_in(const json_t *object, const char *name) {
    const json_t *value = json_object_get(json_object_get(object, "status"), name);
    bool is_attempt = json_is_integer(value) && json_integer_value(value) >= 0 &&
                      json_integer_value(value) < INT32_MAX;
    return is_attempt ? (int64_t) json_integer_value(value) : -1;
}

static bool restarts_in_place(const json_t *object) {
    const json_t *policy = json_object_get(json_object_get(object, "spec"), "failurePolicy");
    const char *strategy = json_string_value(json_object_get(policy, "restartStrategy"));
    const json_t *notes = json_object_get(json_object_get(object, "metadata"), "annotations");
    return strategy != NULL && strcmp(strategy, "InPlaceRestart") == 0 &&
           json_object_get(notes, disabled) == NULL;
}

/* Stores what this pod needs of the JobSet. The first JobSet that is read sets this pod's attempt:
 * 0 if the JobSet has not started yet, else one more than the current attempt. The attempt does not
 * change when ANNOUNCE is tried again, because an ANNOUNCE without an answer may have been carried
 * out. An object without a version is no JobSet, so it sets no attempt. */
static void take_jobset(struct jobset_protocol *p, const json_t *object) {
    int64_t current = attempt_in(object, "currentInPlaceRestartAttempt");
    take_version(p, object);
    p->has_current = current >= 0;
    p->current = current;
    p->previous = attempt_in(object, "previousInPlaceRestartAttempt");
    if (p->has_attempt || p->version[0] == '\0') return;
    p->is_bypassed = !restarts_in_place(object);
    p->has_attempt = !p->is_bypassed;
    p->attempt = current + 1;
}

static int fail_gone(struct jobset_protocol *p) {
    p->version[0] = '\0';
    return -ESTALE;
}

/* Takes an event of the watch: ADDED and MODIFIED have the JobSet; BOOKMARK has its version alone;
 * ERROR has a Kubernetes Status. DELETED changes nothing here, because the pod is deleted together
 * with its JobSet. */
static int take_event(struct jobset_protocol *p, const json_t *event, struct cr_error *err) {
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *object = json_object_get(event, "object");
    if (type == NULL || !json_is_object(object)) {
        return cr_fail(err, -EPROTO, "a line of the watch is no event");
    }
    if (strcmp(type, "ERROR") == 0) {
        json_int_t code = json_integer_value(json_object_get(object, "code"));
        p->version[0] = '\0';
        if (code == GONE) return fail_gone(p);
        return cr_fail(err, -EPROTO, "the watch has failed with HTTP %d", (int) code);
    }
    if (strcmp(type, "BOOKMARK") == 0) take_version(p, object);
    else if (strcmp(type, "DELETED") != 0) take_jobset(p, object);
    return 0;
}

int jobset_take(struct jobset_protocol *p, enum jobset_call call, const char *text, size_t len,
                struct cr_error *err) {
    json_auto_t *root = json_loadb(text, len, 0, NULL);
    if (!json_is_object(root)) return cr_fail(err, -EPROTO, "its answer is not JSON");
    if (call == JOBSET_WATCH) {
        int rc = take_event(p, root, err);
        if (rc == 0) p->failures = 0;
        return rc;
    }
    take_jobset(p, root);
    if (p->version[0] != '\0') return 0;
    return cr_fail(err, -EPROTO, "the JobSet has no resourceVersion");
}

void jobset_announced(struct jobset_protocol *p) { p->is_announced = true; }

int64_t jobset_ended(struct jobset_protocol *p, enum jobset_call call, int http_status,
                     bool is_good, uint32_t random) {
    if (call == JOBSET_WATCH && !is_good && http_status != 0) p->version[0] = '\0';
    /* A good READ does not reset the pause: READ may be allowed where WATCH is forbidden, and the
     * two calls would follow each other without a pause. */
    if (is_good && call != JOBSET_READ) p->failures = 0;
    if (is_good) return 0;
    if (http_status == GONE && p->failures++ == 0) return 0;
    int64_t pause_ms = PAUSE_MIN_MS;
    for (uint32_t i = 0; i < p->failures && pause_ms < PAUSE_MAX_MS; i++) pause_ms *= 2;
    p->failures++;
    if (pause_ms > PAUSE_MAX_MS) pause_ms = PAUSE_MAX_MS;
    return pause_ms / 2 + (int64_t) random % (pause_ms / 2);
}

bool jobset_order(struct jobset_protocol *p, enum jobset_order *order) {
    if (p->is_over) return false;
    if (p->is_announced && p->attempt <= p->previous) {
        p->is_over = true;
        *order = JOBSET_RESTART;
        return true;
    }
    bool is_lifted = p->is_announced && p->has_current && p->attempt == p->current;
    if (p->is_started || (!is_lifted && !p->is_bypassed)) return false;
    p->is_started = true;
    *order = JOBSET_START;
    return true;
}

/* ---- the texts of calls ---- */

void jobset_path(const struct jobset_protocol *p, const struct jobset_options *o,
                 enum jobset_call call, char out[JOBSET_PATH_MAX]) {
    if (call == JOBSET_ANNOUNCE) {
        (void) snprintf(out, JOBSET_PATH_MAX, "/api/v1/namespaces/%s/pods/%s", o->space, o->pod);
    } else if (call == JOBSET_READ) {
        (void) snprintf(out, JOBSET_PATH_MAX, "%s%s/jobsets/%s", group, o->space, o->name);
    } else {
        (void) snprintf(out, JOBSET_PATH_MAX,
                        "%s%s/jobsets?watch=1&fieldSelector=metadata.name%%3D%s&resourceVersion=%s"
                        "&allowWatchBookmarks=true&timeoutSeconds=%d",
                        group, o->space, o->name, p->version, JOBSET_WATCH_S);
    }
}

void jobset_patch(const struct jobset_protocol *p, char out[JOBSET_BODY_MAX]) {
    (void) snprintf(out, JOBSET_BODY_MAX,
                    "{\"metadata\": {\"annotations\": {\"%s\": \"%lld\"}}}", annotation,
                    (long long) p->attempt);
}
