/* One rank's failure becomes everybody's, promptly and with a name.
 *
 * The rank that notices breaks its connections, so the failure runs through the group as fast as
 * sockets close. Each leaves state/<rank> in the store; who leaves none within a short grace is
 * dead or hangs, and is named. The first to write `failure` is the first that noticed; the others
 * quote it. After a timeout the notes are compared: ranks that made different calls wait for each
 * other in vain. */
#include "worker_runtime/report/report.h"
#include "worker_runtime/group/group.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the others have to say that they are alive. After a timeout they all come to their own
 * at about the same time; after a broken connection they hear of it in milliseconds. */
#define GRACE_AFTER_TIMEOUT_MS INT64_C(1000)
#define GRACE_AFTER_RESET_MS   INT64_C(100)
#define GRACE_BY_AGENT_MS      INT64_C(50) /* it knows who died, and starts the next round meanwhile */

/* Asking about each rank costs a request a rank. */
#define ASK_RANKS_MAX 512
#define OTHERS_MAX    2 /* calls of other ranks in a text */

/* Best effort: the store may be gone. */
static void leave_state(struct crunrt_group *g, const char *doing) {
    char key[32];
    (void) snprintf(key, sizeof(key), "state/%d", g->rank);
    (void) crunrt_store_set(g->store, key, doing, strlen(doing));
}

void group_tell_failure(struct crunrt_group *g, const char *own, char *out, size_t out_size) {
    CR_AUTO_FREE char *first = NULL;
    size_t len = 0;
    void *held = NULL;
    out[0] = '\0';
    if (crunrt_store_compare_set(g->store, "failure", "", 0, own, strlen(own), &held, &len) < 0)
        return;
    first = held;
    if (strcmp(first, own) != 0) (void) snprintf(out, out_size, "%s", first);
}

static int64_t grace_ms(const struct crunrt_group *g, int code) {
    if (code == -ETIMEDOUT) return GRACE_AFTER_TIMEOUT_MS;
    return g->rt->channel.page != NULL ? GRACE_BY_AGENT_MS : GRACE_AFTER_RESET_MS;
}

/* "" or "no sign of rank 2". */
static void find_silent(struct crunrt_group *g, int64_t grace_ms, char *out, size_t out_size) {
    out[0] = '\0';
    if (g->size > ASK_RANKS_MAX) return;
    CR_AUTO_FREE char(*keys)[32] = calloc((size_t) g->size, sizeof(*keys));
    CR_AUTO_FREE const char **list = calloc((size_t) g->size, sizeof(*list));
    if (keys == NULL || list == NULL) return;
    for (int r = 0; r < g->size; r++) {
        (void) snprintf(keys[r], sizeof(keys[r]), "state/%d", r);
        list[r] = keys[r];
    }
    char names[256];
    if (crunrt_store_wait(g->store, list, (size_t) g->size, grace_ms) != -ETIMEDOUT) return;
    if (group_absent_ranks(g, "state", names, sizeof(names)) <= 0) return;
    (void) snprintf(out, out_size, "; no sign of rank %s", names);
}

/* "" or "; rank 1 was in broadcast(float32 x 64, root 0) #17", of those that left a note. */
static void find_others(struct crunrt_group *g, const char *doing, char *out, size_t out_size) {
    size_t len = 0;
    int found = 0;
    out[0] = '\0';
    for (int r = 0; r < g->size && g->size <= ASK_RANKS_MAX; r++) {
        char key[32];
        void *value = NULL;
        (void) snprintf(key, sizeof(key), "state/%d", r);
        int rc = r == g->rank ? -ETIMEDOUT : crunrt_store_get(g->store, key, 0, &value, NULL);
        if (rc < 0 && rc != -ETIMEDOUT) return;
        CR_AUTO_FREE char *theirs = value;
        if (rc < 0 || strcmp(theirs, doing) == 0) continue;
        if (++found > OTHERS_MAX) continue;
        int n = snprintf(out + len, out_size - len, "; rank %d was in %s", r, theirs);
        if (n > 0 && (size_t) n < out_size - len) len += (size_t) n;
    }
    if (found > OTHERS_MAX) {
        (void) snprintf(out + len, out_size - len, ", %d more in other calls", found - OTHERS_MAX);
    }
}

int group_break(struct crunrt_group *g, const char *what, const char *doing, struct cr_error *err) {
    struct cr_error cause = *err; /* the store's calls below write the thread's text */
    if (g->state != NULL) g->backend->abort(g->state);
    cause.code = rt_pipe_to_reset(cause.code, &cause);
    group_limit_store(g, 0);

    char own[CR_ERROR_TEXT_MAX + 64], first[CR_ERROR_TEXT_MAX / 2], silent[320], others[320] = "";
    (void) snprintf(own, sizeof(own), "rank %d: %s: %s", g->rank, what, cause.text);
    leave_state(g, doing);
    group_tell_failure(g, own, first, sizeof(first));
    find_silent(g, grace_ms(g, cause.code), silent, sizeof(silent));
    if (cause.code == -ETIMEDOUT) find_others(g, doing, others, sizeof(others));

    (void) cr_fail(&g->broken, cause.code, "%s in group '%s' (%s, rank %d of %d) failed: %s%s%s%s%s",
                   what, g->name, g->backend->name, g->rank, g->size, cause.text, silent, others,
                   first[0] != '\0' ? "; first seen by " : "", first);
    *err = g->broken;
    (void) flight_dump(NULL, g->broken.text); /* where there is a place for it */
    return err->code;
}
