/* Tests of rendezvous/rules/leading_internal.h: which nodes a host serves, with which epoch, and
 * when the host leaves its job to another host. */
#include "rendezvous/rules/leading_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>

/* a host with heirs that leads a job of epoch 5 */
static const struct leading leads = {.allows_heirs = true, .has_job = true, .job_epoch = 5,
                                     .host_epoch = 2};

static struct leading superseded(void) {
    struct leading l = leads;
    l.is_superseded = true;
    return l;
}

START_TEST(the_larger_epoch_is_that_of_the_job) {
    struct leading l = leads;
    ck_assert_uint_eq(leading_epoch(&l), 5);
    l.host_epoch = 9;
    ck_assert_uint_eq(leading_epoch(&l), 9);
    l.has_job = false;
    l.host_epoch = 2;
    ck_assert_uint_eq(leading_epoch(&l), 2);
}
END_TEST

START_TEST(only_a_larger_epoch_puts_the_leading_in_doubt) {
    struct leading l = leads;
    ck_assert(!leading_is_in_doubt(&l, 4));
    ck_assert(!leading_is_in_doubt(&l, 5));
    ck_assert(leading_is_in_doubt(&l, 6));
}
END_TEST

START_TEST(nothing_is_asked_where_the_answer_is_known) {
    struct leading l = superseded();
    ck_assert(!leading_is_in_doubt(&l, 6)); /* it is superseded already */
    l = leads;
    l.allows_heirs = false;
    ck_assert(!leading_is_in_doubt(&l, 6));
    l = leads;
    l.has_job = false;
    ck_assert(!leading_is_in_doubt(&l, 6));
}
END_TEST

START_TEST(a_host_that_leads_goes_on_under_the_larger_epoch) {
    uint64_t epoch;
    ck_assert(leading_serves(&leads, 3, &epoch) && epoch == 5);
    ck_assert(leading_serves(&leads, 5, &epoch) && epoch == 5);
    ck_assert(leading_serves(&leads, 8, &epoch) && epoch == 8);
}
END_TEST

START_TEST(a_superseded_host_serves_nobody) {
    const struct leading l = superseded();
    uint64_t epoch;
    ck_assert(!leading_serves(&l, 3, &epoch));
    ck_assert(!leading_serves(&l, 8, &epoch));
    /* the epoch of the job, not that of the node (8), because no coordinator of this host had epoch
     * 8 */
    ck_assert_uint_eq(epoch, 5);
}
END_TEST

START_TEST(an_unknown_job_is_served) {
    struct leading l = superseded();
    uint64_t epoch;
    l.has_job = false; /* so is_superseded means nothing */
    ck_assert(leading_serves(&l, 8, &epoch) && epoch == 8);
    ck_assert(leading_serves(&l, 1, &epoch) && epoch == 2);
}
END_TEST

START_TEST(without_heirs_a_node_of_a_larger_epoch_is_at_the_wrong_host) {
    struct leading l = leads;
    uint64_t epoch;
    l.allows_heirs = false;
    ck_assert(leading_serves(&l, 5, &epoch) && epoch == 5);
    ck_assert(!leading_serves(&l, 6, &epoch));
    ck_assert_uint_eq(epoch, 5);
}
END_TEST

START_TEST(a_node_with_a_seat_raises_the_epoch_of_its_run) {
    ck_assert_uint_eq(leading_admits(&leads, 3, true), 5);
    ck_assert_uint_eq(leading_admits(&leads, 8, true), 8);
}
END_TEST

/* Heirs of round r have epochs above (r + 1) << 8. If a run that begins at round 0 kept a large
 * epoch of an earlier run, its first heirs would have smaller epochs than the coordinator that they
 * replace. */
START_TEST(a_run_begins_with_the_epoch_of_its_first_node) {
    ck_assert_uint_eq(leading_admits(&leads, 0, false), 0);
    ck_assert_uint_eq(leading_admits(&leads, 3, false), 3);
    ck_assert_uint_eq(leading_admits(&leads, 8, false), 8);
}
END_TEST

START_TEST(without_heirs_no_node_raises_the_epoch) {
    struct leading l = leads;
    l.allows_heirs = false;
    ck_assert_uint_eq(leading_admits(&l, 8, true), 5);
    ck_assert_uint_eq(leading_admits(&l, 8, false), 5);
}
END_TEST

START_TEST(a_host_whose_coordinator_may_decide_keeps_the_job) {
    ck_assert(!leading_gives_up(&leads, 9, true, false));
    ck_assert(leading_gives_up(&leads, 9, false, false));
    ck_assert(leading_gives_up(&leads, 0, false, false)); /* the other host has formed the round */
}
END_TEST

START_TEST(a_job_that_has_ended_is_not_given_up) {
    ck_assert(!leading_gives_up(&leads, 9, false, true));
}
END_TEST

START_TEST(a_job_is_given_up_again_only_to_a_newer_host) {
    const struct leading l = superseded();
    ck_assert(!leading_gives_up(&l, 4, false, false));
    ck_assert(!leading_gives_up(&l, 5, false, false));
    ck_assert(leading_gives_up(&l, 6, false, false));
}
END_TEST

START_TEST(without_heirs_no_host_takes_a_job) {
    struct leading l = leads;
    l.allows_heirs = false;
    ck_assert(!leading_gives_up(&l, 9, false, false));
    l = leads;
    l.has_job = false;
    ck_assert(!leading_gives_up(&l, 9, false, false));
}
END_TEST

int main(void) {
    Suite *s = suite_create("leading");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_larger_epoch_is_that_of_the_job);
    tcase_add_test(t, only_a_larger_epoch_puts_the_leading_in_doubt);
    tcase_add_test(t, nothing_is_asked_where_the_answer_is_known);
    tcase_add_test(t, a_host_that_leads_goes_on_under_the_larger_epoch);
    tcase_add_test(t, a_superseded_host_serves_nobody);
    tcase_add_test(t, an_unknown_job_is_served);
    tcase_add_test(t, without_heirs_a_node_of_a_larger_epoch_is_at_the_wrong_host);
    tcase_add_test(t, a_node_with_a_seat_raises_the_epoch_of_its_run);
    tcase_add_test(t, a_run_begins_with_the_epoch_of_its_first_node);
    tcase_add_test(t, without_heirs_no_node_raises_the_epoch);
    tcase_add_test(t, a_host_whose_coordinator_may_decide_keeps_the_job);
    tcase_add_test(t, a_job_that_has_ended_is_not_given_up);
    tcase_add_test(t, a_job_is_given_up_again_only_to_a_newer_host);
    tcase_add_test(t, without_heirs_no_host_takes_a_job);
    suite_add_tcase(s, t);
    return run_suite(s);
}
