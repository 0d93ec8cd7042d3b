/* Opens and closes a host, follows elections, and has host_end_event(), with which every event
 * ends. */
#include "rendezvous/host/host.h"

#include "base/assert.h"
#include "base/log/log.h"
#include "base/time/clock.h"
#include "rendezvous/host/host_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int64_t host_now_ms(const struct coordinator_host *host) { return (int64_t) uv_now(host->loop); }

/* ---- the log ---- */

/* Maximum number of log lines of the level info in 10 s. The number is large because each node that
 * joins causes such a line. */
#define INFOS_MAX 1000
/* Maximum number of log lines in 10 s about peers that could not authenticate. Anybody can cause
 * such lines, and they are alike. */
#define REFUSALS_MAX 3

void host_log(struct coordinator_host *host, enum cr_log_level level, const char *text) {
    struct cr_log_limit *limit = level == CR_LOG_INFO ? &host->infos : &host->warnings;
    if (level == CR_LOG_DEBUG) cr_debug("%s", text);
    else cr_log_limited(limit, level, "%s", text);
}

/* ---- host_end_event(): every event ends with it ---- */

/* Makes this host stand by: closes the connections of all nodes, so that they look for another
 * coordinator. The jobs stay in memory. If etcd confirms this node again before it elects another
 * one, this host leads again and still knows how many restarts each job has had. */
static void stand_by(struct coordinator_host *host) {
    struct host_peer *peer;
    cr_warn("this node stands by: a round is due, but etcd has not confirmed this node as the "
            "coordinator for %" PRId64 " ms",
            host->held_ms);
    host->terms.leads = false;
    job_table_stand_by(&host->jobs);
    LIST_FOREACH(peer, &host->peers, entry) {
        host_peer_say_goodbye(peer, "etcd does not confirm this coordinator");
        host_peer_close(peer, RENDEZVOUS_CLOSED,
                        "a round is due, but etcd does not confirm this coordinator");
    }
}

static void on_timer(uv_timer_t *timer) {
    struct coordinator_host *host = timer->data;
    job_table_tick(&host->jobs, host_now_ms(host));
    if (host_now_ms(host) >= host->stand_by_ms) stand_by(host);
    host_end_event(host);
}

/* Sets stand_by_ms, the time at which this host stands by. If a round is due, but this host has no
 * right to form it, the time is held_ms after the round became due; otherwise it is CR_FOREVER. */
static void find_stand_by_time(struct coordinator_host *host) {
    if (host->jobs.may_form || !job_table_has_held(&host->jobs)) host->stand_by_ms = CR_FOREVER;
    else if (host->stand_by_ms == CR_FOREVER)
        host->stand_by_ms = host_now_ms(host) + host->held_ms;
}

static void arm_timer(struct coordinator_host *host) {
    find_stand_by_time(host);
    int64_t when_ms = job_table_deadline(&host->jobs), now_ms = host_now_ms(host);
    if (host->stand_by_ms < when_ms) when_ms = host->stand_by_ms;
    if (when_ms == CR_FOREVER) {
        (void) uv_timer_stop(&host->timer);
    } else {
        (void) uv_timer_start(&host->timer, on_timer,
                              when_ms > now_ms ? (uint64_t) (when_ms - now_ms) : 0, 0);
    }
}

static void begin_closing(struct coordinator_host *host);
static void close_handles(struct coordinator_host *host);

/* Flushes all marked peers, relays last: the flush of a member adds bytes to the output of its
 * relay. */
static void flush_peers(struct coordinator_host *host) {
    struct host_peer *peer;
    while ((peer = LIST_FIRST(&host->unsent)) != NULL ||
           (peer = LIST_FIRST(&host->unsent_relays)) != NULL) {
        host_peer_flush(peer);
    }
}

/* Call this while the host closes. New connections are refused, except while a node with a
 * suspended seat may still come back and must learn how its job has ended. Such a node may also
 * lose its connection after the host has begun to close, before it has read END. */
static void refuse_or_await(struct coordinator_host *host) {
    host->terms.closing = host_awaits_nodes(host) ? NULL : host->why;
}

/* Every event ends with this function. It sends the bytes that the event has queued, closes the
 * connections that are over, and sets the timer to the next deadline. If coordinator_host_close()
 * is waiting for jobs of other launchers (`lingers`), and the last of them is over, the host begins
 * to close. */
void host_end_event(struct coordinator_host *host) {
    const char *other;
    if (host->closing) host_end_relays(host);
    flush_peers(host);
    if (host->lingers && job_table_count_others(&host->jobs, &other) == 0) {
        host->lingers = false;
        begin_closing(host);
    }
    if (host->closing) refuse_or_await(host);
    if (!host->closing) arm_timer(host);
    else if (LIST_EMPTY(&host->peers) && !host_awaits_nodes(host)) close_handles(host);
}

/* ---- opening a host ---- */

/* Stops the store's thread, which closes all stores, so that on_handoff() is not called any
 * more. */
static void close_stores(struct coordinator_host *host) {
    store_server_stop(host->store);
    host->store = NULL;
    host->spare = host->door = NULL;
    host_forget_spaces(host);
}

static void host_free(struct coordinator_host *host) {
    close_stores(host);
    job_table_clear(&host->jobs);
    host_free_handoffs(host);
    cr_log_limit_end(&host->warnings);
    cr_log_limit_end(&host->infos);
    cr_log_limit_end(&host->refusals);
    uv_mutex_destroy(&host->lock);
    free(host->own_run_id);
    free(host->store_host);
    free(host->read_buffer);
    free(host);
}

/* Draws the id of this host's coordinators. Nodes name the id in later JOINs, which shows a later
 * coordinator that the job had an earlier one. If getrandom() has no random numbers yet, the id
 * stays as it is, at first 0. Without an id, only the round that a node reports shows that the job
 * had an earlier coordinator. */
static void draw_id(struct coordinator_host *host) {
    (void) getrandom(&host->terms.coordinator, sizeof(host->terms.coordinator), GRND_NONBLOCK);
}

static struct coordinator_host *host_new(uv_loop_t *loop,
                                         const struct coordinator_host_options *o) {
    struct coordinator_host *host = calloc(1, sizeof(*host));
    if (host == NULL) return NULL;
    host->loop = loop;
    host->warnings.about = host->infos.about = "jobs and nodes";
    host->infos.max = INFOS_MAX;
    host->refusals.about = "refused connections";
    host->refusals.max = REFUSALS_MAX;
    host->store_host = strdup(o->store_host);
    host->store_port = o->store_port;
    host->own_run_id = strdup(o->own_run_id != NULL ? o->own_run_id : "");
    job_table_init(&host->jobs, &host_job_actions, host, !o->elected);
    host->jobs.terms = &host->terms;
    host->jobs.own_run_id = host->own_run_id;
    host->jobs.own_instance = o->own_instance;
    host->jobs.allows_heirs = o->allows_heirs;
    host->jobs.is_heir = o->is_heir;
    host->terms.close_timeout_ms = o->close_timeout_ms;
    host->terms.leads = !o->elected;
    host->ring = o->ring;
    host->held_ms = o->held_ms;
    host->stand_by_ms = CR_FOREVER;
    host->terms.in_launcher = o->in_launcher;
    if (o->store_guard != NULL) host->guard = *o->store_guard;
    host->is_restricted = host_guard_restricts(&host->guard, o->has_secret || o->ring != NULL);
    draw_id(host);
    STAILQ_INIT(&host->handoffs);
    STAILQ_INIT(&host->agreements.waiting);
    (void) snprintf(host->store_addr, sizeof(host->store_addr), "%s",
                    o->store_addr != NULL ? o->store_addr : o->store_host);
    if (host->store_host != NULL && host->own_run_id != NULL && uv_mutex_init(&host->lock) == 0) {
        return host;
    }
    free(host->own_run_id);
    free(host->store_host);
    free(host);
    return NULL;
}

/* Returns whether nodes of other processes may connect. */
static bool wants_nodes(const struct coordinator_host_options *o) {
    return !o->alone && (o->store_port != 0 || o->listen_host != NULL);
}

/* Starts the store's server and opens its ports. host_accept_handoffs() must come before the first
 * port is open: otherwise the server would take a node that connects for a client of the store, and
 * would close the node's connection. */
static int open_stores(struct coordinator_host *host, const struct coordinator_host_options *o,
                       struct cr_error *err) {
    struct store_server_options options = {.ports = o->ports, .restricted = host->is_restricted};
    char key[RDZV_TEXT_MAX + 32], why[RDZV_TEXT_MAX + 100];
    if (o->own_run_id != NULL && wants_nodes(o)) {
        (void) snprintf(key, sizeof(key), "torch.rendezvous.%s", o->own_run_id);
        (void) snprintf(why, sizeof(why),
                        "it is a torchrun that looks for job '%.100s', which crun serves here; "
                        "start all nodes with crun, or all with torchrun",
                        o->own_run_id);
        options.refused_key = key;
        options.refused_why = why;
    }
    int rc = store_server_start(&options, &host->store, err);
    if (rc == 0 && wants_nodes(o)) rc = host_accept_handoffs(host, err);
    if (rc == 0 && o->listen_host != NULL) {
        rc = store_server_open(host->store, o->listen_host, o->listen_port, &host->door,
                               &host->door_port, err);
    }
    if (rc == 0) rc = host_close_door(host, host->door, err);
    if (rc == 0 && !o->jobs_come_later) {
        rc = host_open_space(host, &host->spare, &host->spare_port, err);
    }
    return rc;
}

int coordinator_host_open(uv_loop_t *loop, const struct coordinator_host_options *options,
                          struct coordinator_host **out, struct cr_error *err) {
    struct coordinator_host *host = host_new(loop, options);
    if (host == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    int rc = open_stores(host, options, err);
    if (rc == 0 && wants_nodes(options)) rc = host_start_listening(host, err);
    if (rc < 0) {
        host_free(host);
        return rc;
    }
    (void) uv_timer_init(loop, &host->timer);
    host->timer.data = host;
    host->open_handles++;
    host->says_open = options->says_open && wants_nodes(options);
    if (host->terms.leads) host_say_if_open(host);
    *out = host;
    return 0;
}

uint16_t coordinator_host_port(const struct coordinator_host *host) {
    return host->door != NULL ? host->door_port : host->spare_port;
}

/* ---- elections ---- */

void coordinator_host_lead(struct coordinator_host *host, uint64_t epoch, bool is_first) {
    if (!is_first) host->jobs.follows_another = true;
    host->terms.leads = true;
    host->terms.epoch = epoch;
    host_say_if_open(host);
    draw_id(host);
}

bool coordinator_host_has_running_job(const struct coordinator_host *host) {
    return job_table_has_running(&host->jobs);
}

void coordinator_host_may_form(struct coordinator_host *host, int64_t until_ms) {
    job_table_may_form(&host->jobs, host_now_ms(host), until_ms);
    host_end_event(host);
}

void coordinator_host_depose(struct coordinator_host *host, const char *why) {
    struct host_peer *peer;
    host->terms.leads = false;
    LIST_FOREACH(peer, &host->peers, entry) {
        CR_ASSERT(!peer->local);
        host_peer_say_goodbye(peer, why);
        host_peer_forget(peer, why);
    }
    job_table_clear(&host->jobs);
    host_end_event(host);
}

/* ---- closing: END to all nodes; the nodes close; the stores; libuv's handles ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct coordinator_host *host = handle->data;
    if (--host->open_handles > 0) return;
    void (*on_close)(void *) = host->on_close;
    void *arg = host->on_close_arg;
    host_free(host);
    if (on_close != NULL) on_close(arg);
}

static void close_handles(struct coordinator_host *host) {
    if (host->closing_handles) return;
    host->closing_handles = true;
    close_stores(host);
    uv_close((uv_handle_t *) &host->timer, on_handle_closed);
    if (host->listens) uv_close((uv_handle_t *) &host->wake, on_handle_closed);
}

static void on_close_timeout(uv_timer_t *timer) {
    struct coordinator_host *host = timer->data;
    struct host_peer *peer;
    host->time_is_up = true;
    LIST_FOREACH(peer, &host->peers, entry) {
        if (!peer->local) host_peer_close(peer, RENDEZVOUS_CLOSED, host->why);
    }
    host_end_event(host);
}

void coordinator_host_abandon(struct coordinator_host *host, const char *why) {
    job_table_abandon(&host->jobs, false, why);
    host_end_event(host);
}

void coordinator_host_retire(struct coordinator_host *host, const char *why) {
    bool has_heirs = job_table_retire_own(&host->jobs);
    if (!has_heirs) job_table_abandon(&host->jobs, false, why);
    host_end_event(host);
}

void coordinator_host_moved(struct coordinator_host *host, const char *run_id, uint64_t epoch,
                            const char *addr, uint16_t port) {
    struct cr_error err = {0};
    struct host_job *job;
    if (host_get_job(host, NULL, run_id, &job, &err) == 0) {
        job_table_supersede(job, epoch, addr, port);
    } else {
        host_log(host, CR_LOG_WARN, err.text);
    }
    host_end_event(host);
}

bool coordinator_host_has_id(const struct coordinator_host *host, uint64_t coordinator) {
    return host->terms.coordinator == coordinator;
}

/* Begins to close the host. Its nodes have close_timeout_ms to close their connections. */
static void begin_closing(struct coordinator_host *host) {
    host->closing = true;
    refuse_or_await(host);
    (void) uv_timer_start(&host->timer, on_close_timeout, (uint64_t) host->terms.close_timeout_ms,
                          0);
}

/* Ends this launcher's job if it still runs. If the host also has jobs of other launchers, the host
 * lingers: it serves these jobs until they are over. Otherwise the host begins to close. */
static void close_or_linger(struct coordinator_host *host) {
    const char *other = "";
    job_table_abandon(&host->jobs, true, host->why);
    uint32_t count = job_table_count_others(&host->jobs, &other);
    host->lingers = count > 0;
    if (host->lingers) {
        cr_warn("this launcher's job is over, but it hosts the rendezvous of %u other job(s) "
                "('%s'), so it stays until these are over; SIGTERM ends it, and them", count,
                other);
    } else {
        begin_closing(host);
    }
    host_end_event(host);
}

void coordinator_host_close(struct coordinator_host *host, const char *why,
                            void (*on_close)(void *arg), void *arg) {
    CR_ASSERT(!host->closing);
    (void) snprintf(host->why, sizeof(host->why), "%s", why != NULL ? why : "it leads no more");
    host->on_close = on_close;
    host->on_close_arg = arg;
    if (why != NULL) {
        close_or_linger(host);
        return;
    }
    host->terms.leads = false;
    begin_closing(host);
    if (job_table_has_running(&host->jobs)) coordinator_host_depose(host, host->why);
    else host_end_event(host);
}
