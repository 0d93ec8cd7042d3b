/* The election consists of facts (the lease, the calls that are under way) and of one function,
 * advance(), that starts each call that is missing. There are five kinds of call: the list of the
 * cluster's members (once); a lease grant; its keep-alive (every third of the lease); the campaign,
 * which etcd answers when this node leads; and observe, a stream of leaders, from which all nodes
 * learn which node leads. When a member of the etcd cluster does not answer, all calls are repeated
 * at the next member. A sixth call revokes the lease when the election is closed. */
#include "rendezvous/way/etcd_election_internal.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "rendezvous/types.h"
#include "rendezvous/way/etcd_call_internal.h"
#include "rendezvous/way/etcd_fields_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX  8
#define RETRY_MS     200
#define GOODBYE_MS   1000
#define PREFIX       "crun/rendezvous/"

/* C(name, path): every kind of call, and its HTTP path. */
#define CALLS(C)                                                                                   \
    C(MEMBERS, "/v3/cluster/member/list") C(GRANT, "/v3/lease/grant")                              \
    C(KEEPALIVE, "/v3/lease/keepalive") C(CAMPAIGN, "/v3/election/campaign")                       \
    C(OBSERVE, "/v3/election/observe") C(REVOKE, "/v3/lease/revoke")

enum call_kind {
#define C(name, path) CALL_##name,
    CALLS(C)
#undef C
    CALL_COUNT
};
static const char *const call_paths[] = {
#define C(name, path) path,
    CALLS(C)
#undef C
};

struct slot {
    struct etcd_election *election;
    enum call_kind kind;
    struct etcd_call *call; /* NULL = no call of this kind is under way */
    int64_t sent_ms;
};

struct etcd_election {
    uv_loop_t *loop;
    const struct etcd_election_events *events;
    void *arg;
    char *name; /* name of the election in etcd, in base64 */
    char own_addr[RDZV_ADDR_MAX];
    uint16_t own_port;

    struct cr_endpoint members[MEMBERS_MAX]; /* members of the etcd cluster */
    size_t member_count, current;
    bool knows_members;

    char lease[ETCD_LEASE_ID_MAX]; /* id of this node's lease; "" = it has none */
    int64_t lease_ms, lease_until_ms;
    bool campaigned, leading;
    uint64_t epoch; /* epoch of the newest leader known */

    struct slot slots[CALL_COUNT];
    uv_timer_t beat, retry;
    int open_handles;
    bool closing;
    char trouble[300];
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct etcd_election *e) { return (int64_t) uv_now(e->loop); }
static void advance(struct etcd_election *e);

const char *etcd_election_trouble(const struct etcd_election *e) { return e->trouble; }

/* ---- calls ---- */

static void on_answer(void *arg, const json_t *answer, const char *own_addr);
static void on_done(void *arg, const char *why);
static const struct etcd_call_events call_events = {.on_answer = on_answer, .on_done = on_done};

/* Starts a call of that kind at the current member, and releases `body`. If memory was short for
 * `body`, it is NULL, and no call is started; the next advance() or on_beat() tries again. */
static void start(struct etcd_election *e, enum call_kind kind, json_t *body) {
    struct slot *s = &e->slots[kind];
    const struct cr_endpoint *to = &e->members[e->current];
    s->sent_ms = now_ms(e);
    s->call = body == NULL ? NULL
                           : etcd_call_start(e->loop, to->host, to->port, call_paths[kind], body,
                                             &call_events, s);
    json_decref(body);
}

static void cancel(struct etcd_election *e, enum call_kind kind) {
    struct slot *s = &e->slots[kind];
    if (s->call != NULL) etcd_call_cancel(s->call);
    s->call = NULL;
}

static bool is_under_way(const struct etcd_election *e, enum call_kind kind) {
    return e->slots[kind].call != NULL;
}

static void on_retry(uv_timer_t *timer) { advance(timer->data); }

static void retry_soon(struct etcd_election *e) {
    if (!e->closing && !uv_is_active((uv_handle_t *) &e->retry)) {
        (void) uv_timer_start(&e->retry, on_retry, RETRY_MS, 0);
    }
}

static void note_trouble(struct etcd_election *e, const char *why) {
    const struct cr_endpoint *at = &e->members[e->current];
    (void) snprintf(e->trouble, sizeof(e->trouble), "etcd at '%.150s:%u': %.100s", at->host,
                    at->port, why);
    cr_debug("%s", e->trouble);
}

/* Call this when the current member of the etcd cluster does not work. It cancels all calls; the
 * retry timer starts them again at the next member. */
static void move_on(struct etcd_election *e, const char *why) {
    note_trouble(e, why);
    for (int k = 0; k < CALL_COUNT; k++) cancel(e, (enum call_kind) k);
    e->current = (e->current + 1) % e->member_count;
    e->campaigned = false;
    retry_soon(e);
}

/* ---- the lease ---- */

static void lose_lease(struct etcd_election *e, const char *why) {
    bool was_leading = e->leading;
    e->lease[0] = '\0';
    e->campaigned = e->leading = false;
    cancel(e, CALL_CAMPAIGN);
    cancel(e, CALL_KEEPALIVE);
    retry_soon(e);
    if (was_leading) e->events->on_deposed(e->arg, why);
}

/* Computes when the lease ends: counted from when the grant or keep-alive was sent, not from its
 * answer. etcd counts from a later moment, so this node never believes in a lease that etcd has
 * ended. */
static void renew_lease(struct etcd_election *e, enum call_kind by) {
    e->lease_until_ms = e->slots[by].sent_ms + e->lease_ms;
}

static void got_lease(struct etcd_election *e, const json_t *answer, const char *own_addr) {
    char id[ETCD_LEASE_ID_MAX];
    if (!etcd_read_lease(answer, id)) return;
    memcpy(e->lease, id, sizeof(id));
    if (e->own_addr[0] == '\0') (void) snprintf(e->own_addr, sizeof(e->own_addr), "%s", own_addr);
    renew_lease(e, CALL_GRANT);
    e->trouble[0] = '\0';
}

static void got_keepalive(struct etcd_election *e, const json_t *answer) {
    if (etcd_lease_lives(answer)) renew_lease(e, CALL_KEEPALIVE);
    else lose_lease(e, "its lease in etcd has expired");
}

/* Runs every third of the lease: sends a keep-alive. A leader gives up at 5/6 of its lease, because
 * etcd may elect another leader when the lease ends. A call that is still unanswered since the last
 * run means that the member of the cluster does not work. */
static void on_beat(uv_timer_t *timer) {
    struct etcd_election *e = timer->data;
    if (e->lease[0] != '\0' && now_ms(e) >= e->lease_until_ms - e->lease_ms / 6) {
        lose_lease(e, "etcd has not confirmed its lease");
    }
    if (is_under_way(e, CALL_KEEPALIVE) || is_under_way(e, CALL_GRANT) ||
        is_under_way(e, CALL_MEMBERS)) {
        move_on(e, "no answer");
    }
    if (e->lease[0] != '\0') start(e, CALL_KEEPALIVE, json_pack("{s:s}", "ID", e->lease));
}

/* ---- the cluster ---- */

static bool has_member(const struct etcd_election *e, const struct cr_endpoint *which) {
    for (size_t i = 0; i < e->member_count; i++) {
        const struct cr_endpoint *m = &e->members[i];
        if (strcmp(m->host, which->host) == 0 && m->port == which->port) return true;
    }
    return false;
}

static void got_members(struct etcd_election *e, const json_t *answer) {
    struct cr_endpoint found[MEMBERS_MAX];
    size_t n = etcd_read_members(answer, found, MEMBERS_MAX);
    for (size_t i = 0; i < n && e->member_count < MEMBERS_MAX; i++) {
        if (!has_member(e, &found[i])) e->members[e->member_count++] = found[i];
    }
    e->knows_members = true;
}

/* ---- leaders ---- */

static void got_leader(struct etcd_election *e, const json_t *answer) {
    struct etcd_leader leader;
    if (!etcd_read_leader(answer, &leader)) {
        note_trouble(e, "its leader's entry cannot be understood");
        return;
    }
    if (leader.epoch <= e->epoch) return;
    e->epoch = leader.epoch;
    e->leading = e->lease[0] != '\0' && strcmp(leader.lease, e->lease) == 0;
    e->events->on_leader(e->arg, leader.at.host, leader.at.port, e->epoch, e->leading);
}

static void on_answer(void *arg, const json_t *answer, const char *own_addr) {
    struct slot *s = arg;
    struct etcd_election *e = s->election;
    switch (s->kind) {
    case CALL_MEMBERS: got_members(e, answer); break;
    case CALL_GRANT: got_lease(e, answer, own_addr); break;
    case CALL_KEEPALIVE: got_keepalive(e, answer); break;
    case CALL_CAMPAIGN: e->campaigned = true; break;
    case CALL_OBSERVE: got_leader(e, answer); break;
    case CALL_REVOKE:
    case CALL_COUNT: break;
    }
}

static void close_handles(struct etcd_election *e);

static void on_done(void *arg, const char *why) {
    struct slot *s = arg;
    struct etcd_election *e = s->election;
    s->call = NULL;
    if (e->closing) close_handles(e);
    else if (why != NULL) move_on(e, why);
    else if (s->kind == CALL_OBSERVE || s->kind == CALL_CAMPAIGN) retry_soon(e);
    else advance(e);
}

/* ---- advance(): start the calls that are missing ---- */

static json_t *campaign_body(const struct etcd_election *e) {
    char text[RDZV_ADDR_MAX + 16];
    bool is_v6 = strchr(e->own_addr, ':') != NULL;
    (void) snprintf(text, sizeof(text), "%s%s%s:%u", is_v6 ? "[" : "", e->own_addr,
                    is_v6 ? "]" : "", e->own_port);
    char *value = etcd_base64(text);
    json_t *body = value == NULL ? NULL
                                 : json_pack("{s:s, s:s, s:s}", "name", e->name, "lease", e->lease,
                                             "value", value);
    free(value);
    return body;
}

static void advance(struct etcd_election *e) {
    bool idle[CALL_COUNT];
    if (e->closing) return;
    for (int k = 0; k < CALL_COUNT; k++) idle[k] = !is_under_way(e, (enum call_kind) k);
    if (!e->knows_members && idle[CALL_MEMBERS]) start(e, CALL_MEMBERS, json_object());
    if (idle[CALL_OBSERVE]) start(e, CALL_OBSERVE, json_pack("{s:s}", "name", e->name));
    if (e->lease[0] == '\0' && idle[CALL_GRANT]) {
        start(e, CALL_GRANT, json_pack("{s:I}", "TTL", (json_int_t) (e->lease_ms / 1000)));
    }
    if (e->lease[0] != '\0' && !e->campaigned && idle[CALL_CAMPAIGN]) {
        start(e, CALL_CAMPAIGN, campaign_body(e));
    }
}

/* ---- opening ---- */

static struct etcd_election *election_new(const char *run_id) {
    struct etcd_election *e = calloc(1, sizeof(*e));
    char *name = cr_asprintf(PREFIX "%s", run_id);
    if (e != NULL && name != NULL) e->name = etcd_base64(name);
    free(name);
    if (e != NULL && e->name != NULL) return e;
    free(e);
    return NULL;
}

struct etcd_election *etcd_election_start(uv_loop_t *loop, const struct etcd_election_options *o,
                                          const struct etcd_election_events *events, void *arg) {
    struct etcd_election *e = election_new(o->run_id);
    if (e == NULL) return NULL;
    e->loop = loop;
    e->events = events;
    e->arg = arg;
    e->members[e->member_count++] = o->endpoint;
    e->lease_ms = (o->lease_ms + 999) / 1000 * 1000;
    e->own_port = o->own_port;
    (void) snprintf(e->own_addr, sizeof(e->own_addr), "%s", o->own_addr);
    for (int k = 0; k < CALL_COUNT; k++) {
        e->slots[k] = (struct slot){.election = e, .kind = (enum call_kind) k};
    }
    (void) uv_timer_init(loop, &e->beat);
    (void) uv_timer_init(loop, &e->retry);
    e->beat.data = e->retry.data = e;
    e->open_handles = 2;
    (void) uv_timer_start(&e->beat, on_beat, (uint64_t) e->lease_ms / 3,
                          (uint64_t) e->lease_ms / 3);
    (void) uv_timer_start(&e->retry, on_retry, 0, 0);
    return e;
}

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct etcd_election *e = handle->data;
    if (--e->open_handles > 0) return;
    void (*on_close)(void *) = e->on_close;
    void *arg = e->on_close_arg;
    free(e->name);
    free(e);
    on_close(arg);
}

static void close_handles(struct etcd_election *e) {
    cancel(e, CALL_REVOKE);
    if (uv_is_closing((uv_handle_t *) &e->beat)) return;
    uv_close((uv_handle_t *) &e->beat, on_handle_closed);
    uv_close((uv_handle_t *) &e->retry, on_handle_closed);
}

static void on_goodbye_timer(uv_timer_t *timer) { close_handles(timer->data); }

void etcd_election_close(struct etcd_election *e, void (*on_close)(void *arg), void *arg) {
    e->closing = true;
    e->on_close = on_close;
    e->on_close_arg = arg;
    for (int k = 0; k < CALL_COUNT; k++) cancel(e, (enum call_kind) k);
    (void) uv_timer_stop(&e->beat);
    if (e->lease[0] != '\0') start(e, CALL_REVOKE, json_pack("{s:s}", "ID", e->lease));
    (void) uv_timer_start(&e->retry, on_goodbye_timer,
                          is_under_way(e, CALL_REVOKE) ? GOODBYE_MS : 0, 0);
}
