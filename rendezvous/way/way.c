/* Chooses and opens the kind of way that a backend's plan needs. A way is closed in two steps:
 * first its own handles, then what this node hosts. */
#include "rendezvous/way/way.h"

#include "base/assert.h"
#include "base/log/log.h"
#include "rendezvous/dial/dial.h"
#include "rendezvous/way/way_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the job's secrets ---- */

/* Returns whether only processes of this machine can reach what a hosting node opens. */
static bool listens_locally(const struct backend_plan *plan) {
    return addr_is_loopback(plan->listen_port != 0 ? plan->listen_host : plan->store_host);
}

/* ---- opening ---- */

int way_open_host(uv_loop_t *loop, const struct backend_plan *plan, const char *run_id,
                  int64_t close_timeout_ms, struct coordinator_host **out, struct cr_error *err) {
    struct coordinator_host_options h = {
        .store_host = plan->store_host, .store_port = plan->store_port,
        .store_addr = plan->store_addr, .alone = plan->alone, .in_launcher = true,
        .listen_host = plan->listen_port != 0 ? plan->listen_host : NULL,
        .listen_port = plan->listen_port, .ports = plan->ports,
        .close_timeout_ms = close_timeout_ms, .own_run_id = run_id,
        .store_guard = &plan->store_guard, .has_secret = plan->has_secret,
        .own_instance = plan->instance, .allows_heirs = plan->allows_heirs,
        .ring = plan->ring, .says_open = plan->says_open && !listens_locally(plan)};
    return coordinator_host_open(loop, &h, out, err);
}

/* Opens the elected way. Every node may be elected, so this node listens for other nodes before it
 * takes part in the election. A leader connects to itself over TCP, like any other node. */
static int open_elected(uv_loop_t *loop, const struct rendezvous_options *o,
                        const struct backend_plan *plan, struct way **out, struct cr_error *err) {
    struct coordinator_host *host;
    struct coordinator_host_options h = {.store_host = plan->store_host,
                                         .store_addr = plan->own_addr,
                                         .listen_host = plan->listen_host,
                                         .ports = plan->ports,
                                         .store_guard = &plan->store_guard,
                                         .has_secret = plan->has_secret,
                                         .jobs_come_later = true,
                                         .elected = true,
                                         .own_run_id = o->run_id,
                                         .own_instance = plan->instance,
                                         .held_ms = plan->etcd_lease_ms,
                                         .close_timeout_ms = o->close_timeout_ms,
                                         .ring = plan->ring,
                                         .says_open = plan->says_open &&
                                                      !addr_is_loopback(plan->listen_host)};
    int rc = coordinator_host_open(loop, &h, &host, err);
    if (rc < 0) return cr_wrap(err, "cannot listen for the nodes of job '%s'", o->run_id);
    rc = way_elected_new(loop, o, plan, host, out, err);
    if (rc < 0) coordinator_host_close(host, NULL, NULL, NULL);
    return rc;
}

/* Opens the host of a job with one node. No other node has to connect, so if another program has
 * the endpoint's port, the job runs without listening there. */
static int open_host_of_one(uv_loop_t *loop, const struct backend_plan *plan, const char *run_id,
                            int64_t close_timeout_ms, struct coordinator_host **out,
                            struct cr_error *err) {
    struct backend_plan unheard = *plan;
    int rc = way_open_host(loop, plan, run_id, close_timeout_ms, out, err);
    if (rc != -EADDRINUSE || plan->store_port != 0) return rc;
    cr_warn("cannot listen at '%s': another program has this port; the job runs, but crun-agent "
            "status is not answered there", plan->where);
    unheard.listen_port = 0;
    *err = (struct cr_error){0};
    return way_open_host(loop, &unheard, run_id, close_timeout_ms, out, err);
}

/* Opens the way of a node that hosts or may host. If the node has to ask first whether another node
 * hosts, it gets a remote way. If it may host (BACKEND_MAY_HOST) but the port is in use, it gets a
 * remote way, too, because normally another process on this machine hosts already. Any other node
 * hosts and gets the local way. But if heirs are allowed, it gets a remote way to its own host,
 * because it has to join an heir if its own host loses the majority of the nodes. */
static int open_hosting(uv_loop_t *loop, const struct rendezvous_options *o,
                        const struct backend_plan *plan, struct way **out, struct cr_error *err) {
    struct coordinator_host *host;
    if (plan->asks_first) {
        *out = way_remote_new(loop, o, plan, plan);
        return 0;
    }
    int64_t close_ms = o->close_timeout_ms;
    int rc = plan->one_node ? open_host_of_one(loop, plan, o->run_id, close_ms, &host, err)
                            : way_open_host(loop, plan, o->run_id, close_ms, &host, err);
    if (rc == -EADDRINUSE && plan->hosting == BACKEND_MAY_HOST) {
        cr_debug("%s has a coordinator already", plan->where);
        *out = way_remote_new(loop, o, plan, plan);
        return 0;
    }
    if (rc < 0) return cr_wrap(err, "cannot host the rendezvous at '%s'", plan->where);
    *out = plan->allows_heirs ? way_remote_new_hosting(loop, o, plan, host)
                              : way_local_new(loop, host);
    if (*out == NULL) coordinator_host_close(host, "out of memory", NULL, NULL);
    return 0;
}

/* Returns 0 if a node of this job can authenticate; or -ENOENT and a text in err if the token file
 * only has keys of other jobs or roles. */
static int check_key(struct secure_ring *ring, const char *run_id, struct cr_error *err) {
    uint8_t key[SECURE_KEY];
    if (secure_ring_is_munge(ring)) return 0;
    int rc = secure_ring_choose(ring, SECURE_MEMBER, run_id, key, err);
    explicit_bzero(key, sizeof(key));
    return rc;
}

static int open_kind(uv_loop_t *loop, const struct rendezvous_options *options,
                     const struct backend_plan *plan, struct way **out, struct cr_error *err) {
    struct way *w = NULL;
    int rc = 0;
    if (plan->hosting == BACKEND_ELECTS) rc = open_elected(loop, options, plan, &w, err);
    else if (plan->hosting != BACKEND_CONNECTS) rc = open_hosting(loop, options, plan, &w, err);
    else
        w = way_remote_new(loop, options, plan,
                           plan->unresolved && options->is_host < 0 ? plan : NULL);
    if (rc < 0) return rc;
    if (w == NULL) return cr_fail(err, -ENOMEM, "start the rendezvous: out of memory");
    w->ring = plan->ring;
    if (!way_is_local(w) && w->ring != NULL) way_remote_secure(w);
    *out = w;
    return 0;
}

int way_open(uv_loop_t *loop, const struct rendezvous_options *options,
             const struct backend_plan *plan, const struct way_events *events, void *arg,
             struct way **out, struct cr_error *err) {
    struct backend_plan secured = *plan;
    bool needs_ring = !plan->alone || options->auth == RENDEZVOUS_AUTH_REQUIRED;
    int rc = 0;
    secured.ring = NULL;
    secured.says_open = options->auth != RENDEZVOUS_AUTH_OFF;
    secured.has_secret = secured.says_open && secure_token_path(options->token_file) != NULL;
    if (needs_ring) rc = secure_ring_find(options->auth, options->token_file, &secured.ring, err);
    if (secured.ring != NULL) {
        secured.has_secret = true;
        rc = check_key(secured.ring, options->run_id, err);
    }
    if (rc == 0) rc = open_kind(loop, options, &secured, out, err);
    if (rc < 0) {
        secure_ring_close(secured.ring);
        return rc;
    }
    (*out)->events = events;
    (*out)->arg = arg;
    return 0;
}

/* ---- calls that go to the kind of way ---- */

struct coordinator_host *way_host(const struct way *w) { return w->host; }

bool way_has_secret(const struct way *w) { return w->ring != NULL; }
struct secure_ring *way_ring(const struct way *w) { return w->ring; }
bool way_is_local(const struct way *w) { return w->kind == &way_local; }
bool way_hosts(const struct way *w) { return w->host != NULL && w->kind != &way_elected; }

const char *way_description(const struct way *w) {
    return way_hosts(w) ? way_local.description : w->kind->description;
}

void way_aim(struct way *w, const char *addr, uint16_t port) {
    if (w->kind == &way_remote) way_remote_aim(w, addr, port);
}

uint16_t way_heir_port(struct way *w) {
    return w->kind == &way_remote ? way_remote_heir_port(w) : 0;
}

void way_lead(struct way *w, uint64_t epoch, const char *addr) {
    if (w->kind == &way_remote) way_remote_lead(w, epoch, addr);
}

void way_follow(struct way *w, uint64_t coordinator, uint64_t epoch, const char *addr,
                uint16_t port) {
    if (w->kind == &way_remote) way_remote_follow(w, coordinator, epoch, addr, port);
}

const char *way_coordinator_addr(const struct way *w) {
    return way_is_local(w) ? "" : way_remote_coordinator_addr(w);
}

const char *way_trouble(const struct way *w) {
    return w->kind == &way_elected ? way_elected_trouble(w) : "";
}

const char *way_report(struct way *w) {
    return way_is_local(w) ? "" : way_remote_report(w);
}

void way_connect(struct way *w, const void *greeting, size_t len) {
    w->kind->connect(w, greeting, len);
}

void way_send(struct way *w, const void *data, size_t len) { w->kind->send(w, data, len); }
void way_flush(struct way *w) { w->kind->flush(w); }
void way_hang_up(struct way *w) { w->kind->hang_up(w); }

void way_retire(struct way *w, const char *why) {
    if (way_hosts(w)) coordinator_host_retire(w->host, why);
    if (w->heir != NULL) coordinator_host_retire(w->heir, why);
}

void way_abandon(struct way *w, const char *why) {
    if (way_hosts(w)) coordinator_host_abandon(w->host, why);
    if (w->heir != NULL) coordinator_host_abandon(w->heir, why);
}

/* ---- closing ---- */

static void on_heir_closed(void *arg) {
    struct way *w = arg;
    void (*on_close)(void *) = w->on_close;
    void *user = w->on_close_arg;
    secure_ring_close(w->ring);
    free(w);
    on_close(user);
}

static void on_host_closed(void *arg) {
    struct way *w = arg;
    if (w->heir != NULL) coordinator_host_close(w->heir, w->why, on_heir_closed, w);
    else on_heir_closed(w);
}

/* Closes what this node hosts. On the elected way, passes NULL as `why` to
 * coordinator_host_close(), so that the jobs do not end: the next leader continues them. */
void way_closed(struct way *w) {
    const char *why = w->kind == &way_elected ? NULL : w->why;
    if (w->host != NULL) coordinator_host_close(w->host, why, on_host_closed, w);
    else on_host_closed(w);
}

void way_close(struct way *w, const char *why, void (*on_close)(void *arg), void *arg) {
    CR_ASSERT(!w->closing);
    w->closing = true;
    w->why = why;
    w->on_close = on_close;
    w->on_close_arg = arg;
    w->kind->close(w);
}
