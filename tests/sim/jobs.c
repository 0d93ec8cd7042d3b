/* The jobs of a simulated host, which the real rendezvous/host/job_table.c keeps. This file does
 * what rendezvous/host/jobs.c does around it.
 *
 * In most schedules a host serves one job, which it keeps. In a schedule of the kind SEVERAL_JOBS
 * one host serves two or three jobs, and strangers, who make jobs that nobody joins. Each job has a
 * world of its own, with its nodes, its network, its faults and its random numbers; so each job is
 * checked like the only one. The worlds share the process of the host: its table, its clock, its
 * starts, ends and stalls, all of which happen in the world of the first job. */
#include "tests/sim/world.h"

#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_job {
    struct host_job job;
    struct host *host; /* the host, in the world of the job; NULL = the job of a stranger */
};

struct host *jobs_host(void *arg) {
    return CR_CONTAINER_OF((struct host_job *) arg, struct sim_job, job)->host;
}

void jobs_look(const struct host *h, struct coordinator_view *out) {
    *out = (struct coordinator_view){.phase = COORDINATOR_EMPTY, .max_losses = -1, .why = "",
                                     .slow = ""};
    if (h->coordinator != NULL) coordinator_look(h->coordinator, out);
}

/* ---- struct job_table_actions ---- */

static struct host_job *add(void *arg) {
    struct host *first = arg;
    struct sim_job *j = calloc(1, sizeof(*j));
    CR_ASSERT(j != NULL);
    j->host = first->w->making;
    first->w->jobs_alive++;
    return &j->job;
}

/* Forgets the job. While the host runs, it must free no job that has a connection. */
static void drop(void *arg, struct host_job *job) {
    struct host *first = arg, *h = jobs_host(job);
    for (struct conn *c = h != NULL ? h->w->conns : NULL; c != NULL; c = c->next) {
        if (c->host != h || c->host_id != h->id) continue;
        if (first->up && c->job == job) {
            world_violation(h->w, "the job '%s' is freed under node %d", job->run_id, c->node);
        }
        c->job = NULL;
        c->seat = NULL;
    }
    for (int i = 0; i < STRANGERS_MAX; i++) {
        struct stranger *s = &first->w->strangers[i];
        if (s->job != job) continue;
        if (first->up) world_violation(first->w, "the job '%s' is freed in use", job->run_id);
        s->job = NULL;
    }
    if (first->up) first->w->totals.forgotten++;
    if (h != NULL && h->job == job) h->job = NULL, h->coordinator = NULL;
    first->w->jobs_alive--;
    free(CR_CONTAINER_OF(job, struct sim_job, job));
}

static const struct job_table_actions actions = {
    .add = add, .drop = drop, .coordinator = &host_coordinator_actions};

/* ---- starts and ends of the host ---- */

static void keep_job(struct host *h) {
    h->w->making = h;
    CR_ASSERT(job_table_get(h->table, host_now(h), h->w->run_id, NULL, &h->job, NULL) == 0);
    h->w->making = NULL;
    h->coordinator = h->job->coordinator;
    job_table_hold(h->job); /* so that the job is kept as long as the host runs */
}

void jobs_begin(struct host *h) {
    struct world *w = h->w;
    struct host *first = w->first == w ? h : w->first->hosts;
    h->table = &first->own_table;
    h->terms = &first->own_terms;
    h->job = NULL;
    h->coordinator = NULL;
    if (first != h) return;
    *h->terms = (struct host_session_terms){
        .leads = true, .close_timeout_ms = CLOSE_TIME, .coordinator = (uint64_t) h->id,
        .in_launcher = w->host_with_node >= 0 || (w->kind == SEVERAL_JOBS && w->seed % 64 < 32),
        .epoch = w->elected ? (uint64_t) h->id : 0};
    job_table_init(h->table, &actions, h, true);
    h->table->terms = h->terms;
    if (w->heirs || w->elected) h->table->own_run_id = w->run_id;
    h->table->is_heir = w->heirs && h != w->hosts;
    h->table->own_instance = w->heirs ? w->nodes[h->owner].instance : 0;
    h->table->allows_heirs = w->heirs;
    h->table->follows_another = w->elected && h->id > 1;
    if (w->kind != SEVERAL_JOBS) keep_job(h);
}

void jobs_end(struct host *h) {
    if (h->w->first == h->w && h->table != NULL) job_table_clear(h->table);
}

/* ---- connections ---- */

/* The address from which a node connects; the nodes of no two jobs have the same one. */
static struct cr_ip address(uint8_t group, uint8_t number) {
    return (struct cr_ip){.bytes = {10, [14] = group, [15] = number}};
}

static uint8_t number_of(const struct world *w) {
    for (int i = 0; i < w->first->guest_count; i++) {
        if (w->first->guests[i] == w) return (uint8_t) (1 + i);
    }
    return 0;
}

/* The host has made the job of this world. If it has had and freed the job before, this coordinator
 * knows nothing of that one, and gives its changes the same numbers again. */
static void begin_anew(struct host *h, struct host_job *job) {
    struct history *history = &h->w->history;
    h->job = job;
    h->coordinator = job->coordinator;
    h->life++;
    h->failed_record = -1;
    h->change_until = CR_FOREVER;
    for (int i = 0; i < history->change_count; i++) {
        if (history->changes[i].host_id == h->id) history->changes[i].host_id = -1;
    }
}

int jobs_hello(struct conn *c, const struct rdzv_hello *hello, struct cr_error *err) {
    struct host *h = c->host;
    struct world *first = h->w->first;
    struct cr_ip from = address(number_of(h->w), (uint8_t) (1 + c->node));
    if (h->w->kind != SEVERAL_JOBS) return 0;
    if (strcmp(hello->run_id, h->w->run_id) != 0) {
        world_violation(h->w, "node %d names the job '%s'", c->node, hello->run_id);
    }
    first->making = h;
    int rc = job_table_connect(h->table, host_now(h), hello->run_id, &from, false, &c->job, err);
    first->making = NULL;
    if (c->job == NULL) return rc;
    if (jobs_host(c->job) != h) {
        world_violation(h->w, "node %d gets another job than '%s'", c->node, h->w->run_id);
        return -EACCES;
    }
    if (h->job != c->job) begin_anew(h, c->job);
    return rc;
}

/* Checks that the job counts its connections as they are. */
static void check_count(const struct host *h) {
    uint32_t count = 0;
    for (const struct conn *c = h->w->conns; c != NULL; c = c->next) {
        if (c->job != NULL && c->job == h->job) count++;
    }
    if (h->job != NULL && h->job->peers != count) {
        world_violation(h->w, "the job '%s' counts %u connections, and has %u", h->w->run_id,
                        h->job->peers, count);
    }
}

void jobs_after_event(struct host *h) {
    for (struct conn *c = h->w->conns; c != NULL; c = c->next) {
        if (c->host != h || c->host_id != h->id || c->host_open || c->job == NULL) continue;
        struct host_job *job = c->job;
        c->job = NULL;
        job_table_disconnect(job, host_now(h));
    }
    check_count(h);
}

/* ---- strangers ---- */

#define CROWD_ADDRESSES 3

/* Checks the limits of the number of jobs after a stranger has come; `rc` says whether it was
 * served. */
static void check_limits(struct host *h, const struct cr_ip *from, int rc) {
    uint32_t max = h->terms->in_launcher ? JOBS_MAX_IN_LAUNCHER : JOBS_MAX, all = 0, same = 0;
    const struct host_job *job;
    bool has_idle = false;
    LIST_FOREACH(job, &h->table->list, entry) {
        bool is_same = memcmp(&job->maker, from, sizeof(*from)) == 0;
        all++;
        same += is_same ? 1 : 0;
        has_idle = has_idle || (is_same && job->peers == 0);
    }
    if (all > max) world_violation(h->w, "the host has %u jobs", all);
    if (same > max / SHARE_OF_ADDRESS) world_violation(h->w, "one address has %u jobs", same);
    bool has_share = same == max / SHARE_OF_ADDRESS && !has_idle;
    if (rc != 0 && !has_share) world_violation(h->w, "a stranger is refused without a reason");
}

static void come(struct host *h, int place, const struct cr_ip *from) {
    struct world *w = h->w;
    struct stranger *s = &w->strangers[place];
    char run_id[40];
    (void) snprintf(run_id, sizeof(run_id), "stranger %" PRIu64, w->totals.strangers++);
    int rc = job_table_connect(h->table, host_now(h), run_id, from, false, &s->job, NULL);
    s->host_id = h->id;
    check_limits(h, from, rc);
    if (rc < 0) w->totals.crowded++;
    else world_push(w, (struct event){.at = w->now + rnd(w, 4000), .type = EV_STRANGER, .node = -1,
                                      .host = h, .host_id = h->id, .what = place});
}

void jobs_crowd(struct host *h) {
    struct world *w = h->w;
    struct cr_ip from = address(100, (uint8_t) rnd(w, CROWD_ADDRESSES));
    int64_t count = 1 + rnd(w, 24);
    if (!h->up || h->stalled_until != 0) return;
    story(w, "host %d: a crowd of %" PRId64, h->id, count);
    for (int i = 0; i < STRANGERS_MAX && count > 0; i++) {
        if (w->strangers[i].job != NULL) continue;
        come(h, i, &from);
        count--;
    }
}

void jobs_stranger_leaves(struct host *h, int place) {
    struct stranger *s = &h->w->strangers[place];
    struct host_job *job = s->job;
    if (job == NULL || s->host_id != h->id) return;
    s->job = NULL;
    job_table_disconnect(job, host_now(h));
}

/* ---- checks ---- */

static struct coordinator_view views[1 + GUESTS_MAX]; /* the jobs before the present event */

static struct world *world_at(const struct world *first, int i) {
    return i == 0 ? first->guests[0]->first : first->guests[i - 1];
}

/* Returns whether the event is one of the whole host, which may change all jobs. */
static bool is_of_all(const struct event *e) {
    return e->type == EV_HOST_TIMER || e->type == EV_HOST_UP || e->type == EV_HOST_DOWN ||
           e->type == EV_STALL_ENDS || e->type == EV_FAULT;
}

void jobs_before(struct world *w, const struct event *e) {
    const struct world *first = w->first;
    if (first->guest_count == 0 || is_of_all(e)) return;
    for (int i = 0; i <= first->guest_count; i++) jobs_look(world_at(first, i)->hosts, &views[i]);
}

static bool is_same(const struct coordinator_view *a, const struct coordinator_view *b) {
    return a->phase == b->phase && a->incarnation == b->incarnation && a->seats == b->seats &&
           a->next_round == b->next_round && a->suspended == b->suspended &&
           a->restart_count == b->restart_count && a->spent == b->spent &&
           a->losses == b->losses && memcmp(a->in_state, b->in_state, sizeof(a->in_state)) == 0;
}

void jobs_after(struct world *w, const struct event *e) {
    const struct world *first = w->first;
    struct coordinator_view now;
    if (first->guest_count == 0 || is_of_all(e)) return;
    for (int i = 0; i <= first->guest_count; i++) {
        struct world *other = world_at(first, i);
        if (other == w) continue;
        jobs_look(other->hosts, &now);
        if (is_same(&views[i], &now)) continue;
        world_violation(w, "an event of the job '%s' changes the job '%s'", w->run_id,
                        other->run_id);
    }
}

void jobs_check_end(struct host *h) {
    const struct host_job *job;
    struct coordinator_view v;
    if (!h->up) return;
    LIST_FOREACH(job, &h->table->list, entry) {
        coordinator_look(job->coordinator, &v);
        bool is_due = host_now(h) > job->forget_ms + 1;
        if (job->peers > 0 || v.suspended > 0 || !is_due) continue;
        world_violation(h->w, "the job '%s' is not freed", job->run_id);
    }
}
