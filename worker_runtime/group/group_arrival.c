/* Waits until all ranks of a group have arrived at the same point, for the making of a group and
 * for crunrt_group_monitored_barrier().
 *
 * To arrive, a rank sets the key <phase>/<rank> and adds 1 to <phase>/count. The key <phase>/ready
 * contains the decision, which is written only once: "ok" by the last rank that arrives, or a
 * failure by the first rank that times out. All ranks follow the decision, so either all succeed or
 * all fail. */
#include "worker_runtime/group/group.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Sets the decision to `word`, unless another rank has set it before. Returns 0 if the decision is
 * "ok", whichever rank has set it; otherwise an error. */
static int decide_arrival(struct crunrt_group *g, const char *ready, const char *word,
                          struct cr_error *err) {
    void *held = NULL;
    int rc = crunrt_store_compare_set(g->store, ready, "", 0, word, strlen(word), &held, NULL);
    CR_AUTO_FREE char *text = held;
    if (rc < 0) return group_store_failure(rc, err);
    if (strcmp(text, "ok") == 0) return 0;
    return cr_fail(err, -ECONNRESET, "another rank failed: %s", text);
}

/* Call this if this rank has timed out. It sets the decision to a failure, so that all ranks fail,
 * and returns an error. If the last rank has meanwhile arrived and set the decision to "ok", it
 * returns 0. */
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
    /* This rank is the last one to arrive. If a rank has failed after it had arrived, the decision
     * must not be "ok". */
    if (rc == 0 && arrived == g->size) {
        rc = group_failed(g, err);
        return rc < 0 ? rc : decide_arrival(g, ready, "ok", err);
    }
    if (rc < 0) return group_store_failure(rc, err);
    rc = group_wait_for_key(g, ready, timeout_ms, err);
    if (rc == -ETIMEDOUT) return give_up_arrival(g, phase, ready, timeout_ms, err);
    /* The decision is set and never changes, so this call only reads it. */
    return rc < 0 ? rc : decide_arrival(g, ready, "ok", err);
}

/* ---- lists of ranks ---- */

#define LIST_SHOWN 24 /* largest number of ranks of a list that a text shows */

static uint64_t hash_of(const int *ranks, size_t count) {
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint64_t) (ranks != NULL ? ranks[i] : (int) i)) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
    }
    return hash;
}

/* Writes to `out` a hash of the list ranks[count], then this process's rank, then the list itself.
 * For example: "8f14e45fceea167a rank 2: {0, 2, 4}". */
static void describe_list(const struct crunrt_group *g, const int *ranks, size_t count,
                          char out[256]) {
    if (ranks == NULL) count = (size_t) g->rt->place.world_size;
    size_t len = (size_t) snprintf(out, 256, "%016llx rank %d: {",
                                   (unsigned long long) hash_of(ranks, count), g->rt->place.rank);
    for (size_t i = 0; i < count && i < LIST_SHOWN && len < 200; i++)
        len += (size_t) snprintf(out + len, 256 - len, "%s%d", i > 0 ? ", " : "",
                                 ranks != NULL ? ranks[i] : (int) i);
    if (count > LIST_SHOWN)
        len += (size_t) snprintf(out + len, 256 - len, ", … %zu ranks", count);
    (void) snprintf(out + len, 256 - len, "}");
}

int group_compare_lists(struct crunrt_group *g, const int *ranks, size_t count,
                        struct cr_error *err) {
    char mine[256];
    void *held = NULL;
    size_t len = 0;
    if (g->rt->place.world_size == 1) return 0;
    describe_list(g, ranks, count, mine);
    group_limit_store(g, g->timeout_ms);
    int rc = crunrt_store_compare_set(g->store, "members", "", 0, mine, strlen(mine), &held, &len);
    CR_AUTO_FREE char *first = held;
    if (rc < 0) return group_store_failure(rc, err);
    if (len < 17 || strncmp(first, mine, 16) == 0) return 0;
    return cr_fail(err, -EPROTO, GROUP_LISTS_DIFFER " for this group: %s, but %s", first + 17,
                   mine + 17);
}

/* ---- the monitored barrier ---- */

/* Deletes the keys of the monitored barrier `number`. A rank calls this when it leaves the barrier
 * `number` + 2. By then, all ranks have entered the barrier `number` + 2, so all have left the
 * barrier `number`, and no rank reads its keys any more. */
static void delete_barrier_keys(struct crunrt_group *g, uint32_t number) {
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
                       "monitored barrier in group '%s': the group is already broken: %s",
                       group->name, group->broken.text);
    }
    char phase[48];
    uint32_t number = group->barriers++;
    (void) snprintf(phase, sizeof(phase), "barrier%u", number);
    group->in_monitored_barrier = true;
    int rc = group_arrive(group, phase, rt_timeout(timeout_ms, group->timeout_ms), err);
    group->in_monitored_barrier = false;
    if (rc < 0) {
        struct cr_error cause = *err;
        (void) snprintf(phase, sizeof(phase), "monitored barrier #%u", number);
        rc = group_break(group, phase, phase, &cause);
        *err = cause;
        return rc;
    }
    if (number >= 2) delete_barrier_keys(group, number - 2);
    return 0;
}
