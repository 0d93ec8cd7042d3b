/* Making a group by splitting the first group of all ranks, its parent. A split needs no exchange
 * of ids and no new bootstrap.
 *
 * Every rank of the parent must take part in the split, whether it is in the new group or not: if
 * one did not, the others would hang. So all ranks agree first, by two of the new group's keys:
 *
 *   split/<parent>/willing   how many ranks are ready to split
 *   split/decision           "split", set by the last of these ranks; or "fresh", set by the first
 *                            rank that cannot split or has waited too long. Set once; all ranks
 *                            obey it.
 *
 * The parent is the first group of all ranks in this round whose backend can split. As long as
 * there is none, nothing here uses the store. */
#include "worker_runtime/group/group.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank waits for all others before it sets "fresh". A rank outside the new group may
 * come late to crunrt_group_new(), and the group's own ranks need not wait for it longer than this.
 * */
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

/* Sets the decision to `word` if there is none yet. 1: it is "split"; 0: it is "fresh"; or the
 * store's failure. */
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
    if (rc == -ECONNRESET && g->rank < 0) return 0; /* the group fails without us */
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
