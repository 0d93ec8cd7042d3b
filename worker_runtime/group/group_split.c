/* Makes a group by splitting the parent: the first group of all ranks in this round whose backend
 * can split. A split is faster than to connect without one, because the ranks need not exchange ids
 * through the store, and the backend can use what the parent has.
 *
 * Every rank of the parent must take part in the split, also a rank outside the new group: if one
 * rank were missing, the others would hang. So all ranks first agree whether to split, by two keys
 * of the new group:
 *
 *   split/<parent>/willing   number of ranks that are ready to split
 *   split/decision           "split", set by the last rank that becomes ready; or "fresh", set by
 *                            the first rank that cannot split or has waited too long. The key is
 *                            set only once, and all ranks follow it.
 *
 * If this round has had no parent, no function in this file uses the store. */
#include "worker_runtime/group/group.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time in ms that a rank waits until the other ranks are ready to split; after it, the rank
 * sets the decision to "fresh". This limit is needed because a rank outside the new group may call
 * crunrt_group_new() much later than the others, and must not delay the group. */
#define PATIENCE_MS INT64_C(10000)

static const char decision_key[] = "split/decision";

void group_split_offer(struct crunrt_group *g) {
    struct rt_whole_group *w = &g->rt->whole;
    if (g->backend->split == NULL || g->is_foreign || g->size != g->rt->place.world_size) return;
    if (w->group != NULL) return;
    w->backend = g->backend;
    w->group = g;
    w->number = g->number;
}

void group_split_withdraw(struct crunrt_group *g) {
    if (g->rt->whole.group == g) g->rt->whole.group = NULL;
}

static bool can_take_part(const struct crunrt_group *g, const struct backend_group *b) {
    const struct crunrt_group *parent = g->rt->whole.group;
    if (parent == NULL || parent->broken.code != 0 || parent->unfinished > 0) return false;
    if (g->rank >= 0 && g->backend != parent->backend) return false;
    return parent->backend->can_split(parent->state, b) != 0;
}

static bool is_split(const void *text, size_t len) {
    return len == 5 && memcmp(text, "split", 5) == 0;
}

/* Sets the decision to `word`, unless another rank has set it before. Returns 1 if the decision is
 * "split", 0 if it is "fresh", or the store's error. */
static int decide(struct crunrt_group *g, const char *word) {
    void *held = NULL;
    size_t len = 0;
    int rc =
        crunrt_store_compare_set(g->store, decision_key, "", 0, word, strlen(word), &held, &len);
    if (rc == 0) rc = is_split(held, len);
    free(held);
    return rc;
}

static int wait_for_decision(struct crunrt_group *g, struct cr_error *err) {
    int64_t patience = g->timeout_ms / 2 < PATIENCE_MS ? g->timeout_ms / 2 : PATIENCE_MS;
    int rc = group_wait_for_key(g, decision_key, patience, err);
    if (rc == -ETIMEDOUT) return decide(g, "fresh");
    /* The new group has failed. This is no error on a rank outside the group (rank -1), because
     * such a rank does not use the group. */
    if (rc == -ECONNRESET && g->rank < 0) return 0;
    if (rc < 0) return rc;
    CR_AUTO_FREE void *value = NULL;
    void *got = NULL;
    size_t len = 0;
    rc = crunrt_store_get(g->store, decision_key, g->timeout_ms, &got, &len);
    value = got;
    return rc < 0 ? rc : is_split(value, len);
}

static int agree(struct crunrt_group *g, bool willing, struct cr_error *err) {
    if (!willing) return decide(g, "fresh");
    char key[64];
    int64_t count = 0;
    (void) snprintf(key, sizeof(key), "split/%llu/willing",
                    (unsigned long long) g->rt->whole.number);
    int rc = crunrt_store_add(g->store, key, 1, &count);
    if (rc < 0) return rc;
    if (count == g->rt->place.world_size) return decide(g, "split");
    return wait_for_decision(g, err);
}

int group_split(struct crunrt_group *g, const struct backend_group *b, struct cr_error *err) {
    if (g->rt->whole.backend == NULL) return 0;
    int rc = agree(g, can_take_part(g, b), err);
    (void) group_store_failure(rc, err);
    if (rc <= 0) return rc;
    struct crunrt_group *parent = g->rt->whole.group;
    rc = parent->backend->split(parent->state, b, &g->state, err);
    if (rc == 0) return 1;
    char what[sizeof(g->name) + 32];
    struct cr_error cause = *err;
    (void) snprintf(what, sizeof(what), "split for the group '%s'", g->name);
    (void) group_break(parent, what, what, &cause);
    *err = cause;
    return rc;
}
