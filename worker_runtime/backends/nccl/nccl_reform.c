/* Re-forms a communicator after a failure: the ranks of the next round make their communicator out
 * of that of the last round, instead of starting from nothing.
 *
 * If the process may rejoin, the communicator of the group of all ranks is revoked when it fails,
 * instead of aborted (ncclCommRevoke(), NCCL 2.28.7): its kernels end, but the communicator is kept
 * after its group is destroyed. When the ranks make the group of all ranks in the next round, they
 * first exchange what they have kept, by keys of the group:
 *
 *   reform/<rank>   what this rank has kept, and which functions its NCCL has
 *   reform/plan     rank 0's decision, see reform_plan.h
 *   reform/id       the id with which new ranks join
 *   reform/through  number of ranks that have made the new communicator
 *   reform/verdict  "ok" once all ranks have made it, "failed" once one rank could not
 *
 * If ranks were lost, the others leave them out with ncclCommShrink(); if none was lost, they make
 * a new communicator with ncclCommSplit(). New ranks are added with ncclCommGrow() (NCCL 2.29). If
 * a step fails on any rank, or if the plan says so, all ranks start from nothing. */
#include "worker_runtime/backends/nccl/nccl_internal.h"
#include "worker_runtime/backends/nccl/reform_plan.h"

#include "base/cleanup.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Longest time in ms for all steps of re-forming together. If half of the group's timeout is less,
 * that is the limit instead, so that time remains to start from nothing. */
#define REFORM_MS INT64_C(20000)

/* ---- the kept communicator ---- */

/* The communicator that this process has kept; comm is NULL if there is none. Guarded by
 * nccl_lock(). */
static struct kept {
    ncclComm_t comm;
    uint64_t tag;
    int rank, size, device;
    /* NCCL keeps pointers to these texts as long as the communicator exists. net_name may be
     * NULL. */
    char *name, *net_name;
} kept;

bool reform_is_possible(const struct nccl_state *s) {
    const char *wanted = getenv("CRUNRT_NCCL_REFORM"), *blocking = getenv("NCCL_COMM_BLOCKING");
    if (wanted != NULL && strcmp(wanted, "0") == 0) return false;
    if (!s->is_blocking || (blocking != NULL && strcmp(blocking, "0") == 0)) return false;
    return s->api->ncclCommRevoke != NULL && s->api->ncclCommShrink != NULL &&
           s->api->ncclCommSplit != NULL;
}

bool reform_wants(const struct nccl_state *s) {
    return s->may_rejoin && s->tag != 0 && kept.comm == NULL && reform_is_possible(s);
}

void reform_keep(struct nccl_state *s, ncclComm_t comm) {
    nccl_lock();
    kept = (struct kept){comm, s->tag, s->rank, s->size, s->device, s->name, s->net_name};
    s->is_kept = true;
    nccl_unlock();
}

static struct kept take_kept(void) {
    nccl_lock();
    struct kept taken = kept;
    kept = (struct kept){0};
    nccl_unlock();
    return taken;
}

/* ---- the communicator of a state that is being re-formed ---- */

static ncclComm_t current_comm(struct nccl_state *s) {
    nccl_lock();
    ncclComm_t comm = s->comm;
    nccl_unlock();
    return comm;
}

static ncclComm_t exchange_comm(struct nccl_state *s, ncclComm_t comm) {
    nccl_lock();
    while (s->is_aborting) (void) nccl_wait_change(INT64_MAX);
    ncclComm_t before = s->comm;
    s->comm = comm;
    nccl_unlock();
    return before;
}

/* Aborts a communicator that is no longer needed. The communicator of `s` stays as it was. Returns
 * 0, or -ENOTRECOVERABLE and sets err if the abort exceeds its time limit. */
static int discard(struct nccl_state *s, ncclComm_t comm, struct cr_error *err) {
    if (comm == NULL) return 0;
    ncclComm_t current = exchange_comm(s, comm);
    nccl_abort(s);
    (void) exchange_comm(s, current);
    return s->is_wedged ? nccl_recoverable(err) : 0;
}

/* ---- agreeing on a plan ---- */

struct reform {
    struct nccl_state *s;
    const struct backend_group *g;
    struct kept old;
    struct reform_plan plan;
    int64_t timeout_ms, deadline_ms;
};

static int put_entry(struct reform *r, struct cr_error *err) {
    char key[32], text[REFORM_ENTRY_MAX];
    bool has_one = r->old.comm != NULL && r->old.device == r->s->device;
    struct reform_entry e = {.can_shrink = reform_is_possible(r->s),
                             .can_grow = r->s->api->ncclCommGrow != NULL &&
                                         r->s->api->ncclCommGetUniqueId != NULL,
                             .tag = has_one ? r->old.tag : 0,
                             .rank = r->old.rank,
                             .size = r->old.size};
    reform_entry_write(&e, text);
    (void) snprintf(key, sizeof(key), "reform/%d", r->g->rank);
    return r->g->store.set(r->g->store.arg, key, text, strlen(text) + 1, err);
}

static int get_text(struct reform *r, const char *key, char **out, struct cr_error *err) {
    void *value = NULL;
    size_t len = 0;
    int rc = r->g->store.get(r->g->store.arg, key, r->g->timeout_ms, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "agree how to make the communicator");
    *out = value;
    if (len > 0 && (*out)[len - 1] == '\0') return 0;
    free(value);
    return cr_fail(err, -EPROTO, "agree how to make the communicator: '%s' is no text", key);
}

static uint64_t new_tag(void) {
    uint64_t tag = 0;
    if (getrandom(&tag, sizeof(tag), 0) != sizeof(tag)) tag = (uint64_t) cr_monotonic_ns();
    return tag | 1;
}

static int read_entries(struct reform *r, struct reform_entry *entries, struct cr_error *err) {
    for (int rank = 0; rank < r->g->size; rank++) {
        char key[32], *text = NULL;
        (void) snprintf(key, sizeof(key), "reform/%d", rank);
        int rc = get_text(r, key, &text, err);
        if (rc < 0) return rc;
        if (!reform_entry_read(text, &entries[rank])) entries[rank] = (struct reform_entry){0};
        free(text);
        (void) r->g->store.remove(r->g->store.arg, key, NULL);
    }
    return 0;
}

/* Rank 0 decides for all ranks. */
static int set_plan(struct reform *r, struct cr_error *err) {
    struct reform_plan plan = {0};
    size_t size = (size_t) r->g->size;
    CR_AUTO_FREE struct reform_entry *entries = calloc(size, sizeof(*entries));
    int rc = entries == NULL ? -ENOMEM : read_entries(r, entries, err);
    if (rc == 0 && !reform_decide(entries, r->g->size, new_tag(), &plan)) rc = -ENOMEM;
    CR_AUTO_FREE char *text = rc == 0 ? reform_plan_write(&plan) : NULL;
    reform_plan_free(&plan);
    if (rc == -ENOMEM || (rc == 0 && text == NULL))
        return cr_fail(err, -ENOMEM, "agree how to make the communicator: out of memory");
    return rc < 0 ? rc : r->g->store.set(r->g->store.arg, "reform/plan", text, strlen(text) + 1,
                                         err);
}

static int agree(struct reform *r, struct cr_error *err) {
    char *text = NULL;
    int rc = put_entry(r, err);
    if (rc == 0 && r->g->rank == 0) rc = set_plan(r, err);
    if (rc == 0) rc = get_text(r, "reform/plan", &text, err);
    if (rc < 0) return rc;
    CR_AUTO_FREE char *held = text;
    if (reform_plan_read(held, r->g->size, &r->plan)) return 0;
    return cr_fail(err, -EPROTO, "agree how to make the communicator: '%s' is no plan", held);
}

/* ---- the steps ---- */

static bool is_survivor(const struct reform *r) { return r->g->rank < r->plan.survivors; }

static ncclResult_t call_descend(struct reform *r, ncclComm_t old, int *lost, ncclComm_t *child) {
    const struct nccl_api *api = r->s->api;
    union nccl_config config = config_of(r->s);
    int count = reform_lost(&r->plan, lost);
    if (count == 0) return api->ncclCommSplit(old, 0, r->g->rank, child, &config.passed);
    return api->ncclCommShrink(old, lost, count, child, &config.passed, 0);
}

/* Makes a communicator of those ranks of the round that have the kept communicator, and discards
 * the kept one. */
static int descend(struct reform *r, struct cr_error *err) {
    static const char phase[] = "shrink the communicator of the last round";
    ncclComm_t old = NULL, child = NULL;
    CR_AUTO_FREE int *lost = calloc((size_t) r->plan.old_size, sizeof(*lost));
    if (lost == NULL) return cr_fail(err, -ENOMEM, "%s: out of memory", phase);
    (void) exchange_comm(r->s, r->old.comm);
    r->old.comm = NULL; /* the state's communicator now */
    int rc = call_begin(r->s, &old, phase, r->timeout_ms, r->deadline_ms, err);
    if (rc < 0) return rc;
    ncclResult_t result = call_descend(r, old, lost, &child);
    rc = call_end(r->s, err);
    if (rc == 0 && result != ncclSuccess) {
        rc = fail_nccl(r->s->api, r->s, result, err, phase);
        repair_group_depth(r->s->api);
    }
    int ended = discard(r->s, exchange_comm(r->s, child), err);
    return rc < 0 ? rc : ended;
}

static int make_grow_id(struct reform *r, ncclUniqueId *id, struct cr_error *err) {
    static const char phase[] = "make the id for new ranks";
    ncclComm_t comm = NULL;
    int rc = call_begin(r->s, &comm, phase, r->timeout_ms, r->deadline_ms, err);
    if (rc < 0) return rc;
    ncclResult_t result = r->s->api->ncclCommGetUniqueId(comm, id);
    rc = call_end(r->s, err);
    if (rc < 0 || result == ncclSuccess) return rc;
    return fail_nccl(r->s->api, r->s, result, err, phase);
}

static int exchange_grow_id(struct reform *r, ncclUniqueId *id, struct cr_error *err) {
    const struct backend_store *store = &r->g->store;
    if (r->g->rank == 0) {
        int made = make_grow_id(r, id, err);
        return made < 0 ? made : store->set(store->arg, "reform/id", id, sizeof(*id), err);
    }
    if (is_survivor(r)) return 0;
    CR_AUTO_FREE void *value = NULL;
    size_t len = 0;
    int rc = store->get(store->arg, "reform/id", r->timeout_ms, &value, &len, err);
    if (rc < 0) return cr_wrap(err, "get the id for new ranks");
    if (len != sizeof(*id))
        return cr_fail(err, -EPROTO, "get the id for new ranks: %zu bytes", len);
    memcpy(id, value, sizeof(*id));
    return 0;
}

/* Calls ncclCommGrow() between ncclGroupStart() and ncclGroupEnd(), for the same reason as
 * init_comm() in nccl_open.c: the overseer can abort the new communicator while this thread waits
 * for the other ranks. */
static ncclResult_t call_grow(struct reform *r, ncclComm_t old, const ncclUniqueId *id) {
    const struct nccl_api *api = r->s->api;
    union nccl_config config = config_of(r->s);
    ncclComm_t comm = NULL;
    int rank = old != NULL ? -1 : r->g->rank;
    ncclResult_t result = api->ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = api->ncclCommGrow(old, r->g->size, old == NULL || r->g->rank == 0 ? id : NULL, rank,
                               &comm, &config.passed);
    if (result == ncclSuccess) (void) exchange_comm(r->s, comm);
    ncclResult_t end = api->ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

/* Makes a communicator of all ranks: of those of the state's communicator, and of the ranks that
 * are new in this round. Discards the state's former communicator. */
static int grow(struct reform *r, struct cr_error *err) {
    static const char phase[] = "add new ranks to the communicator";
    ncclUniqueId id;
    int rc = exchange_grow_id(r, &id, err);
    if (rc == 0) rc = call_begin(r->s, NULL, phase, r->timeout_ms, r->deadline_ms, err);
    if (rc < 0) return rc;
    ncclComm_t old = is_survivor(r) ? current_comm(r->s) : NULL;
    ncclResult_t result = call_grow(r, old, &id);
    rc = call_end(r->s, err);
    if (rc == 0 && result != ncclSuccess) {
        rc = fail_nccl(r->s->api, r->s, result, err, phase);
        repair_group_depth(r->s->api);
    }
    /* If ncclCommGrow() has made no handle, `old` is still the state's communicator, and clear()
     * aborts it. */
    if (rc < 0 && current_comm(r->s) == old) return rc;
    int ended = discard(r->s, old, err);
    return rc < 0 ? rc : ended;
}

static int make(struct reform *r, struct cr_error *err) {
    struct visit v;
    int rc = visit_begin(r->s, &v, err);
    if (rc < 0) return rc;
    if (is_survivor(r)) rc = descend(r, err);
    if (rc == 0 && r->plan.survivors < r->g->size) rc = grow(r, err);
    visit_end(r->s, &v);
    return rc;
}

/* Does nothing. It replaces the function by which the overseer reports failures in the store, while
 * a communicator is re-formed: if re-forming fails, the group does not fail, because all ranks make
 * a new communicator from nothing. */
static void no_report(void *arg, const char *text) {
    (void) arg;
    (void) text;
}

static void set_report(struct nccl_state *s, void (*report)(void *arg, const char *text)) {
    nccl_lock();
    s->store.report = report;
    nccl_unlock();
}

/* ---- the common result ---- */

/* Reports this rank's result `rc` in the store, and waits until the store says whether all ranks
 * have made the communicator. Returns 1 if all ranks have made it, 0 if a rank could not make it,
 * or a negative errno if the store fails. */
static int exchange_verdicts(struct reform *r, int rc, struct cr_error *err) {
    const struct backend_store *store = &r->g->store;
    const char *word = rc < 0 ? "failed" : NULL;
    int64_t through = 0;
    char *text = NULL;
    int done = 0;
    if (rc == 0) done = store->add(store->arg, "reform/through", 1, &through, err);
    if (done == 0 && through == r->g->size) word = "ok";
    if (done == 0 && word != NULL)
        done = store->set(store->arg, "reform/verdict", word, strlen(word) + 1, err);
    if (done == 0) done = get_text(r, "reform/verdict", &text, err);
    if (done == 0) done = rc == 0 && strcmp(text, "ok") == 0;
    free(text);
    return done;
}

/* Call this if the ranks could not re-form the communicator. Aborts the communicator of `s` and
 * resets its failure, so that nccl_open() can make a new communicator. Returns 0; or
 * -ENOTRECOVERABLE, and sets err, if the abort exceeds its time limit. */
static int clear(struct nccl_state *s, struct cr_error *err) {
    nccl_abort(s);
    nccl_lock();
    s->failure.code = 0;
    nccl_unlock();
    return s->is_wedged ? nccl_recoverable(err) : 0;
}

static int carry_out(struct reform *r, struct cr_error *err) {
    r->timeout_ms = r->g->timeout_ms / 2 < REFORM_MS ? r->g->timeout_ms / 2 : REFORM_MS;
    r->deadline_ms = cr_deadline_ms(r->timeout_ms);
    set_report(r->s, no_report);
    int made = exchange_verdicts(r, make(r, err), err);
    int cleared = made == 1 ? 0 : clear(r->s, err);
    set_report(r->s, r->g->store.report);
    if (made == 1) return 1;
    return made < 0 ? made : cleared;
}

int reform_comm(struct nccl_state *s, const struct backend_group *g, struct cr_error *err) {
    struct reform r = {.s = s, .g = g, .old = take_kept()};
    int made = agree(&r, err), rc = made;
    if (made == 0) s->tag = r.plan.new_tag;
    if (made == 0 && !r.plan.is_fresh) made = carry_out(&r, err);
    rc = discard(s, r.old.comm, err); /* a kept communicator that was not used */
    if (!s->is_wedged) {
        free(r.old.name);
        free(r.old.net_name);
    }
    reform_plan_free(&r.plan);
    s->aborts_before = abort_count();
    return made < 0 ? made : rc < 0 ? rc : made;
}
