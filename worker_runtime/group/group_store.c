/* The keys that a group has in the store, and functions that wait for them. The keys begin with
 * crunrt/<restart count>/<n>/pg/<number>/:
 *
 *   <phase>/<rank>, <phase>/count, <phase>/ready   arrival, see group_arrival.c
 *   split/…            whether the group is made by a split, see group_split.c
 *   check/…            comparing calls, see group_check.c
 *   backend/<key>      addresses and ids that the backend exchanges
 *   state/<rank>       what a rank was doing when the group broke:
 *                      "all_reduce(float32 x 1000, sum) #17"
 *   failure            the error text of the first rank that failed
 *   members            the list of ranks, as the first rank gave it
 *   left               "<rank>:<collectives>;" of each rank that has left the group
 *
 * <number> is the index of the group in its runtime, so two groups never use the same key. */
#include "worker_runtime/group/group.h"

#include "base/memory.h"
#include "base/time/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Interval in ms at which a rank that waits for a key checks whether another rank has failed. It is
 * FAILURE_LOOK_FIRST_MS at first, and doubles up to FAILURE_LOOK_EVERY_MS. Such checks are needed
 * while a group is made and in a monitored barrier, where the failure of a rank breaks no
 * connection. */
#define FAILURE_LOOK_FIRST_MS INT64_C(10)
#define FAILURE_LOOK_EVERY_MS INT64_C(200)

#define STORE_ANSWERS_MS INT64_C(5000) /* shortest timeout in ms of a request to the store */

/* ---- the backend's keys ---- */

int group_store_failure(int rc, struct cr_error *err) {
    if (rc < 0 && err != NULL && err != rt_last_error()) *err = *rt_last_error();
    return rc;
}

static int backend_key(const struct crunrt_group *g, const char *key, char out[128],
                       struct cr_error *err) {
    int n = snprintf(out, 128, "%s%s", g->is_foreign ? "" : "backend/", key);
    return n < 128 ? 0 : cr_fail(err, -EINVAL, "use the key '%s': too long", key);
}

static int on_set(void *arg, const char *key, const void *value, size_t len, struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    return rc < 0 ? rc : group_store_failure(crunrt_store_set(g->store, full, value, len), err);
}

int group_wait_for_key(struct crunrt_group *g, const char *key, int64_t timeout_ms,
                       struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms), look_ms = FAILURE_LOOK_FIRST_MS;
    for (;; look_ms = look_ms * 2 < FAILURE_LOOK_EVERY_MS ? look_ms * 2 : FAILURE_LOOK_EVERY_MS) {
        int64_t left = cr_time_left_ms(deadline);
        int64_t slice = left < look_ms ? left : look_ms;
        int rc = crunrt_store_wait(g->store, &key, 1, slice);
        if (rc != -ETIMEDOUT) return group_store_failure(rc, err);
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
    if (rc < 0) return rc;
    return group_store_failure(crunrt_store_get(g->store, full, timeout_ms, value, len), err);
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
    return rc < 0 ? rc : group_store_failure(crunrt_store_add(g->store, full, delta, total), err);
}

static int on_remove(void *arg, const char *key, struct cr_error *err) {
    struct crunrt_group *g = arg;
    char full[128];
    int rc = backend_key(g, key, full, err);
    return rc < 0 ? rc : group_store_failure(crunrt_store_delete(g->store, full, NULL), err);
}

/* ---- failures elsewhere ---- */

/* longest time in ms after which a message of a peer that has left can still arrive */
#define PEER_LEFT_MS INT64_C(1000)

/* Call this if `rank` has left the group, after `collectives` collectives. Returns true if this
 * rank waits for `rank` in vain. It does so if it is in a later collective. It also does so if it
 * sends to `rank` or receives from `rank`, and PEER_LEFT_MS have passed since it noticed that
 * `rank` has left: before that, last messages can still arrive. */
static bool waits_for(struct crunrt_group *g, int rank, uint32_t collectives) {
    if (atomic_load(&g->begun) > collectives) return true;
    if (atomic_load(&g->peer) != rank) return false;
    int64_t now = cr_monotonic_ms(), none = 0;
    (void) atomic_compare_exchange_strong(&g->peer_left_ms, &none, now);
    return now - atomic_load(&g->peer_left_ms) >= PEER_LEFT_MS;
}

static int check_left(struct crunrt_group *g, struct crunrt_store *store, struct cr_error *err) {
    void *value = NULL;
    if (crunrt_store_get(store, "left", 0, &value, NULL) < 0) return 0;
    CR_AUTO_FREE char *text = value;
    for (const char *at = text; at != NULL && *at != '\0';) {
        int rank = -1;
        unsigned collectives = 0;
        if (sscanf(at, "%d:%u;", &rank, &collectives) == 2 && waits_for(g, rank, collectives)) {
            return cr_fail(err, -ECONNRESET,
                           "rank %d has left the group after %u collectives; this rank waits for "
                           "it",
                           rank, collectives);
        }
        at = strchr(at, ';');
        if (at != NULL) at++;
    }
    return 0;
}

/* If this rank is making the group or is in a monitored barrier, returns an error if any rank of
 * the group has ended, because both need every rank. Otherwise returns 0, because check_left()
 * finds out whether this call needs a rank that has left. */
static int check_ended(struct crunrt_group *g, struct cr_error *err) {
    if (g->is_foreign || (g->state != NULL && !g->in_monitored_barrier)) return 0;
    int rank = rt_ended_rank(g->rt, g->ranks, (size_t) g->size);
    if (rank < 0) return 0;
    return cr_fail(err, -ECONNRESET, "rank %d of the job has ended, so it does not come", rank);
}

static int check_failed(struct crunrt_group *g, struct crunrt_store *store, struct cr_error *err) {
    if (rt_round_is_over(g->rt)) {
        return cr_fail(err, -ECONNRESET,
                       "the agent reports that the round is over: a worker failed; call "
                       "crunrt_rejoin() or end");
    }
    void *value = NULL;
    if (crunrt_store_get(store, "failure", 0, &value, NULL) < 0) {
        int rc = check_left(g, store, err);
        return rc < 0 ? rc : check_ended(g, err);
    }
    CR_AUTO_FREE char *text = value;
    bool differs = strstr(text, GROUP_LISTS_DIFFER) != NULL;
    return cr_fail(err, differs ? -EPROTO : -ECONNRESET, "another rank failed: %s", text);
}

/* Does the same as group_failed(), but sends the requests through `store`, and leaves the thread's
 * error text unchanged. A request to the store sets that text if a key does not exist, which is no
 * failure of the program's call. */
static int look_for_failure(struct crunrt_group *g, struct crunrt_store *store,
                            struct cr_error *err) {
    struct cr_error before = *rt_last_error(), found = {0};
    int rc = check_failed(g, store, &found);
    *rt_last_error() = before;
    if (rc < 0 && err != NULL) *err = found;
    return rc;
}

int group_failed(struct crunrt_group *g, struct cr_error *err) {
    return look_for_failure(g, g->store, err);
}

void group_leave(struct crunrt_group *g) {
    char text[32];
    int n = snprintf(text, sizeof(text), "%d:%u;", g->rank, g->collective_seq);
    group_limit_store(g, 0);
    (void) crunrt_store_append(g->store, "left", text, (size_t) n);
}

static int on_failed(void *arg, struct cr_error *err) {
    /* With 0, requests have the shortest timeout, so that a slow store does not make the backend
     * miss its own deadline. */
    group_limit_store(arg, 0);
    return group_failed(arg, err);
}

static int on_peek(void *arg, struct cr_error *err) {
    struct crunrt_group *g = arg;
    return look_for_failure(g, g->side_store, err);
}

static void on_report(void *arg, const char *text) {
    struct crunrt_group *g = arg;
    char key[32], words[CR_ERROR_TEXT_MAX + 64];
    (void) snprintf(key, sizeof(key), "state/%d", g->rank);
    (void) snprintf(words, sizeof(words), "rank %d: %s", g->rank, text);
    (void) crunrt_store_set(g->side_store, key, text, strlen(text));
    (void) crunrt_store_compare_set(g->side_store, "failure", "", 0, words, strlen(words), NULL,
                                    NULL);
}

bool group_is_over(void *group) {
    const struct crunrt_group *g = group;
    return rt_round_is_over(g->rt);
}

void group_limit_store(struct crunrt_group *g, int64_t timeout_ms) {
    int64_t most = g->rt->store->timeout_ms;
    int64_t wanted = timeout_ms < STORE_ANSWERS_MS ? STORE_ANSWERS_MS : timeout_ms;
    g->store->timeout_ms = wanted < most ? wanted : most;
}

struct backend_store group_backend_store(struct crunrt_group *g) {
    return (struct backend_store){g,         on_set,    on_get,  on_wait,  on_add,
                                  on_remove, on_failed, on_peek, on_report, group_is_over};
}

/* ---- group_absent_ranks() ---- */

/* largest number of keys in one request of group_absent_ranks() */
#define ABSENT_CHECK_MAX 1024

/* A search for the ranks whose key <phase>/<rank> is absent. */
struct absent_search {
    struct crunrt_group *g;
    const char **keys; /* [size] */
    int absent;        /* ranks found so far */
    char *out;         /* numbers of the absent ranks as text, at most GROUP_NAMED_MAX of them */
    size_t len, out_size;
};

static void note_absent(struct absent_search *s, int rank) {
    if (++s->absent > GROUP_NAMED_MAX) return;
    int n = snprintf(s->out + s->len, s->out_size - s->len, "%s%d", s->absent > 1 ? ", " : "",
                     rank);
    if (n > 0 && (size_t) n < s->out_size - s->len) s->len += (size_t) n;
}

/* Searches the ranks from `from` to `to` - 1 for absent ranks. One request checks whether all their
 * keys exist; if they do not, the function searches each half. So k absent ranks among n take about
 * 2 k log2(n / k) requests instead of n, which matters when hundreds of ranks search at the same
 * moment. Returns 0, or the store's error. */
static int search_absent(struct absent_search *s, int from, int to) {
    int present = 0, middle = from + (to - from) / 2;
    int rc = crunrt_store_check(s->g->store, &s->keys[from], (size_t) (to - from), &present);
    if (rc < 0 || present) return rc;
    if (to - from == 1) {
        note_absent(s, from);
        return 0;
    }
    rc = search_absent(s, from, middle);
    return rc < 0 ? rc : search_absent(s, middle, to);
}

int group_absent_ranks(struct crunrt_group *g, const char *phase, char *out, size_t out_size) {
    CR_AUTO_FREE char(*names)[64] = calloc((size_t) g->size, sizeof(*names));
    CR_AUTO_FREE const char **keys = calloc((size_t) g->size, sizeof(*keys));
    out[0] = '\0';
    if (names == NULL || keys == NULL) return -ENOMEM;
    for (int r = 0; r < g->size; r++) {
        (void) snprintf(names[r], sizeof(names[r]), "%s/%d", phase, r);
        keys[r] = names[r];
    }
    struct absent_search s = {.g = g, .keys = keys, .out = out, .out_size = out_size};
    for (int from = 0; from < g->size; from += ABSENT_CHECK_MAX) {
        int left = g->size - from;
        int rc = search_absent(&s, from, from + (left < ABSENT_CHECK_MAX ? left
                                                                        : ABSENT_CHECK_MAX));
        if (rc < 0) return rc;
    }
    if (s.absent > GROUP_NAMED_MAX) {
        (void) snprintf(out + s.len, out_size - s.len, " and %d more", s.absent - GROUP_NAMED_MAX);
    }
    return s.absent;
}
