/* Tests of a node's part in the election by etcd, on a virtual clock: when the node claims the
 * key, when it loses and gets back the right to form rounds, and what it does when members of the
 * etcd cluster do not answer. */
#include "base/time/clock.h"
#include "rendezvous/etcd/election_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define LEASE 3000

static struct etcd_election e;
static int64_t now;
static bool under_way[ETCD_CALL_COUNT];
static int starts[ETCD_CALL_COUNT], members_tried, leaders, vacancies;
static bool may_form, is_us, is_first;
static int64_t right_until;
static uint64_t epoch, revision;
static char last_log[300];

static void do_start(void *arg, enum etcd_call call) {
    (void) arg;
    ck_assert(!under_way[call]);
    under_way[call] = true;
    starts[call]++;
}
static void do_cancel(void *arg, enum etcd_call call) {
    (void) arg;
    ck_assert(under_way[call]);
    under_way[call] = false;
}
static void do_next_member(void *arg) { (void) arg; members_tried++; }
static void do_leader(void *arg, const struct etcd_key *key, bool us) {
    (void) arg;
    leaders++;
    epoch = key->epoch;
    is_first = key->is_first;
    is_us = us;
}
static void do_vacant(void *arg) { (void) arg; vacancies++; }
static void do_right(void *arg, int64_t until_ms) {
    (void) arg;
    may_form = until_ms > 0;
    right_until = until_ms;
}
static void do_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    (void) level;
    (void) snprintf(last_log, sizeof(last_log), "%s", text);
}

static const struct etcd_election_actions actions = {
    .start = do_start, .cancel = do_cancel, .next_member = do_next_member,
    .on_leader = do_leader, .on_vacant = do_vacant, .on_right = do_right, .log = do_log};

static void begin(const struct etcd_election_settings *settings) {
    struct etcd_election_settings s = *settings;
    memset(under_way, 0, sizeof(under_way));
    memset(starts, 0, sizeof(starts));
    now = 100000;
    revision = 10;
    members_tried = leaders = vacancies = 0;
    may_form = is_us = false;
    s.lease_ms = LEASE;
    etcd_election_begin(&e, now, &s, &actions, NULL);
}

/* Advances the clock to `when_ms`, and calls the election at each of its deadlines. */
static void until(int64_t when_ms) {
    while (etcd_election_deadline(&e) <= when_ms) {
        int64_t deadline = etcd_election_deadline(&e);
        if (deadline > now) now = deadline;
        etcd_election_tick(&e, now);
        ck_assert_int_gt(etcd_election_deadline(&e), now - 1);
    }
    now = when_ms;
}

static void end_call(enum etcd_call call, bool failed) {
    ck_assert(under_way[call]);
    under_way[call] = false;
    etcd_election_ended(&e, now, call, failed, "test");
}

static struct etcd_key key_of(const char *lease) {
    struct etcd_key key = {.revision = revision, .exists = lease != NULL, .epoch = revision,
                           .at = {.host = "10.0.0.1", .port = 7}};
    if (lease != NULL) (void) snprintf(key.lease, sizeof(key.lease), "%s", lease);
    return key;
}

/* Answers the call READ: the key belongs to `lease`, or does not exist if `lease` is NULL. */
static void read_key(const char *lease) {
    struct etcd_key key = key_of(lease);
    ck_assert(under_way[ETCD_CALL_READ]);
    etcd_election_got_key(&e, now, ETCD_CALL_READ, &key);
    end_call(ETCD_CALL_READ, false);
}

static void key_changes(const char *lease) {
    revision++;
    struct etcd_key key = key_of(lease);
    ck_assert(under_way[ETCD_CALL_WATCH]);
    etcd_election_watches(&e);
    etcd_election_got_key(&e, now, ETCD_CALL_WATCH, &key);
}

static void grant(const char *lease) {
    ck_assert(under_way[ETCD_CALL_GRANT]);
    etcd_election_granted(&e, lease);
    end_call(ETCD_CALL_GRANT, false);
}

static void claim(const char *winner) {
    revision++;
    struct etcd_key key = key_of(winner);
    ck_assert(under_way[ETCD_CALL_CLAIM]);
    etcd_election_got_key(&e, now, ETCD_CALL_CLAIM, &key);
    if (under_way[ETCD_CALL_CLAIM]) end_call(ETCD_CALL_CLAIM, false);
}

static void keep(bool lives) {
    ck_assert(under_way[ETCD_CALL_KEEP]);
    etcd_election_kept(&e, now, lives);
    if (under_way[ETCD_CALL_KEEP]) end_call(ETCD_CALL_KEEP, false);
}

static const struct etcd_election_settings candidate = {.claim_delay_ms = 0};
static const struct etcd_election_settings no_candidate = {.claim_delay_ms = CR_FOREVER};

static void lead(void) {
    begin(&candidate);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    grant("1");
    claim("1");
    etcd_election_watches(&e);
    etcd_election_need(&e, now, false);
}

/* ---- who leads ---- */

START_TEST(a_candidate_in_need_claims_the_key_and_leads) {
    lead();
    ck_assert(is_us && may_form);
    ck_assert_uint_eq(epoch, revision);
    ck_assert(under_way[ETCD_CALL_WATCH]);
}
END_TEST

START_TEST(the_watch_begins_right_after_what_was_read) {
    begin(&candidate);
    read_key(NULL);
    ck_assert(under_way[ETCD_CALL_WATCH]);
    ck_assert_uint_eq(e.watch_from, revision + 1);
}
END_TEST

START_TEST(a_node_without_need_claims_nothing) {
    begin(&candidate);
    read_key(NULL);
    until(now + 60000);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT] + starts[ETCD_CALL_CLAIM], 0);
}
END_TEST

START_TEST(who_is_no_candidate_claims_nothing) {
    begin(&no_candidate);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    until(now + 2000);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 0);
}
END_TEST

START_TEST(a_late_candidate_waits_for_the_others) {
    struct etcd_election_settings late = {.claim_delay_ms = 1500};
    begin(&late);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    int64_t start = now;
    until(start + 1499);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 0);
    until(start + 1500);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 1);
}
END_TEST

START_TEST(who_loses_the_claim_follows_and_gives_its_lease_back) {
    begin(&candidate);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    grant("1");
    claim("2");
    ck_assert(!is_us && !may_form && leaders == 1);
    ck_assert(under_way[ETCD_CALL_RELEASE]);
    ck_assert_str_eq(e.released, "1");
    ck_assert_str_eq(e.lease, "");
    until(now + 2000);
    ck_assert_int_eq(starts[ETCD_CALL_KEEP], 0);
}
END_TEST

START_TEST(a_claim_whose_answer_is_lost_still_leads) {
    begin(&candidate);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    grant("1");
    end_call(ETCD_CALL_CLAIM, true);
    ck_assert_int_eq(members_tried, 1);
    until(now + 200);
    read_key("1");
    ck_assert(is_us && may_form);
}
END_TEST

START_TEST(the_answer_to_a_claim_counts_even_if_the_watch_is_faster) {
    begin(&candidate);
    etcd_election_need(&e, now, true);
    read_key(NULL);
    grant("1");
    key_changes("1");
    ck_assert(!is_us && !may_form);
    struct etcd_key key = key_of("1");
    key.is_first = true;
    etcd_election_got_key(&e, now, ETCD_CALL_CLAIM, &key);
    ck_assert(is_us && may_form && is_first && leaders == 1);
}
END_TEST

START_TEST(a_follower_takes_over_only_when_it_is_in_need) {
    begin(&candidate);
    read_key("2");
    ck_assert(!is_us && leaders == 1);
    key_changes(NULL);
    ck_assert_int_eq(vacancies, 1);
    until(now + 60000);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 0);
    etcd_election_need(&e, now, true);
    read_key(NULL); /* it looks again before it claims */
    grant("1");
    claim("1");
    ck_assert(is_us && may_form);
}
END_TEST

START_TEST(an_answer_older_than_an_event_is_ignored) {
    begin(&candidate);
    read_key("2");
    key_changes("3");
    ck_assert_int_eq(leaders, 2);
    struct etcd_key old = {.revision = revision - 1, .exists = false};
    etcd_election_got_key(&e, now, ETCD_CALL_WATCH, &old);
    ck_assert_int_eq(vacancies, 0);
}
END_TEST

/* ---- the right to form rounds ---- */

START_TEST(a_confirmed_leader_keeps_the_right) {
    lead();
    for (int i = 0; i < 20; i++) {
        until(now + LEASE / 3);
        keep(true);
        ck_assert(may_form);
    }
    ck_assert_int_eq(leaders, 1);
}
END_TEST

START_TEST(each_renewal_of_the_lease_lengthens_the_right) {
    lead();
    ck_assert_int_eq(right_until, now + LEASE * 5 / 6);
    until(now + LEASE / 3);
    int64_t sent = now;
    now += 100; /* the answer takes 100 ms; the lease counts from the call */
    keep(true);
    ck_assert_int_eq(right_until, sent + LEASE * 5 / 6);
}
END_TEST

START_TEST(without_an_answer_the_right_ends_before_the_lease) {
    lead();
    int64_t granted = now;
    until(granted + LEASE * 5 / 6 - 1);
    ck_assert(may_form);
    until(granted + LEASE * 5 / 6);
    ck_assert(!may_form);
}
END_TEST

START_TEST(after_an_outage_the_same_lease_gives_the_right_back) {
    lead();
    int asked = 0;
    int64_t end = now + 20000;
    while (now < end) { /* no call is answered */
        until(now + 100);
        asked = members_tried;
    }
    ck_assert_int_gt(asked, 5);
    ck_assert(!may_form);
    ck_assert_int_eq(vacancies, 1); /* that was before it led */
    until(now + 1100);
    if (under_way[ETCD_CALL_READ]) read_key("1");
    else until(etcd_election_deadline(&e)), read_key("1");
    if (!under_way[ETCD_CALL_KEEP]) until(etcd_election_deadline(&e));
    keep(true);
    ck_assert(may_form && leaders == 1);
}
END_TEST

START_TEST(a_leader_whose_lease_expired_claims_the_key_again) {
    lead();
    uint64_t first = epoch;
    until(now + LEASE / 3);
    keep(false);
    ck_assert(!may_form);
    read_key(NULL);
    grant("5");
    claim("5");
    ck_assert(is_us && may_form);
    ck_assert_uint_gt(epoch, first);
}
END_TEST

START_TEST(a_leader_whose_lease_expired_obeys_who_was_faster) {
    lead();
    until(now + LEASE / 3);
    keep(false);
    revision++;
    read_key("9");
    ck_assert(!is_us && !may_form);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 1);
    key_changes(NULL); /* it hosts no more, and is not in need */
    until(now + 2000);
    ck_assert_int_eq(starts[ETCD_CALL_GRANT], 1);
}
END_TEST

START_TEST(a_leader_is_deposed_by_an_event) {
    lead();
    key_changes("9");
    ck_assert(!is_us && !may_form);
    ck_assert(under_way[ETCD_CALL_RELEASE]);
}
END_TEST

/* ---- members that do not answer ---- */

START_TEST(a_silent_member_is_left_for_the_next) {
    begin(&candidate);
    until(now + ETCD_CALL_LIMIT_MS);
    ck_assert_int_eq(members_tried, 1);
    until(now + 200);
    ck_assert_int_eq(starts[ETCD_CALL_READ], 2);
}
END_TEST

START_TEST(a_confirmed_watch_has_no_limit) {
    begin(&candidate);
    read_key("2");
    etcd_election_watches(&e);
    until(now + 3600000);
    ck_assert_int_eq(members_tried, 0);
    ck_assert_int_eq(starts[ETCD_CALL_READ], 1);
}
END_TEST

START_TEST(a_node_in_need_reads_again_and_again) {
    begin(&candidate);
    read_key("2");
    etcd_election_watches(&e);
    until(now + 5000);
    etcd_election_need(&e, now, true);
    read_key("2");
    until(now + LEASE);
    ck_assert(under_way[ETCD_CALL_READ]);
    until(now + ETCD_CALL_LIMIT_MS);
    ck_assert_int_eq(members_tried, 1);
    ck_assert(!under_way[ETCD_CALL_WATCH]);
}
END_TEST

START_TEST(pauses_grow_and_stay_bounded) {
    begin(&candidate);
    for (int i = 0; i < 12; i++) {
        end_call(ETCD_CALL_READ, true);
        int64_t pause = etcd_election_deadline(&e) - now;
        int64_t most = (int64_t) 200 << (i < 6 ? i : 6);
        ck_assert_int_ge(pause, (most < 8000 ? most : 8000) / 2);
        ck_assert_int_le(pause, most < 8000 ? most : 8000);
        until(now + pause);
    }
    etcd_election_need(&e, now, true);
    end_call(ETCD_CALL_READ, true);
    ck_assert_int_le(etcd_election_deadline(&e) - now, 1000);
}
END_TEST

START_TEST(an_answer_without_the_wanted_fields_is_a_failure) {
    begin(&candidate);
    end_call(ETCD_CALL_READ, false);
    ck_assert_int_eq(members_tried, 1);
}
END_TEST

START_TEST(a_user_logs_in_first_and_again_after_an_error) {
    struct etcd_election_settings with_user = {.claim_delay_ms = 0, .has_user = true};
    begin(&with_user);
    ck_assert(under_way[ETCD_CALL_LOGIN] && !under_way[ETCD_CALL_READ]);
    etcd_election_logged_in(&e);
    end_call(ETCD_CALL_LOGIN, false);
    end_call(ETCD_CALL_READ, true); /* the token has expired, for example */
    until(now + 200);
    ck_assert_int_eq(starts[ETCD_CALL_LOGIN], 2);
}
END_TEST

START_TEST(members_that_may_not_be_listed_do_no_harm) {
    struct etcd_election_settings finds = {.claim_delay_ms = 0, .finds_members = true};
    begin(&finds);
    end_call(ETCD_CALL_MEMBERS, true);
    ck_assert_int_eq(members_tried, 0);
    read_key("2");
    ck_assert_int_eq(starts[ETCD_CALL_MEMBERS], 1);
}
END_TEST

/* ---- closing, and who is eager ---- */

START_TEST(a_leader_that_closes_gives_its_lease_back) {
    lead();
    ck_assert_uint_eq(etcd_election_close(&e, true), 2);
    ck_assert(under_way[ETCD_CALL_RELEASE] && under_way[ETCD_CALL_FORGET]);
    ck_assert(!under_way[ETCD_CALL_WATCH]);
    ck_assert_str_eq(e.released, "1");
    begin(&candidate);
    ck_assert_uint_eq(etcd_election_close(&e, true), 0);
    ck_assert_int_eq(etcd_election_deadline(&e), CR_FOREVER);
}
END_TEST

START_TEST(few_of_many_nodes_claim_at_once) {
    int eager = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        int64_t delay = etcd_claim_delay_ms(i * (UINT64_MAX / 10000), 10000);
        eager += delay == 0;
        ck_assert_int_le(delay, 6000);
    }
    ck_assert_int_ge(eager, 3);
    ck_assert_int_le(eager, 5);
    ck_assert_int_eq(etcd_claim_delay_ms(UINT64_MAX, 4), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("etcd_election");
    TCase *t = tcase_create("leads");
    tcase_add_test(t, a_candidate_in_need_claims_the_key_and_leads);
    tcase_add_test(t, the_watch_begins_right_after_what_was_read);
    tcase_add_test(t, a_node_without_need_claims_nothing);
    tcase_add_test(t, who_is_no_candidate_claims_nothing);
    tcase_add_test(t, a_late_candidate_waits_for_the_others);
    tcase_add_test(t, who_loses_the_claim_follows_and_gives_its_lease_back);
    tcase_add_test(t, a_claim_whose_answer_is_lost_still_leads);
    tcase_add_test(t, the_answer_to_a_claim_counts_even_if_the_watch_is_faster);
    tcase_add_test(t, a_follower_takes_over_only_when_it_is_in_need);
    tcase_add_test(t, an_answer_older_than_an_event_is_ignored);
    suite_add_tcase(suite, t);
    t = tcase_create("right");
    tcase_add_test(t, a_confirmed_leader_keeps_the_right);
    tcase_add_test(t, each_renewal_of_the_lease_lengthens_the_right);
    tcase_add_test(t, without_an_answer_the_right_ends_before_the_lease);
    tcase_add_test(t, after_an_outage_the_same_lease_gives_the_right_back);
    tcase_add_test(t, a_leader_whose_lease_expired_claims_the_key_again);
    tcase_add_test(t, a_leader_whose_lease_expired_obeys_who_was_faster);
    tcase_add_test(t, a_leader_is_deposed_by_an_event);
    suite_add_tcase(suite, t);
    t = tcase_create("members");
    tcase_add_test(t, a_silent_member_is_left_for_the_next);
    tcase_add_test(t, a_confirmed_watch_has_no_limit);
    tcase_add_test(t, a_node_in_need_reads_again_and_again);
    tcase_add_test(t, pauses_grow_and_stay_bounded);
    tcase_add_test(t, an_answer_without_the_wanted_fields_is_a_failure);
    tcase_add_test(t, a_user_logs_in_first_and_again_after_an_error);
    tcase_add_test(t, members_that_may_not_be_listed_do_no_harm);
    suite_add_tcase(suite, t);
    t = tcase_create("closing");
    tcase_add_test(t, a_leader_that_closes_gives_its_lease_back);
    tcase_add_test(t, few_of_many_nodes_claim_at_once);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
