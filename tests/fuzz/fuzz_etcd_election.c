/* libFuzzer target: gives the election by etcd any sequence of answers, errors, changed keys and
 * clock ticks, also sequences that no real etcd produces. Each byte of the input is one event. The
 * target checks after each event that only a leader with a lease has the right to form rounds, and
 * that at most one call of each kind to etcd is under way. After a few calls of
 * etcd_election_tick() with the current time, the election's deadline must lie in the future. */
#include "base/assert.h"
#include "base/time/clock.h"
#include "rendezvous/etcd/election_internal.h"

#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct run {
    struct etcd_election election;
    bool under_way[ETCD_CALL_COUNT];
    bool leads;
    int64_t right_until_ms; /* as on_right() has reported it last; 0 = no right */
    int64_t now_ms;
    uint64_t revision;
    unsigned leases;
};

static void do_start(void *arg, enum etcd_call call) {
    struct run *r = arg;
    CR_ASSERT(!r->under_way[call]);
    r->under_way[call] = true;
    if (call == ETCD_CALL_KEEP || call == ETCD_CALL_CLAIM)
        CR_ASSERT(r->election.lease[0] != '\0');
}

static void do_cancel(void *arg, enum etcd_call call) {
    struct run *r = arg;
    CR_ASSERT(r->under_way[call]);
    r->under_way[call] = false;
}

static void do_next_member(void *arg) {
    const struct run *r = arg;
    for (int c = 0; c < ETCD_CALL_COUNT; c++) CR_ASSERT(!r->under_way[c]);
}

static void do_leader(void *arg, const struct etcd_key *key, bool is_us) {
    CR_ASSERT(key->epoch > 0);
    ((struct run *) arg)->leads = is_us;
}

static void do_vacant(void *arg) { ((struct run *) arg)->leads = false; }

static void do_right(void *arg, int64_t until_ms) {
    struct run *r = arg;
    CR_ASSERT(r->right_until_ms != until_ms);
    r->right_until_ms = until_ms;
}

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    CR_ASSERT(text[0] != '\0');
}

static const struct etcd_election_actions actions = {
    .start = do_start, .cancel = do_cancel, .next_member = do_next_member,
    .on_leader = do_leader, .on_vacant = do_vacant, .on_right = do_right, .log = do_log};

static void end_call(struct run *r, enum etcd_call call, bool failed) {
    if (!r->under_way[call]) return;
    r->under_way[call] = false;
    etcd_election_ended(&r->election, r->now_ms, call, failed, "fuzz");
}

static void give_key(struct run *r, enum etcd_call call, unsigned what) {
    struct etcd_key key = {.revision = r->revision, .exists = (what & 1) != 0, .epoch = r->revision,
                           .at = {.host = "10.0.0.1", .port = 4711}};
    if (!r->under_way[call]) return;
    if ((what & 2) != 0) (void) snprintf(key.lease, sizeof(key.lease), "%s", r->election.lease);
    else (void) snprintf(key.lease, sizeof(key.lease), "77");
    if ((what & 4) != 0) r->revision++;
    etcd_election_got_key(&r->election, r->now_ms, call, &key);
}

static void tick(struct run *r, unsigned how) {
    int64_t when_ms = etcd_election_deadline(&r->election);
    if (how == 0 && when_ms != CR_FOREVER && when_ms > r->now_ms) r->now_ms = when_ms;
    else r->now_ms += (int64_t) how * 37;
    for (int i = 0; i < ETCD_CALL_COUNT * 2; i++) {
        when_ms = etcd_election_deadline(&r->election);
        if (when_ms > r->now_ms) return;
        etcd_election_tick(&r->election, r->now_ms);
    }
    CR_ASSERT(!"the election asks to be called again and again");
}

static void handle(struct run *r, uint8_t byte) {
    struct etcd_election *e = &r->election;
    unsigned what = byte >> 4;
    switch (byte & 15) {
    case 0: etcd_election_need(e, r->now_ms, what & 1); break;
    case 1: give_key(r, ETCD_CALL_READ, what); break;
    case 2: give_key(r, ETCD_CALL_CLAIM, what); break;
    case 3: give_key(r, ETCD_CALL_WATCH, what); break;
    case 4:
        if (!r->under_way[ETCD_CALL_GRANT]) break;
        char lease[ETCD_LEASE_ID_MAX];
        (void) snprintf(lease, sizeof(lease), "%u", 100 + r->leases++);
        etcd_election_granted(e, lease);
        break;
    case 5:
        if (r->under_way[ETCD_CALL_KEEP]) etcd_election_kept(e, r->now_ms, what & 1);
        break;
    case 6:
        if (r->under_way[ETCD_CALL_WATCH]) etcd_election_watches(e);
        break;
    case 7: end_call(r, (enum etcd_call) (what % ETCD_CALL_COUNT), false); break;
    case 8: end_call(r, (enum etcd_call) (what % ETCD_CALL_COUNT), true); break;
    case 9:
        if (r->under_way[ETCD_CALL_LOGIN]) etcd_election_logged_in(e);
        break;
    case 10: tick(r, 0); break;
    default: tick(r, what + 1); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run r = {.now_ms = 1000, .revision = 5};
    if (size < 1) return 0;
    struct etcd_election_settings settings = {
        .lease_ms = 3000, .claim_delay_ms = (data[0] & 1) != 0 ? 0 : CR_FOREVER,
        .has_user = (data[0] & 2) != 0, .finds_members = (data[0] & 4) != 0, .seed = data[0]};
    if ((data[0] & 8) != 0) settings.claim_delay_ms = 700;
    etcd_election_begin(&r.election, r.now_ms, &settings, &actions, &r);
    for (size_t i = 1; i < size; i++) {
        handle(&r, data[i]);
        CR_ASSERT(r.right_until_ms == 0 ||
                  (r.election.state == ETCD_LEADING && r.election.lease[0] != '\0'));
        CR_ASSERT(r.leads == (r.election.state == ETCD_LEADING) ||
                  r.election.state == ETCD_LOOKING);
    }
    unsigned calls = etcd_election_close(&r.election, (data[0] & 16) != 0);
    CR_ASSERT(calls > 0 || !r.under_way[ETCD_CALL_RELEASE]);
    CR_ASSERT(etcd_election_deadline(&r.election) == CR_FOREVER);
    return 0;
}
