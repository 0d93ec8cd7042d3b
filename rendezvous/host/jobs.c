/* The jobs of a host: for each run id a coordinator, the actions that the coordinator calls, and
 * the key space of the current round. */
#include "rendezvous/host/host_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/rules/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- the coordinator's actions ---- */

static void job_send(void *arg, void *peer, const struct rdzv_message *m) {
    (void) arg;
    host_peer_send(peer, m);
}

static void job_hang_up(void *arg, void *peer) {
    (void) arg;
    host_peer_hang_up(peer);
}

/* Returns a number for a new run. Its upper 32 bits are the time in seconds, so that a later run
 * has a larger number; its lower 32 bits are random. */
static uint64_t job_draw(void *arg) {
    (void) arg;
    uint32_t random = 0;
    (void) getrandom(&random, sizeof(random), 0);
    return (uint64_t) time(NULL) << 32 | random;
}

static void job_on_behind(void *arg, const char *what) {
    host_answer_inquiry(arg, what);
}

static void job_log(void *arg, enum cr_log_level level, const char *text) {
    const struct host_job *job = arg;
    host_log(job->host, level, text);
}

static int job_wants_log(void *arg, enum cr_log_level level) {
    (void) arg;
    return cr_log_enabled(level);
}

int host_open_space(struct coordinator_host *host, struct store_space **space, uint16_t *port,
                    struct cr_error *err) {
    return store_server_open(host->store, host->store_host, host->store_port, space, port, err);
}

/* Opens the key space of the new round before it closes that of the previous round. As both ports
 * are open for a moment, they differ, and late workers of the previous round cannot reach the new
 * store. */
static int replace_space(struct host_job *job, uint16_t *port, struct cr_error *err) {
    struct store_space *fresh = NULL;
    int rc = host_open_space(job->host, &fresh, port, err);
    if (rc < 0) return rc;
    store_space_close(job->space);
    job->space = fresh;
    return 0;
}

static int job_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                          struct cr_error *err) {
    struct host_job *job = arg;
    struct coordinator_host *host = job->host;
    uint16_t port = host->store_port;
    cr_network_list_done(&job->admitted);
    int rc = 0;
    if (host->spare != NULL) {
        job->space = host->spare;
        port = host->spare_port;
        host->spare = NULL;
    } else if (host->store_port != 0 && job->space != NULL) {
        store_space_clear(job->space);
    } else {
        rc = replace_space(job, &port, err);
    }
    if (rc < 0) return rc;
    (void) snprintf(out->addr, sizeof(out->addr), "%s", host->store_addr);
    out->port = port;
    cr_debug("round %" PRIu64 ": store at %s port %u", round, out->addr, out->port);
    return 0;
}

static void job_close_store(void *arg) {
    struct host_job *job = arg;
    store_space_close(job->space);
    job->space = NULL;
    cr_network_list_done(&job->admitted);
}

static bool waits_for_nodes(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.phase == COORDINATOR_FORMING && view.awaited > 0;
}

static const char *job_other_waiting(void *arg) {
    const struct host_job *job = arg, *other;
    LIST_FOREACH(other, &job->host->jobs, entry) {
        if (other != job && waits_for_nodes(other)) return other->run_id;
    }
    return NULL;
}

static const struct coordinator_actions job_actions = {
    .send = job_send, .hang_up = job_hang_up, .open_store = job_open_store,
    .close_store = job_close_store, .admit = host_admit,
    .prepare_store = host_prepare_store, .draw = job_draw,
    .other_waiting = job_other_waiting, .on_behind = job_on_behind,
    .log = job_log, .wants_log = job_wants_log};

/* ---- adding and freeing jobs ---- */

static void job_free(struct host_job *job) {
    if (job == NULL) return;
    coordinator_free(job->coordinator);
    store_space_close(job->space);
    cr_network_list_done(&job->admitted);
    free(job->run_id);
    free(job);
}

struct host_job *host_find_job(const struct coordinator_host *host, const char *run_id) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (strcmp(job->run_id, run_id) == 0) return job;
    }
    return NULL;
}

static struct host_job *job_new(struct coordinator_host *host, const char *run_id) {
    struct host_job *job = calloc(1, sizeof(*job));
    if (job == NULL) return NULL;
    job->host = host;
    job->run_id = strdup(run_id);
    job->coordinator = coordinator_new(run_id, &job_actions, job);
    if (job->run_id == NULL || job->coordinator == NULL) {
        job_free(job);
        return NULL;
    }
    coordinator_identify(job->coordinator, host->terms.coordinator);
    if (host->is_heir) coordinator_is_heir(job->coordinator);
    coordinator_set_own(job->coordinator, host->own_instance);
    if (host->allows_heirs) coordinator_allow_heirs(job->coordinator);
    job->is_own = strcmp(run_id, host->own_run_id) == 0;
    if (job->is_own) coordinator_keep_job(job->coordinator);
    if (host->follows_another) coordinator_follows_another(job->coordinator);
    coordinator_may_form(job->coordinator, host_now_ms(host), host->right_until_ms);
    LIST_INSERT_HEAD(&host->jobs, job, entry);
    return job;
}

/* ---- the number of jobs ---- */

/* Returns whether a job that has not ended has suspended seats, whose nodes may resume. */
static bool may_resume(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.suspended > 0 && view.phase != COORDINATOR_ENDED;
}

/* Limits of the number of jobs that nodes of other processes may make on one host. A host that ends
 * with a launcher is meant for that launcher's job, so it takes fewer other jobs. The limits exist
 * because the time of each event of the host grows with the number of its jobs. */
#define JOBS_MAX             4096
#define JOBS_MAX_IN_LAUNCHER 64
#define SHARE_OF_ADDRESS     4 /* the nodes of one address may make a quarter of these jobs */

static bool is_own_job(const struct host_job *job) {
    static const struct cr_ip none;
    return memcmp(&job->maker, &none, sizeof(none)) == 0;
}

/* Counts the jobs that nodes of other processes have made: *all is the number of these jobs, *same
 * the number of those that nodes at the address `maker` have made. Stores in *oldest the job
 * without connections that would be freed first; NULL = there is none. */
static void count_jobs(const struct coordinator_host *host, const struct cr_ip *maker,
                       uint32_t *all, uint32_t *same, struct host_job **oldest) {
    struct host_job *job;
    *all = *same = 0;
    *oldest = NULL;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (is_own_job(job)) continue;
        ++*all;
        if (memcmp(&job->maker, maker, sizeof(*maker)) == 0) ++*same;
        if (job->peers > 0 || may_resume(job)) continue;
        if (*oldest == NULL || job->forget_ms < (*oldest)->forget_ms) *oldest = job;
    }
}

/* Call this before a node of the address `maker` makes a job. If there are too many jobs, frees one
 * that has no connections. Returns 0, or -EUSERS and a text in err if there is no such job. */
static int make_room(struct coordinator_host *host, const struct cr_ip *maker,
                     struct cr_error *err) {
    uint32_t max = host->terms.in_launcher ? JOBS_MAX_IN_LAUNCHER : JOBS_MAX, all, same;
    struct host_job *oldest;
    count_jobs(host, maker, &all, &same, &oldest);
    if (all < max && same < max / SHARE_OF_ADDRESS) return 0;
    if (oldest == NULL) {
        return cr_fail(err, -EUSERS,
                       "this host has %u other jobs, %u of them from the address of this node, and "
                       "takes no more; use another endpoint", all, same);
    }
    LIST_REMOVE(oldest, entry);
    job_free(oldest);
    return 0;
}

int host_get_job(struct coordinator_host *host, const struct host_peer *peer, const char *run_id,
                 struct host_job **out, struct cr_error *err) {
    struct cr_ip maker = {.bytes = {0}};
    *out = host_find_job(host, run_id);
    if (*out != NULL) return 0;
    bool is_remote = peer != NULL && host_peer_ip(peer, &maker) == 0;
    int rc = is_remote ? make_room(host, &maker, err) : 0;
    if (rc < 0) return rc;
    *out = job_new(host, run_id);
    if (*out == NULL) return cr_fail(err, -ENOMEM, "the coordinator is out of memory");
    (*out)->maker = maker;
    return 0;
}

void host_drop_job(struct host_job *job) {
    struct coordinator_view view;
    if (--job->peers > 0) return;
    coordinator_look(job->coordinator, &view);
    bool has_past = view.phase != COORDINATOR_EMPTY || view.next_round > 0;
    job->forget_ms =
        host_now_ms(job->host) + (has_past ? job->host->terms.close_timeout_ms : 0);
}

void host_free_jobs(struct coordinator_host *host) {
    struct host_job *job;
    while ((job = LIST_FIRST(&host->jobs)) != NULL) {
        LIST_REMOVE(job, entry);
        job_free(job);
    }
}

void host_forget_spaces(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        job->space = NULL;
    }
}

/* ---- deadlines ---- */

int64_t host_jobs_deadline(const struct coordinator_host *host) {
    int64_t when_ms = CR_FOREVER;
    const struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        int64_t deadline_ms = coordinator_deadline(job->coordinator);
        if (deadline_ms < when_ms) when_ms = deadline_ms;
        if (!host->may_form) continue;
        if (job->peers > 0 || job->is_superseded) continue;
        if (job->forget_ms < when_ms) when_ms = job->forget_ms;
    }
    return when_ms;
}

/* Frees the jobs that have had no connection for close_timeout_ms, but keeps a job whose nodes may
 * resume. Without the right to form rounds it frees no job, because the nodes may come back when
 * the host has the right again. */
static void forget_jobs(struct coordinator_host *host) {
    struct host_job *job, *next;
    if (!host->may_form) return;
    for (job = LIST_FIRST(&host->jobs); job != NULL; job = next) {
        next = LIST_NEXT(job, entry);
        if (job->peers > 0 || host_now_ms(host) < job->forget_ms) continue;
        if (job->is_superseded) continue; /* nodes that come are sent to the leader */
        if (may_resume(job)) {
            job->forget_ms = host_now_ms(host) + host->terms.close_timeout_ms;
            continue;
        }
        cr_debug("job '%s' is forgotten", job->run_id);
        LIST_REMOVE(job, entry);
        job_free(job);
    }
}

void host_tick_jobs(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) coordinator_tick(job->coordinator, host_now_ms(host));
    forget_jobs(host);
}

static bool has_suspended(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.suspended > 0;
}

bool host_awaits_nodes(const struct coordinator_host *host) {
    const struct host_job *job;
    if (host->time_is_up || host->store == NULL) return false;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (has_suspended(job)) return true;
    }
    return false;
}

void host_remember_jobs(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        job->forget_ms = host_now_ms(host) + host->terms.close_timeout_ms;
    }
}

void host_pass_on_right(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        coordinator_may_form(job->coordinator, host_now_ms(host), host->right_until_ms);
    }
}

bool host_has_held_job(const struct coordinator_host *host) {
    struct coordinator_view view;
    const struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        coordinator_look(job->coordinator, &view);
        if (view.is_held) return true;
    }
    return false;
}

static bool is_running(const struct host_job *job) {
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    return view.phase != COORDINATOR_ENDED;
}

uint32_t host_count_other_jobs(const struct coordinator_host *host, const char **run_id) {
    const struct host_job *job;
    uint32_t count = 0;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (job->is_own || job->peers == 0 || !is_running(job)) continue;
        *run_id = job->run_id;
        count++;
    }
    return count;
}

void host_abandon_jobs(struct coordinator_host *host, bool only_own, const char *why) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (only_own && !job->is_own) continue;
        if (is_running(job)) job->says_goodbye = host->terms.comes_again = true;
        coordinator_goodbye(job->coordinator, why);
    }
}

bool host_retire_own_job(struct coordinator_host *host) {
    struct host_job *job;
    struct coordinator_view view;
    LIST_FOREACH(job, &host->jobs, entry) {
        coordinator_look(job->coordinator, &view);
        if (!job->is_own || !view.has_heirs || view.phase == COORDINATOR_ENDED) continue;
        coordinator_retire(job->coordinator);
        return true;
    }
    return false;
}

/* ---- jobs that another host leads ---- */

void host_supersede_job(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port) {
    job->is_superseded = true;
    if (epoch > job->epoch) job->epoch = epoch;
    (void) snprintf(job->leader_addr, sizeof(job->leader_addr), "%s", addr);
    job->leader_port = port;
    coordinator_send_away(job->coordinator);
}

/* Returns what this host knows about the job; `job` may be NULL. */
static struct leading leading_of(const struct coordinator_host *host, const struct host_job *job) {
    struct leading l = {.allows_heirs = host->allows_heirs, .has_job = job != NULL,
                        .host_epoch = host->terms.epoch};
    if (job != NULL) l.job_epoch = job->epoch;
    if (job != NULL) l.is_superseded = job->is_superseded;
    return l;
}

struct host_session_verdict host_judge(struct coordinator_host *host,
                                       const struct rdzv_hello *hello) {
    struct host_job *job = host_find_job(host, hello->run_id);
    struct leading l = leading_of(host, job);
    struct host_session_verdict v = {0};
    if (leading_is_in_doubt(&l, hello->epoch) &&
        coordinator_hear_epoch(job->coordinator, host_now_ms(host)) == COORDINATOR_IS_SUPERSEDED) {
        job->is_superseded = l.is_superseded = true;
    }
    v.serves = leading_serves(&l, hello->epoch, &v.epoch);
    if (!v.serves && job != NULL && job->leader_addr[0] != '\0') {
        v.addr = job->leader_addr;
        v.port = job->leader_port;
    }
    return v;
}

void host_admitted(struct host_job *job, uint64_t named) {
    const struct leading l = leading_of(job->host, job);
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    job->epoch = leading_admits(&l, named, view.incarnation == job->epoch_run);
    job->epoch_run = view.incarnation;
}

void host_hear_leader(struct host_job *job, uint64_t epoch, const char *addr, uint16_t port) {
    const struct leading l = leading_of(job->host, job);
    struct coordinator_view view;
    coordinator_look(job->coordinator, &view);
    if (leading_gives_up(&l, epoch, view.decides, view.phase == COORDINATOR_ENDED))
        host_supersede_job(job, epoch, addr, port);
}

bool coordinator_host_leads(const struct coordinator_host *host, const char *run_id,
                            uint64_t *epoch) {
    const struct host_job *job = host_find_job(host, run_id);
    struct coordinator_view view;
    if (job == NULL || !host->terms.leads || job->is_superseded) return false;
    coordinator_look(job->coordinator, &view);
    const struct leading l = leading_of(host, job);
    *epoch = leading_epoch(&l);
    return view.phase != COORDINATOR_ENDED && view.decides;
}

bool host_has_running_job(const struct coordinator_host *host) {
    const struct host_job *job;
    LIST_FOREACH(job, &host->jobs, entry) {
        if (is_running(job)) return true;
    }
    return false;
}
