/* Lets a node on a remote way take over from a lost coordinator. Before its first JOIN the node
 * opens a host of its own, which serves nobody until the member decides to take over. */
#include "rendezvous/way/remote_way_internal.h"

#include "base/log/log.h"
#include "base/time/clock.h"

#include <inttypes.h>
#include <string.h>

void way_remote_aim(struct way *w, const char *addr, uint16_t port) {
    struct remote_way *r = (struct remote_way *) w;
    const char *host = port != 0 ? addr : r->home.host;
    r->aims_home = port == 0;
    /* dial_aim() fails only if memory is short: in that case this try goes to the old address, and
     * a later try calls dial_aim() again */
    (void) dial_aim(r->dial, host, port != 0 ? port : r->home.port);
}

uint16_t way_remote_heir_port(struct way *w) {
    struct remote_way *r = (struct remote_way *) w;
    struct cr_error err = {0};
    if (!r->plan.allows_heirs || w->closing) return 0;
    struct coordinator_host_options h = {
        .store_host = r->plan.store_host, .store_addr = r->plan.own_addr,
        .listen_host = r->plan.listen_host, .jobs_come_later = true, .elected = true,
        .in_launcher = true, .allows_heirs = true, .is_heir = true, .own_run_id = r->run_id,
        .own_instance = r->plan.instance, .ports = r->plan.ports, .ring = w->ring,
        .close_timeout_ms = r->close_timeout_ms};
    if (w->heir == NULL && coordinator_host_open(w->loop, &h, &w->heir, &err) < 0) {
        cr_warn("this node cannot take over if the coordinator is lost: %s", err.text);
        w->heir = NULL;
    }
    return w->heir != NULL ? coordinator_host_port(w->heir) : 0;
}

/* Starts the knocker, which sends LEADS to the host at the endpoint every few seconds, as long as
 * this node leads the job. LEADS says that the coordinator is at `addr` and `port`. */
static void knock_at_endpoint(struct remote_way *r, const char *addr, uint16_t port) {
    if (r->knocker == NULL) {
        struct knocker_settings s = {.host = r->host, .port = r->home.port, .run_id = r->run_id,
                                     .ring = r->way.ring, .leader = r->way.heir};
        r->knocker = knocker_new(r->way.loop, &s);
    }
    if (r->knocker != NULL) knocker_start(r->knocker, addr, port);
}

void way_remote_lead(struct way *w, uint64_t epoch, const char *addr) {
    if (w->heir == NULL) return;
    /* discard what this host knows from an earlier election */
    coordinator_host_depose(w->heir, "another election");
    coordinator_host_lead(w->heir, epoch, true);
    coordinator_host_may_form(w->heir, CR_FOREVER);
    struct remote_way *r = (struct remote_way *) w;
    uint16_t port = coordinator_host_port(w->heir);
    if (r->signpost != NULL) remote_way_publish(r, epoch, addr, port);
    else knock_at_endpoint(r, addr, port);
}

void way_remote_follow(struct way *w, uint64_t coordinator, uint64_t epoch, const char *addr,
                       uint16_t port) {
    struct remote_way *r = (struct remote_way *) w;
    bool is_us = w->heir != NULL && port == coordinator_host_port(w->heir) &&
                 coordinator_host_has_id(w->heir, coordinator);
    if (port != 0) {
        cr_info("the coordinator is '%s' port %u%s, epoch %" PRIu64, addr, port,
                is_us ? " (this node)" : "", epoch);
    }
    if (port != 0 && w->host != NULL) {
        coordinator_host_moved(w->host, r->run_id, epoch, addr, port);
    }
    if (is_us) return;
    if (r->knocker != NULL) knocker_stop(r->knocker);
    /* Port 0 means: the coordinator is the one that the signpost names. If this node's own host may
     * be that one, this node goes on writing to the signpost. */
    bool hosts_itself = port == 0 && w->host != NULL;
    if (r->signpost != NULL && !hosts_itself) signpost_fall_silent(r->signpost);
    if (w->heir != NULL) coordinator_host_depose(w->heir, "another node leads");
}
