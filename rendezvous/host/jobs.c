/* The shell around the jobs of a host (job_table_internal.h): the actions that their coordinators
 * call, and the key space of the current round of each job. */
#include "rendezvous/host/host_internal.h"

#include "base/log/log.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct coordinator_host *host_of_job(const struct host_job *job) { return job->table->arg; }

struct job_store *host_job_store(struct host_job *job) {
    return CR_CONTAINER_OF(job, struct job_store, job);
}

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
    host_log(host_of_job(job), level, text);
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
static int replace_space(struct job_store *js, uint16_t *port, struct cr_error *err) {
    struct store_space *fresh = NULL;
    int rc = host_open_space(host_of_job(&js->job), &fresh, port, err);
    if (rc < 0) return rc;
    store_space_close(js->space);
    js->space = fresh;
    return 0;
}

static int job_open_store(void *arg, uint64_t round, struct coordinator_store *out,
                          struct cr_error *err) {
    struct job_store *js = host_job_store(arg);
    struct coordinator_host *host = host_of_job(&js->job);
    uint16_t port = host->store_port;
    cr_network_list_done(&js->admitted);
    int rc = 0;
    if (host->spare != NULL) {
        js->space = host->spare;
        port = host->spare_port;
        host->spare = NULL;
    } else if (host->store_port != 0 && js->space != NULL) {
        store_space_clear(js->space);
    } else {
        rc = replace_space(js, &port, err);
    }
    if (rc < 0) return rc;
    (void) snprintf(out->addr, sizeof(out->addr), "%s", host->store_addr);
    out->port = port;
    cr_debug("round %" PRIu64 ": store at %s port %u", round, out->addr, out->port);
    return 0;
}

static void job_close_store(void *arg) {
    struct job_store *js = host_job_store(arg);
    store_space_close(js->space);
    js->space = NULL;
    cr_network_list_done(&js->admitted);
}

static const struct coordinator_actions coordinator_actions = {
    .send = job_send, .hang_up = job_hang_up, .open_store = job_open_store,
    .close_store = job_close_store, .admit = host_admit,
    .prepare_store = host_prepare_store, .draw = job_draw,
    .other_waiting = job_table_other_waiting, .on_behind = job_on_behind,
    .log = job_log, .wants_log = job_wants_log};

/* ---- the actions of the table ---- */

static struct host_job *add(void *arg) {
    struct job_store *js = calloc(1, sizeof(*js));
    (void) arg;
    return js != NULL ? &js->job : NULL;
}

static void drop(void *arg, struct host_job *job) {
    struct job_store *js = host_job_store(job);
    (void) arg;
    cr_debug("job '%s' is forgotten", job->run_id);
    store_space_close(js->space);
    cr_network_list_done(&js->admitted);
    free(js);
}

const struct job_table_actions host_job_actions = {
    .add = add, .drop = drop, .coordinator = &coordinator_actions};

/* ---- other functions ---- */

/* Returns the address to whose share of jobs a job counts that `peer` makes, and stores it in *out;
 * or returns NULL if `peer` is NULL or in this process, and no share is needed. It is the address
 * of the other end of the connection. For a node behind a relay this is the relay's address,
 * because a stranger that acts as a relay may name any address of the node. If the connection is
 * reset already, its address is not known any more; all jobs of unknown addresses count to one
 * address that no machine has. */
static const struct cr_ip *maker_of(const struct host_peer *peer, struct cr_ip *out) {
    if (peer == NULL || peer->local) return NULL;
    const struct host_peer *end = peer->is_relayed ? host_relay_of(peer) : peer;
    if (end == NULL || host_peer_ip(end, out) < 0) memset(out, 0xff, sizeof(*out));
    return out;
}

int host_get_job(struct coordinator_host *host, const struct host_peer *peer, const char *run_id,
                 struct host_job **out, struct cr_error *err) {
    struct cr_ip maker;
    return job_table_get(&host->jobs, host_now_ms(host), run_id, maker_of(peer, &maker), out, err);
}

int host_connect_job(struct host_peer *peer, const char *run_id, struct cr_error *err) {
    struct coordinator_host *host = peer->host;
    struct cr_ip maker;
    return job_table_connect(&host->jobs, host_now_ms(host), run_id, maker_of(peer, &maker),
                             peer->local, &peer->job, err);
}

void host_forget_spaces(struct coordinator_host *host) {
    struct host_job *job;
    LIST_FOREACH(job, &host->jobs.list, entry) host_job_store(job)->space = NULL;
}

bool host_awaits_nodes(const struct coordinator_host *host) {
    if (host->time_is_up || host->store == NULL) return false;
    return job_table_awaits_nodes(&host->jobs);
}

bool coordinator_host_leads(const struct coordinator_host *host, const char *run_id,
                            uint64_t *epoch) {
    return job_table_leads(&host->jobs, run_id, epoch);
}
