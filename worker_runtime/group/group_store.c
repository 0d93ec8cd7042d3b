/* What a group keeps in the store, under crunrt/<attempt>/pg/<number>/:
 *
 *   <phase>/<rank>     set by each rank that arrived        <phase>/count
 *   <phase>/ready      "ok", by the last to arrive, or why not, by the first whose time was up
 *   split/…            whether it is made by splitting another, see group_split.c
 *   backend/<key>      the backend's own: addresses, ids
 *   state/<rank>       "all_reduce(float32 x 1000, sum) #17": what a rank was in when the group broke
 *   failure            what the first rank to fail had to say
 *
 * The number counts the groups of the attempt, so no key ever serves two groups. */
#include "worker_runtime/group/group.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only while a group is being made, where nothing else tells that a rank gave up; from one to the
 * other, doubling. */
#define FAILURE_LOOK_FIRST_MS INT64_C(10)
#define FAILURE_LOOK_EVERY_MS INT64_C(200)

#define STORE_ANSWERS_MS INT64_C(5000)

/* ---- the backend's corner ---- */

static int from_store(int rc, struct cr_error *err) {
    if (rc < 0 && err != NULL && err != rt_last_error()) *err = *rt_last_error();
    return rc;
}

static int backend_key(const struct crunrt_group *g, const char *key, char out[128],
                       struct cr_error *err) {
    int n = snprintf(out, 128, "%s%s", g->foreign ? "" : "backend/", key);
    return n < 128 ? 0 : cr_fail(err, -EINVAL, "use the key '%s': too long", key);
}

static int on_set(void *arg, const char *key, const void *value, size_t len, struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    return rc < 0 ? rc : from_store(crunrt_store_set(g->store, full, value, len), err);
}

int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms), look_ms = FAILURE_LOOK_FIRST_MS;
    for (;; look_ms = look_ms * 2 < FAILURE_LOOK_EVERY_MS ? look_ms * 2 : FAILURE_LOOK_EVERY_MS) {
        int64_t left = cr_time_left_ms(deadline);
        int64_t slice = left < look_ms ? left : look_ms;
        int rc = crunrt_store_wait(g->store, &key, 1, slice);
        if (rc != -ETIMEDOUT) return from_store(rc, err);
        if (slice == left) {
            return cr_fail(err, -ETIMEDOUT, "wait for '%s%s' in the store: timed out after %lld ms",
                           g->store->prefix, key, (long long) timeout_ms);
        }
        rc = group_failed(g, err);
        if (rc < 0) return rc;
    }
}

static int on_get(void *arg, const char *key, int64_t timeout_ms, void **value, size_t *len,
                  struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    if (rc == 0) rc = group_wait_for_key(g, full, timeout_ms, err);
    return rc < 0 ? rc : from_store(crunrt_store_get(g->store, full, timeout_ms, value, len), err);
}

static int on_wait(void *arg, const char *const *keys, size_t key_count, int64_t timeout_ms,
                   struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms);
    for (size_t i = 0; i < key_count; i++) {
        struct crunrt_group *g = arg;
        char full[128];
        int rc = backend_key(g, keys[i], full, err);
        if (rc == 0) rc = group_wait_for_key(g, full, cr_time_left_ms(deadline), err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int on_add(void *arg, const char *key, int64_t delta, int64_t *total, struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    return rc < 0 ? rc : from_store(crunrt_store_add(g->store, full, delta, total), err);
}

static int on_remove(void *arg, const char *key, struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    return rc < 0 ? rc : from_store(crunrt_store_delete(g->store, full, NULL), err);
}

int group_failed(struct crunrt_group *g, struct cr_error *err) {
    const char *key = "failure";
    int present = 0;
    if (rt_round_is_over(g->rt)) {
        return cr_fail(err, -ECONNRESET,
                       "the agent says that the round is over: a worker failed; call "
                       "crunrt_rejoin() or end");
    }
    if (crunrt_store_check(g->store, &key, 1, &present) < 0 || !present) return 0;
    CR_AUTO_FREE char *text = NULL;
    void *value = NULL;
    if (crunrt_store_get(g->store, key, 0, &value, NULL) == 0) text = value;
    return cr_fail(err, -ECONNRESET, "another rank failed: %s", text != NULL ? text : "(unknown)");
}

static int on_failed(void *arg, struct cr_error *err) {
    group_limit_store(arg, 0); /* whoever asks has a deadline of its own */
    return group_failed(arg, err);
}

void group_limit_store(struct crunrt_group *g, int64_t timeout_ms) {
    int64_t most = g->rt->store->timeout_ms;
    int64_t wanted = timeout_ms < STORE_ANSWERS_MS ? STORE_ANSWERS_MS : timeout_ms;
    g->store->timeout_ms = wanted < most ? wanted : most;
}

struct backend_store group_backend_store(struct crunrt_group *g) {
    return (struct backend_store){g, on_set, on_get, on_wait, on_add, on_remove, on_failed};
}

/* ---- arrival ---- */

static int fail_with_absent(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                            struct cr_error *err) {
    char names[256] = "";
    int rc = group_absent_ranks(g, phase, names, sizeof(names));
    if (rc < 0)
        return cr_fail(err, -ETIMEDOUT, "%s timed out after %lld ms", phase,
                       (long long) timeout_ms);
    return cr_fail(err, -ETIMEDOUT, "%s timed out after %lld ms: no sign of rank %s of %d", phase,
                   (long long) timeout_ms, names, g->size);
}

int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size) {
    size_t len = 0;
    int absent = 0;
    out[0] = '\0';
    for (int r = 0; r < g->size; r++) {
        char key[64];
        (void) snprintf(key, sizeof(key), "%s/%d", phase, r);
        const char *one = key;
        int present = 0;
        int rc = crunrt_store_check(g->store, &one, 1, &present);
        if (rc < 0) return rc;
        if (present) continue;
        absent++;
        if (absent > GROUP_NAMED_MAX) continue;
        int n = snprintf(out + len, out_size - len, "%s%d", absent > 1 ? ", " : "", r);
        if (n > 0 && (size_t) n < out_size - len) len += (size_t) n;
    }
    if (absent > GROUP_NAMED_MAX) {
        (void) snprintf(out + len, out_size - len, " and %d more", absent - GROUP_NAMED_MAX);
    }
    return absent;
}

/* The first word stands, so that all pass or none. 0: they pass. */
static int decide_arrival(struct crunrt_group *g, const char *ready, const char *word,
                          struct cr_error *err) {
    void *held = NULL;
    int rc = crunrt_store_compare_set(g->store, ready, "", 0, word, strlen(word), &held, NULL);
    CR_AUTO_FREE char *text = held;
    if (rc < 0) return from_store(rc, err);
    if (strcmp(text, "ok") == 0) return 0;
    return cr_fail(err, -ECONNRESET, "another rank failed: %s", text);
}

static int give_up_arrival(struct crunrt_group *g, const char *phase, const char *ready,
                           int64_t timeout_ms, struct cr_error *err) {
    char word[CR_ERROR_TEXT_MAX + 32];
    struct cr_error own = {0}, decided = {0};
    (void) fail_with_absent(g, phase, timeout_ms, &own);
    (void) snprintf(word, sizeof(word), "rank %d: %s", g->rank, own.text);
    int rc = decide_arrival(g, ready, word, &decided);
    if (rc == 0) return 0;
    *err = strstr(decided.text, word) != NULL || rc != -ECONNRESET ? own : decided;
    return err->code;
}

int group_arrive(struct crunrt_group *g, const char *phase, int64_t timeout_ms,
                 struct cr_error *err) {
    char mine[64], count[64], ready[64];
    (void) snprintf(mine, sizeof(mine), "%s/%d", phase, g->rank);
    (void) snprintf(count, sizeof(count), "%s/count", phase);
    (void) snprintf(ready, sizeof(ready), "%s/ready", phase);
    int64_t arrived = 0;
    group_limit_store(g, timeout_ms);
    int rc = crunrt_store_set(g->store, mine, "", 0);
    if (rc == 0) rc = crunrt_store_add(g->store, count, 1, &arrived);
    if (rc == 0 && arrived == g->size) {
        rc = group_failed(g, err); /* the others may have given up: then none passes */
        return rc < 0 ? rc : decide_arrival(g, ready, "ok", err);
    }
    if (rc < 0) return from_store(rc, err);
    rc = group_wait_for_key(g, ready, timeout_ms, err);
    if (rc == -ETIMEDOUT) return give_up_arrival(g, phase, ready, timeout_ms, err);
    return rc < 0 ? rc : decide_arrival(g, ready, "ok", err); /* it is there: this reads it */
}

/* Whoever is in a barrier is through with the last one, so all are through with the one before. */
static void forget_arrival(struct crunrt_group *g, uint32_t number) {
    char key[64];
    (void) snprintf(key, sizeof(key), "barrier%u/%d", number, g->rank);
    (void) crunrt_store_delete(g->store, key, NULL);
    if (g->rank != 0) return;
    (void) snprintf(key, sizeof(key), "barrier%u/count", number);
    (void) crunrt_store_delete(g->store, key, NULL);
    (void) snprintf(key, sizeof(key), "barrier%u/ready", number);
    (void) crunrt_store_delete(g->store, key, NULL);
}

int crunrt_group_monitored_barrier(crunrt_group *group, int64_t timeout_ms) {
    struct cr_error *err = rt_last_error();
    if (group == NULL) return rt_fail_null("monitored barrier", "the group");
    if (group->broken.code != 0) {
        return cr_fail(err, -EPIPE,
                       "monitored barrier in group '%s': the group is broken since: %s",
                       group->name, group->broken.text);
    }
    char phase[48];
    uint32_t number = group->barriers++;
    (void) snprintf(phase, sizeof(phase), "barrier%u", number);
    int rc = group_arrive(group, phase, rt_timeout(timeout_ms, group->timeout_ms), err);
    if (rc < 0) {
        struct cr_error cause = *err;
        (void) snprintf(phase, sizeof(phase), "monitored barrier #%u", number);
        rc = group_break(group, phase, phase, &cause);
        *err = cause;
        return rc;
    }
    if (number >= 2) forget_arrival(group, number - 2);
    return 0;
}
