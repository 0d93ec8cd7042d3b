/* Breaks a group: when one rank fails, all ranks fail soon, and their error texts name the cause.
 *
 * A rank that notices a failure closes its connections; its peers notice this, and close their
 * connections, too. With some backends, the peers do not notice that a connection is closed. Such a
 * backend sets `looks_every_ms`, and each rank reads the store for failures at this interval. With
 * such a backend, a rank writes the failure to the store before it aborts the backend, because an
 * abort can take long.
 *
 * Each rank that notices the failure sets the key state/<rank> to what it was doing. If a rank has
 * not set its key within a short time (GRACE_…_MS), the error texts name it as a rank that gives no
 * sign. The key `failure` contains the error of the first rank that failed; the other ranks quote
 * it. After a timeout, the ranks also compare the contents of their keys state/<rank>, because
 * ranks that make different calls time out, too. */
#include "worker_runtime/report/report.h"
#include "worker_runtime/group/group.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time in ms that a rank that has noticed a failure waits for the keys state/<rank> of the other
 * ranks. It is longest after a timeout, because the timeouts of the ranks end at slightly different
 * moments. If a connection has broken, all ranks notice this within milliseconds. The time is
 * shortest if there is an agent: the agent knows which worker has died, and starts the next round,
 * so it is more useful to end soon than to have a complete text. */
#define GRACE_AFTER_TIMEOUT_MS INT64_C(1000)
#define GRACE_AFTER_RESET_MS   INT64_C(100)
#define GRACE_UNDER_AGENT_MS   INT64_C(50)
#define GRACE_AFTER_LOOK_MS    INT64_C(150) /* time in ms that is added to looks_every_ms */

/* If a group has more ranks than this, the keys state/<rank> are not read, because that takes one
 * request per rank. */
#define ASK_RANKS_MAX 512
#define OTHERS_MAX    2   /* largest number of other ranks whose calls an error text describes */

/* Sets this rank's key state/<rank> to `doing`. Ignores errors, because the group is failing
 * already and the store may be gone. */
static void write_state(struct crunrt_group *g, const char *doing) {
    char key[32];
    (void) snprintf(key, sizeof(key), "state/%d", g->rank);
    (void) crunrt_store_set(g->store, key, doing, strlen(doing));
}

void group_report_failure(struct crunrt_group *g, const char *own, char *out, size_t out_size) {
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
    if (g->backend->looks_every_ms > 0) return g->backend->looks_every_ms + GRACE_AFTER_LOOK_MS;
    return g->rt->channel.page != NULL ? GRACE_UNDER_AGENT_MS : GRACE_AFTER_RESET_MS;
}

/* Returns true if the agent ends the round within grace_ms, or has ended it. In that case this rank
 * need not wait for signs of other ranks, because the agent is the first to notice the death of a
 * worker, and names this worker. Returns false at once if this worker cannot rejoin, because the
 * agent reports the end of a round only to workers that can. */
static bool agent_knows(struct crunrt_group *g, int64_t grace_ms) {
    const struct channel_page *page = g->rt->channel.page;
    if (page == NULL || atomic_load(&page->can_rejoin) == 0) return false;
    return worker_channel_wait_over(&g->rt->channel, cr_deadline_ms(grace_ms)) == 1;
}

/* Waits until all ranks have set their keys state/<rank>, at most grace_ms. Sets `out` to a text
 * that names the ranks whose key is missing, for example "; no sign of rank 2", or to "" if none is
 * missing. */
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

/* Sets `out` to a text that names the ranks whose key state/<rank> differs from `doing`, for
 * example "; rank 1 was in broadcast(float32 x 64, root 0) #17", or to "" if no key differs. */
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
    /* a copy, because the calls on the store below may overwrite *err */
    struct cr_error cause = *err;
    bool reports_first = g->backend->looks_every_ms > 0;
    if (g->state != NULL && !reports_first) g->backend->abort(g->state);
    cause.code = rt_pipe_to_reset(cause.code, &cause);
    group_limit_store(g, 0);

    char own[CR_ERROR_TEXT_MAX + 64], first[CR_ERROR_TEXT_MAX / 2], silent[320], others[320] = "";
    (void) snprintf(own, sizeof(own), "rank %d: %s: %s", g->rank, what, cause.text);
    write_state(g, doing);
    group_report_failure(g, own, first, sizeof(first));
    if (g->state != NULL && reports_first) g->backend->abort(g->state);
    bool is_timeout = cause.code == -ETIMEDOUT;
    if (!is_timeout && agent_knows(g, grace_ms(g, cause.code)))
        (void) snprintf(silent, sizeof(silent), "; the agent has ended the round");
    else
        find_silent(g, grace_ms(g, cause.code), silent, sizeof(silent));
    if (cause.code == -ETIMEDOUT) find_others(g, doing, others, sizeof(others));

    struct cr_error lost = {0};
    (void) rt_recoverable(g->rt, &lost);
    bool adds_lost = lost.code != 0 && cause.code != -ENOTRECOVERABLE;
    /* if another rank's report is the cause, cause.text already quotes it */
    bool adds_first = first[0] != '\0' && strstr(cause.text, first) == NULL;
    (void) cr_fail(&g->broken, cause.code,
                   "%s in group '%s' (%s, rank %d of %d) failed: %s%s%s%s%s%s%s", what,
                   g->name, g->backend->name, g->rank, g->size, cause.text, silent, others,
                   adds_first ? "; first seen by " : "", adds_first ? first : "",
                   adds_lost ? "; " : "", adds_lost ? lost.text : "");
    *err = g->broken;
    (void) flight_dump(NULL, g->broken.text); /* does nothing if the flight record has no path */
    return err->code;
}
