/* The jobs of one host: see job_table_internal.h. */
#include "rendezvous/host/job_table_internal.h"

#include "base/time/clock.h"
#include "rendezvous/rules/rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the coordinators say ---- */

static bool is_running(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.phase != COORDINATOR_ENDED;
}

static bool has_suspended(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.suspended > 0;
}

/* Returns whether a job that has not ended has suspended seats, whose nodes may resume. */
static bool may_resume(const struct host_job *job) { return has_suspended(job) && is_running(job); }

static bool waits_for_nodes(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.phase == COORDINATOR_FORMING && view.awaited > 0;
}

const char *job_table_other_waiting(void *arg) {
    const struct host_job *job = arg, *other;
    LIST_FOREACH(other, &job->table->list, entry) {
        if (other != job && waits_for_nodes(other)) return other->run_id;
    }
    return NULL;
}

/* ---- making and freeing jobs ---- */

void job_table_init(struct job_table *t, const struct job_table_actions *actions, void *arg,
                    bool has_right) {
    *t = (struct job_table){.actions = actions, .arg = arg, .own_run_id = "",
                            .may_form = has_right,
                            .right_until_ms = has_right ? CR_FOREVER : 0};
    LIST_INIT(&t->list);
}

static void free_job(struct host_job *job) {
    struct job_table *t = job->table;
    char *run_id = job->run_id;
    coordinator_free(job->coordinator);
    job->coordinator = NULL;
    t->actions->drop(t->arg, job);
    free(run_id);
}

static void forget(struct host_job *job) {
    LIST_REMOVE(job, entry);
    free_job(job);
}

void job_table_clear(struct job_table *t) {
    while (!LIST_EMPTY(&t->list)) forget(LIST_FIRST(&t->list));
}

struct host_job *job_table_find(const struct job_table *t, const char *run_id) {
    struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        if (strcmp(job->run_id, run_id) == 0) return job;
    }
    return NULL;
}

/* Tells a new coordinator what it has to know about its host. */
static void prepare(struct host_job *job, int64_t now_ms) {
    const struct job_table *t = job->table;
    coordinator_identify(job->coordinator, t->terms->coordinator);
    if (t->is_heir) coordinator_is_heir(job->coordinator);
    coordinator_set_own(job->coordinator, t->own_instance);
    if (t->allows_heirs) coordinator_allow_heirs(job->coordinator);
    job->is_own = strcmp(job->run_id, t->own_run_id) == 0;
    if (job->is_own) coordinator_keep_job(job->coordinator);
    if (t->follows_another) coordinator_follows_another(job->coordinator);
    coordinator_may_form(job->coordinator, now_ms, t->right_until_ms);
}

static struct host_job *new_job(struct job_table *t, int64_t now_ms, const char *run_id) {
    struct host_job *job = t->actions->add(t->arg);
    if (job == NULL) return NULL;
    job->table = t;
    job->run_id = strdup(run_id);
    job->coordinator = coordinator_new(run_id, t->actions->coordinator, job);
    if (job->run_id == NULL || job->coordinator == NULL) {
        free_job(job);
        return NULL;
    }
    prepare(job, now_ms);
    LIST_INSERT_HEAD(&t->list, job, entry);
    return job;
}

/* ---- the number of jobs ---- */

static bool is_own_job(const struct host_job *job) {
    static const struct cr_ip none;
    return memcmp(&job->maker, &none, sizeof(none)) == 0;
}

/* The jobs that nodes of other processes have made. */
struct census {
    uint32_t all, same; /* same: those that nodes at the address in question have made */
    /* among all jobs, and among those of that address: the job without connections that would be
     * freed first; NULL = there is none */
    struct host_job *oldest, *oldest_same;
};

static struct host_job *older(struct host_job *a, struct host_job *b) {
    return a == NULL || b->forget_ms < a->forget_ms ? b : a;
}

static struct census count_jobs(const struct job_table *t, const struct cr_ip *maker) {
    struct census n = {0};
    struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        if (is_own_job(job)) continue;
        bool is_same = memcmp(&job->maker, maker, sizeof(*maker)) == 0;
        n.all++;
        n.same += is_same ? 1 : 0;
        if (job->peers > 0 || may_resume(job)) continue;
        n.oldest = older(n.oldest, job);
        if (is_same) n.oldest_same = older(n.oldest_same, job);
    }
    return n;
}

/* Call this before a node of the address `maker` makes a job. If there are too many jobs, frees one
 * that has no connections. If it is this address that has too many jobs, frees one of its own: its
 * nodes must not push out what the nodes of another address are still to learn. Returns 0, or
 * -EUSERS and a text in err if there is no such job. */
static int make_room(struct job_table *t, const struct cr_ip *maker, struct cr_error *err) {
    uint32_t max = t->terms->in_launcher ? JOBS_MAX_IN_LAUNCHER : JOBS_MAX;
    struct census n = count_jobs(t, maker);
    bool has_share = n.same >= max / SHARE_OF_ADDRESS;
    struct host_job *victim = has_share ? n.oldest_same : n.oldest;
    if (n.all < max && !has_share) return 0;
    if (victim == NULL) {
        return cr_fail(err, -EUSERS,
                       "this host has %u other jobs, %u of them from the address of this node, and "
                       "takes no more; use another endpoint", n.all, n.same);
    }
    forget(victim);
    return 0;
}

int job_table_get(struct job_table *t, int64_t now_ms, const char *run_id,
                  const struct cr_ip *maker, struct host_job **out, struct cr_error *err) {
    *out = job_table_find(t, run_id);
    if (*out != NULL) return 0;
    int rc = maker != NULL ? make_room(t, maker, err) : 0;
    if (rc < 0) return rc;
    *out = new_job(t, now_ms, run_id);
    if (*out == NULL) return cr_fail(err, -ENOMEM, "the coordinator is out of memory");
    if (maker != NULL) (*out)->maker = *maker;
    return 0;
}

/* ---- connections ---- */

void job_table_hold(struct host_job *job) { job->peers++; }

int job_table_connect(struct job_table *t, int64_t now_ms, const char *run_id,
                      const struct cr_ip *maker, bool is_local, struct host_job **out,
                      struct cr_error *err) {
    int rc = job_table_get(t, now_ms, run_id, maker, out, err);
    if (rc < 0) return rc;
    job_table_hold(*out);
    if ((*out)->says_goodbye && !is_local)
        return cr_fail(err, -EAGAIN, "this coordinator ends, the job goes on elsewhere");
    if (is_local) (*out)->is_own = true;
    return 0;
}

void job_table_disconnect(struct host_job *job, int64_t now_ms) {
    struct coordinator_view view;
    if (--job->peers > 0) return;
    coordinator_look(job->coordinator, &view);
    bool has_past = view.phase != COORDINATOR_EMPTY || view.next_round > 0 || view.has_discarded;
    job->forget_ms = now_ms + (has_past ? job->table->terms->close_timeout_ms : 0);
}

/* ---- time ---- */

int64_t job_table_deadline(const struct job_table *t) {
    int64_t when_ms = CR_FOREVER;
    const struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        int64_t deadline_ms = coordinator_deadline(job->coordinator);
        if (deadline_ms < when_ms) when_ms = deadline_ms;
        if (!t->may_form) continue;
        if (job->peers > 0 || job->is_superseded) continue;
        if (job->forget_ms < when_ms) when_ms = job->forget_ms;
    }
    return when_ms;
}

/* Frees the jobs that have had no connection for close_timeout_ms, but keeps a job whose nodes may
 * resume. Without the right to form rounds it frees no job, because the nodes may come back when
 * the host has the right again. */
static void forget_jobs(struct job_table *t, int64_t now_ms) {
    struct host_job *job, *next;
    if (!t->may_form) return;
    for (job = LIST_FIRST(&t->list); job != NULL; job = next) {
        next = LIST_NEXT(job, entry);
        if (job->peers > 0 || now_ms < job->forget_ms) continue;
        if (job->is_superseded) continue; /* nodes that come are sent to the leader */
        if (may_resume(job)) job->forget_ms = now_ms + t->terms->close_timeout_ms;
        else forget(job);
    }
}

void job_table_tick(struct job_table *t, int64_t now_ms) {
    struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) coordinator_tick(job->coordinator, now_ms);
    forget_jobs(t, now_ms);
}

/* ---- the right to form rounds ---- */

void job_table_may_form(struct job_table *t, int64_t now_ms, int64_t until_ms) {
    struct host_job *job;
    bool had_right = t->may_form;
    t->right_until_ms = until_ms;
    t->may_form = now_ms < until_ms;
    LIST_FOREACH(job, &t->list, entry) {
        if (t->may_form && !had_right) job->forget_ms = now_ms + t->terms->close_timeout_ms;
        coordinator_may_form(job->coordinator, now_ms, until_ms);
    }
}

bool job_table_has_held(const struct job_table *t) {
    struct coordinator_view view;
    const struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        coordinator_look(job->coordinator, &view);
        if (view.is_held) return true;
    }
    return false;
}

void job_table_stand_by(struct job_table *t) {
    struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) coordinator_stand_by(job->coordinator);
}

/* ---- jobs that another host leads ---- */

void job_table_supersede(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port) {
    job->is_superseded = true;
    if (epoch > job->epoch) job->epoch = epoch;
    (void) snprintf(job->leader_addr, sizeof(job->leader_addr), "%s", addr);
    job->leader_port = port;
    coordinator_send_away(job->coordinator);
}

/* Returns what this host knows about the job; `job` may be NULL. */
static struct leading leading_of(const struct job_table *t, const struct host_job *job) {
    struct leading l = {.allows_heirs = t->allows_heirs, .has_job = job != NULL,
                        .host_epoch = t->terms->epoch};
    if (job != NULL) l.job_epoch = job->epoch;
    if (job != NULL) l.is_superseded = job->is_superseded;
    return l;
}

uint64_t job_table_epoch(const struct job_table *t, const struct host_job *job) {
    const struct leading l = leading_of(t, job);
    return leading_epoch(&l);
}

struct host_session_verdict job_table_judge(struct job_table *t, int64_t now_ms,
                                            const struct rdzv_hello *hello) {
    struct host_job *job = job_table_find(t, hello->run_id);
    struct leading l = leading_of(t, job);
    struct host_session_verdict v = {0};
    if (leading_is_in_doubt(&l, hello->epoch) &&
        coordinator_hear_epoch(job->coordinator, now_ms) == COORDINATOR_IS_SUPERSEDED) {
        job->is_superseded = l.is_superseded = true;
    }
    v.serves = leading_serves(&l, hello->epoch, &v.epoch);
    if (!v.serves && job != NULL && job->leader_addr[0] != '\0') {
        v.addr = job->leader_addr;
        v.port = job->leader_port;
    }
    return v;
}

void job_table_admitted(struct host_job *job, uint64_t named) {
    const struct leading l = leading_of(job->table, job);
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    job->epoch = leading_admits(&l, named, view.incarnation == job->epoch_run);
    job->epoch_run = view.incarnation;
}

void job_table_hear_leader(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port) {
    const struct leading l = leading_of(job->table, job);
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    if (leading_gives_up(&l, epoch, view.decides, view.phase == COORDINATOR_ENDED))
        job_table_supersede(job, epoch, addr, port);
}

bool job_table_leads(const struct job_table *t, const char *run_id, uint64_t *epoch) {
    const struct host_job *job = job_table_find(t, run_id);
    struct coordinator_view view;
    if (job == NULL || !t->terms->leads || job->is_superseded) return false;
    coordinator_look(job->coordinator, &view);
    *epoch = job_table_epoch(t, job);
    return view.phase != COORDINATOR_ENDED && view.decides;
}

/* ---- the end of the host ---- */

bool job_table_has_running(const struct job_table *t) {
    const struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        if (is_running(job)) return true;
    }
    return false;
}

bool job_table_awaits_nodes(const struct job_table *t) {
    const struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        if (has_suspended(job)) return true;
    }
    return false;
}

uint32_t job_table_count_others(const struct job_table *t, const char **run_id) {
    const struct host_job *job;
    uint32_t count = 0;
    LIST_FOREACH(job, &t->list, entry) {
        if (job->is_own || job->peers == 0 || !is_running(job)) continue;
        *run_id = job->run_id;
        count++;
    }
    return count;
}

void job_table_abandon(struct job_table *t, bool only_own, const char *why) {
    struct host_job *job;
    LIST_FOREACH(job, &t->list, entry) {
        if (only_own && !job->is_own) continue;
        if (is_running(job)) job->says_goodbye = t->terms->comes_again = true;
        coordinator_goodbye(job->coordinator, why);
    }
}

bool job_table_retire_own(struct job_table *t) {
    struct host_job *job;
    struct coordinator_view view;
    LIST_FOREACH(job, &t->list, entry) {
        coordinator_look(job->coordinator, &view);
        if (!job->is_own || !view.has_heirs || view.phase == COORDINATOR_ENDED) continue;
        coordinator_retire(job->coordinator);
        return true;
    }
    return false;
}
