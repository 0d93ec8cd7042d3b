/* Decides how a node takes part in an election: see election_internal.h. Events change facts
 * (the key, the lease, which calls are under way). Every event ends with advance(), which starts
 * each call that the facts require. */
#include "rendezvous/etcd/election_internal.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MIN_MS   INT64_C(200)
#define RETRY_MAX_MS   INT64_C(1000) /* longest pause if the node leads or needs a coordinator */
#define IDLE_RETRY_MS  INT64_C(8000) /* longest pause of the other nodes */
#define READ_PAUSE_MS  INT64_C(1000) /* least ms from one READ to the next */
/* number of nodes of a job that on average claim the key without a delay */
#define EAGER_NODES    4
#define LATE_CLAIM_MS  INT64_C(1000)

const char *etcd_election_state_name(enum etcd_election_state s) {
    switch (s) {
#define S(name)                                                                                    \
    case ETCD_##name: return #name;
        ETCD_ELECTION_STATES(S)
#undef S
    }
    return "?";
}

const char *etcd_call_name(enum etcd_call c) {
    switch (c) {
#define C(name)                                                                                    \
    case ETCD_CALL_##name: return #name;
        ETCD_CALLS(C)
#undef C
    case ETCD_CALL_COUNT: break;
    }
    return "?";
}

/* Maps `random` to a number from 0 to max_nodes - 1. A node with a number below EAGER_NODES does
 * not wait. Any other node waits for one second, and for half a millisecond times its number. In
 * this time one of the first nodes usually creates the key; the others see that and do not claim
 * it. */
int64_t etcd_claim_delay_ms(uint64_t random, uint32_t max_nodes) {
    uint64_t place = (uint64_t) (((unsigned __int128) random * max_nodes) >> 64);
    return place < EAGER_NODES ? 0 : LATE_CLAIM_MS + (int64_t) place / 2;
}

/* Sets the state, and logs the change. No other function writes `state`. */
static void enter(struct etcd_election *e, enum etcd_election_state next, const char *why) {
    char text[200];
    if (e->state == next) return;
    (void) snprintf(text, sizeof(text), "election: %s -> %s (%.100s)",
                    etcd_election_state_name(e->state), etcd_election_state_name(next), why);
    e->actions->log(e->arg, CR_LOG_DEBUG, text);
    e->state = next;
}

/* ---- calls ---- */

static void start(struct etcd_election *e, int64_t now_ms, enum etcd_call call) {
    if (e->under_way[call]) return;
    e->under_way[call] = true;
    e->answered[call] = false;
    e->sent_ms[call] = now_ms;
    e->limit_ms[call] =
        now_ms + (call == ETCD_CALL_KEEP ? e->set.lease_ms / 3 : ETCD_CALL_LIMIT_MS);
    e->actions->start(e->arg, call);
}

static void cancel(struct etcd_election *e, enum etcd_call call) {
    if (!e->under_way[call]) return;
    e->under_way[call] = false;
    e->actions->cancel(e->arg, call);
}

static void cancel_all(struct etcd_election *e) {
    for (int c = 0; c < ETCD_CALL_COUNT; c++) cancel(e, (enum etcd_call) c);
    e->is_watching = false;
}

/* Returns a random time from 50 % to 100 % of `ms` (by splitmix64), so that many nodes do not call
 * etcd at one moment. */
static int64_t jittered(struct etcd_election *e, int64_t ms) {
    uint64_t z = (e->set.seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ms / 2 + (int64_t) ((z ^ z >> 31) % (uint64_t) (ms / 2 + 1));
}

/* Call this when the current member of the etcd cluster does not work. It cancels all calls and
 * makes the next member the current one. The calls start again after a pause, which is longer after
 * each failure. */
static void move_on(struct etcd_election *e, int64_t now_ms) {
    bool is_urgent = e->needs || e->state == ETCD_LEADING;
    int64_t pause_ms = RETRY_MIN_MS << (e->failures < 6 ? e->failures : 6);
    int64_t max_ms = is_urgent ? RETRY_MAX_MS : IDLE_RETRY_MS;
    cancel_all(e);
    e->failures++;
    e->has_token = e->is_fresh = false;
    e->retry_ms = now_ms + jittered(e, pause_ms < max_ms ? pause_ms : max_ms);
    e->actions->next_member(e->arg);
}

/* ---- the lease and the right to form rounds ---- */

static void update_right(struct etcd_election *e, int64_t now_ms) {
    int64_t until_ms = e->lease_until_ms - e->set.lease_ms / 6;
    bool may_form = e->state == ETCD_LEADING && e->lease[0] != '\0' && now_ms < until_ms;
    if (!may_form) until_ms = 0;
    if (until_ms == e->right_until_ms) return;
    e->right_until_ms = until_ms;
    e->actions->on_right(e->arg, until_ms);
}

/* Sets the end of the lease after an answer to the call `by`, which is GRANT or KEEP. The lease is
 * counted from the time at which this node sent the call. etcd counts it from the time at which the
 * call arrives, which is later. So etcd never ends the lease while this node still trusts it. */
static void renew_lease(struct etcd_election *e, enum etcd_call by) {
    e->lease_until_ms = e->sent_ms[by] + e->set.lease_ms;
    e->keep_ms = e->sent_ms[by] + e->set.lease_ms / 3;
}

static void forget_lease(struct etcd_election *e) {
    e->lease[0] = '\0';
    e->lease_until_ms = 0;
    e->keep_ms = CR_FOREVER;
    cancel(e, ETCD_CALL_KEEP);
    cancel(e, ETCD_CALL_CLAIM);
}

/* Ends this node's lease in etcd. A CLAIM under this lease that arrives later cannot create the
 * key. */
static void release_lease(struct etcd_election *e, int64_t now_ms) {
    if (e->lease[0] == '\0') return;
    memcpy(e->released, e->lease, sizeof(e->released));
    forget_lease(e);
    start(e, now_ms, ETCD_CALL_RELEASE);
}

/* ---- the key ---- */

static void became_vacant(struct etcd_election *e, int64_t now_ms) {
    if (e->state == ETCD_VACANT) return;
    if (e->state == ETCD_LEADING) forget_lease(e);
    enter(e, ETCD_VACANT, "the key does not exist");
    if (e->set.claim_delay_ms != CR_FOREVER) {
        e->claim_ms = now_ms + (e->hosts ? 0 : e->set.claim_delay_ms);
    }
    e->actions->on_vacant(e->arg);
}

static void became_leader(struct etcd_election *e, const struct etcd_key *key) {
    if (e->state == ETCD_LEADING && key->epoch == e->epoch) return;
    e->epoch = key->epoch;
    e->hosts = true;
    enter(e, ETCD_LEADING, "this node has created the key");
    e->actions->on_leader(e->arg, key, true);
}

static void another_leads(struct etcd_election *e, int64_t now_ms, const struct etcd_key *key) {
    if (e->state == ETCD_FOLLOWING && key->epoch == e->epoch) return;
    release_lease(e, now_ms);
    e->epoch = key->epoch;
    e->hosts = false;
    enter(e, ETCD_FOLLOWING, "another node has created the key");
    update_right(e, now_ms);
    e->actions->on_leader(e->arg, key, false);
}

static void advance(struct etcd_election *e, int64_t now_ms);

void etcd_election_got_key(struct etcd_election *e, int64_t now_ms, enum etcd_call call,
                           const struct etcd_key *key) {
    e->answered[call] = true;
    if (call == ETCD_CALL_READ) {
        e->is_fresh = true;
        e->failures = 0;
        e->watch_from = key->revision + 1;
        e->verify_ms = now_ms + e->set.lease_ms;
    }
    bool is_ours = key->exists && e->lease[0] != '\0' && strcmp(key->lease, e->lease) == 0;
    if (key->revision < e->revision) return; /* the election knows a newer state of the key */
    /* The watch has reported this node's key before the answer to CLAIM has come. Only that answer
     * tells whether this node is the job's first leader, so wait for it. */
    if (is_ours && call != ETCD_CALL_CLAIM && e->under_way[ETCD_CALL_CLAIM]) return;
    e->revision = key->revision;
    if (!key->exists) became_vacant(e, now_ms);
    else if (is_ours) became_leader(e, key);
    else another_leads(e, now_ms, key);
    advance(e, now_ms);
}

/* ---- other answers ---- */

void etcd_election_logged_in(struct etcd_election *e) {
    e->answered[ETCD_CALL_LOGIN] = true;
    e->has_token = true;
}

void etcd_election_found_members(struct etcd_election *e) {
    e->answered[ETCD_CALL_MEMBERS] = true;
    e->knows_members = true;
}

void etcd_election_watches(struct etcd_election *e) { e->is_watching = true; }

void etcd_election_granted(struct etcd_election *e, const char *lease) {
    e->answered[ETCD_CALL_GRANT] = true;
    (void) snprintf(e->lease, sizeof(e->lease), "%s", lease);
    renew_lease(e, ETCD_CALL_GRANT);
}

void etcd_election_kept(struct etcd_election *e, int64_t now_ms, bool lives) {
    e->answered[ETCD_CALL_KEEP] = true;
    if (e->lease[0] == '\0') return;
    if (lives) {
        renew_lease(e, ETCD_CALL_KEEP);
        update_right(e, now_ms);
        return;
    }
    /* The lease has expired, and etcd has deleted the key with it. READ finds out whether another
     * node leads. */
    forget_lease(e);
    update_right(e, now_ms);
    if (e->state == ETCD_LEADING) enter(e, ETCD_LOOKING, "the lease has expired");
    e->is_fresh = false;
    advance(e, now_ms);
}

void etcd_election_ended(struct etcd_election *e, int64_t now_ms, enum etcd_call call, bool failed,
                         const char *why) {
    char text[300];
    if (e->closed || !e->under_way[call]) return;
    e->under_way[call] = false;
    /* Two more cases are failures: the end of a watch, because a watch never ends by itself; and
     * the end of a call without an answer that has the wanted fields. */
    failed = failed || call == ETCD_CALL_WATCH || !e->answered[call];
    /* MEMBERS is called once, even if it fails: etcd forbids it to some users */
    if (call == ETCD_CALL_MEMBERS) e->knows_members = true;
    /* After any other failed call, move on to the next member. Not after a failed RELEASE: the
     * lease expires by itself. */
    else if (call != ETCD_CALL_RELEASE && failed) {
        (void) snprintf(text, sizeof(text), "election: %s failed: %.200s", etcd_call_name(call),
                        why);
        e->actions->log(e->arg, CR_LOG_DEBUG, text);
        move_on(e, now_ms);
    }
    advance(e, now_ms);
}

/* ---- advance(): starts the calls that are missing ---- */

static bool wants_key(const struct etcd_election *e, int64_t now_ms) {
    return e->state == ETCD_VACANT && e->is_fresh && (e->needs || e->hosts) &&
           e->set.claim_delay_ms != CR_FOREVER && now_ms >= e->claim_ms;
}

static void advance_lease(struct etcd_election *e, int64_t now_ms) {
    bool wants = wants_key(e, now_ms);
    if (e->state != ETCD_LEADING && e->lease[0] != '\0' &&
        now_ms >= e->lease_until_ms - e->set.lease_ms / 3) {
        release_lease(e, now_ms); /* less than a third of it is left */
    }
    if (e->lease[0] != '\0' && now_ms >= e->keep_ms && e->state == ETCD_LEADING) {
        start(e, now_ms, ETCD_CALL_KEEP);
    }
    if (wants) start(e, now_ms, e->lease[0] == '\0' ? ETCD_CALL_GRANT : ETCD_CALL_CLAIM);
}

static void advance(struct etcd_election *e, int64_t now_ms) {
    if (e->closed) return;
    update_right(e, now_ms);
    if (now_ms < e->retry_ms) return;
    e->retry_ms = 0;
    if (e->set.has_user && !e->has_token) {
        start(e, now_ms, ETCD_CALL_LOGIN);
        return;
    }
    if (e->set.finds_members && !e->knows_members) start(e, now_ms, ETCD_CALL_MEMBERS);
    if (e->needs && now_ms >= e->verify_ms) e->is_fresh = false;
    if (!e->is_fresh) {
        if (!e->under_way[ETCD_CALL_READ]) e->read_ms = now_ms;
        start(e, now_ms, ETCD_CALL_READ);
    } else {
        start(e, now_ms, ETCD_CALL_WATCH);
    }
    advance_lease(e, now_ms);
}

/* ---- the owner's calls ---- */

void etcd_election_begin(struct etcd_election *e, int64_t now_ms,
                         const struct etcd_election_settings *settings,
                         const struct etcd_election_actions *actions, void *arg) {
    *e = (struct etcd_election){.set = *settings, .actions = actions, .arg = arg,
                                .keep_ms = CR_FOREVER, .claim_ms = CR_FOREVER,
                                .verify_ms = CR_FOREVER, .read_ms = now_ms};
    advance(e, now_ms);
}

/* When a node begins to need a coordinator, it reads the key again, because its watch may be
 * silent: the member of the etcd cluster may have failed without closing the connection. */
void etcd_election_need(struct etcd_election *e, int64_t now_ms, bool needs) {
    if (e->closed || e->needs == needs) return;
    e->needs = needs;
    if (needs) {
        int64_t soonest_ms = e->read_ms + READ_PAUSE_MS;
        e->verify_ms = e->is_fresh && soonest_ms > now_ms ? soonest_ms : now_ms;
        if (e->state == ETCD_VACANT && e->set.claim_delay_ms != CR_FOREVER) {
            e->claim_ms = now_ms + e->set.claim_delay_ms;
        }
    }
    advance(e, now_ms);
}

/* ---- time ---- */

/* Returns the time limit of a call; CR_FOREVER if the call is not under way, or is a watch that
 * etcd has confirmed. */
static int64_t limit_of(const struct etcd_election *e, enum etcd_call call) {
    bool is_endless = call == ETCD_CALL_WATCH && e->is_watching;
    return e->under_way[call] && !is_endless ? e->limit_ms[call] : CR_FOREVER;
}

void etcd_election_tick(struct etcd_election *e, int64_t now_ms) {
    for (int c = 0; c < ETCD_CALL_COUNT && !e->closed; c++) {
        if (now_ms < limit_of(e, (enum etcd_call) c)) continue;
        cancel(e, (enum etcd_call) c);
        /* cancel() has set this to false. It must be true here, because etcd_election_ended()
         * ignores a call that is not under way. */
        e->under_way[c] = true;
        etcd_election_ended(e, now_ms, (enum etcd_call) c, true, "no answer");
    }
    advance(e, now_ms);
}

static int64_t min_ms(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns whether calls other than LOGIN may start. */
static bool may_call(const struct etcd_election *e) { return !e->set.has_user || e->has_token; }

/* Returns when this node next has to renew or release its lease, give up the right to form rounds,
 * or claim the vacant key; CR_FOREVER if it has to do none of these. */
static int64_t lease_deadline(const struct etcd_election *e) {
    int64_t when_ms = CR_FOREVER, third_ms = e->set.lease_ms / 3;
    if (e->right_until_ms != 0) when_ms = e->right_until_ms;
    if (e->retry_ms != 0 || !may_call(e)) return when_ms;
    if (e->state == ETCD_LEADING && !e->under_way[ETCD_CALL_KEEP])
        when_ms = min_ms(when_ms, e->keep_ms);
    if (e->state != ETCD_LEADING && e->lease[0] != '\0')
        when_ms = min_ms(when_ms, e->lease_until_ms - third_ms);
    bool claims = e->under_way[ETCD_CALL_GRANT] || e->under_way[ETCD_CALL_CLAIM];
    if (e->state == ETCD_VACANT && (e->needs || e->hosts) && e->is_fresh && !claims)
        when_ms = min_ms(when_ms, e->claim_ms);
    return when_ms;
}

int64_t etcd_election_deadline(const struct etcd_election *e) {
    int64_t when_ms = lease_deadline(e);
    if (e->closed) return CR_FOREVER;
    if (e->retry_ms != 0) return min_ms(when_ms, e->retry_ms);
    if (e->needs && e->is_fresh && may_call(e)) when_ms = min_ms(when_ms, e->verify_ms);
    for (int c = 0; c < ETCD_CALL_COUNT; c++) {
        when_ms = min_ms(when_ms, limit_of(e, (enum etcd_call) c));
    }
    return when_ms;
}

unsigned etcd_election_close(struct etcd_election *e, bool is_over) {
    unsigned started = 0;
    cancel_all(e);
    if (is_over && e->state == ETCD_LEADING) {
        e->actions->start(e->arg, ETCD_CALL_FORGET);
        started++;
    }
    if (e->lease[0] != '\0') {
        memcpy(e->released, e->lease, sizeof(e->released));
        e->lease[0] = '\0';
        e->actions->start(e->arg, ETCD_CALL_RELEASE);
        started++;
    }
    e->closed = true;
    return started;
}
