/* Tests the search for the rank for which other ranks wait: the 64-bit words of a worker's page
 * that say which operation the worker is in (contract/progress.h), and the line that names the rank
 * (rendezvous/rules/behind.c). Tests the search for slow ranks (rendezvous/rules/slow.c), too. */
#include "contract/progress.h"
#include "rendezvous/rules/rules.h"
#include "rendezvous/types.h"
#include "tests/lib/run_suite.h"
#include "worker_runtime/report/report.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- the page ---- */

static struct channel_group group;

static struct progress read_back(void) {
    struct progress p;
    ck_assert(progress_read(&group, &p));
    return p;
}

static void show(void) {
    memset(&group, 0, sizeof(group));
    memcpy(group.name, "dp", 3);
    group.place = 3;
    group.size = 8;
    atomic_store(&group.number, 1);
}

START_TEST(a_collective_is_read_as_it_was_written) {
    show();
    atomic_store(&group.collective,
                 progress_collective(18, 0, PROGRESS_REDUCE_SCATTER, true, false));
    atomic_store(&group.since_ns, 77);
    struct progress p = read_back();
    ck_assert_uint_eq(p.number, 0);
    ck_assert_str_eq(p.name, "dp");
    ck_assert_uint_eq(p.place, 3);
    ck_assert_uint_eq(p.size, 8);
    ck_assert_int_eq(p.state, PROGRESS_COLLECTIVE);
    ck_assert_int_eq(p.kind, PROGRESS_REDUCE_SCATTER);
    ck_assert_uint_eq(p.begun, 18);
    ck_assert_uint_eq(p.seq, 17);
    ck_assert_int_eq(p.since_ns, 77);
}
END_TEST

START_TEST(a_wait_for_an_older_operation_does_not_hide_the_newer_ones) {
    show();
    atomic_store(&group.collective, progress_collective(18, 5, PROGRESS_BARRIER, true, false));
    struct progress p = read_back();
    ck_assert_uint_eq(p.begun, 18);
    ck_assert_uint_eq(p.seq, 12);
}
END_TEST

START_TEST(a_message_is_read_as_it_was_written) {
    show();
    atomic_store(&group.message, progress_message(9, 70000, PROGRESS_RECV, true));
    struct progress p = read_back();
    ck_assert_int_eq(p.state, PROGRESS_MESSAGE);
    ck_assert_int_eq(p.kind, PROGRESS_RECV);
    ck_assert_uint_eq(p.seq, 9);
    ck_assert_uint_eq(p.peer, 70000);
}
END_TEST

START_TEST(states_without_a_wait) {
    show();
    ck_assert_int_eq(read_back().state, PROGRESS_IDLE);
    atomic_store(&group.collective, progress_collective(2, 0, PROGRESS_BARRIER, false, true));
    ck_assert_int_eq(read_back().state, PROGRESS_OPEN);
    atomic_store(&group.collective, progress_collective(0, 0, PROGRESS_MAKE, true, false));
    ck_assert_int_eq(read_back().state, PROGRESS_MAKING);
}
END_TEST

START_TEST(what_no_worker_should_write_is_limited) {
    struct progress p;
    memset(&group, 0xff, sizeof(group));
    ck_assert(!progress_read(&group, &p)); /* the rank is not below the size */
    group.place = 0;
    ck_assert(progress_read(&group, &p));
    ck_assert_uint_eq(strlen(p.name), CHANNEL_GROUP_NAME_MAX - 1);
    ck_assert_uint_eq(strspn(p.name, "?"), CHANNEL_GROUP_NAME_MAX - 1);
    ck_assert_int_lt(p.kind, PROGRESS_KIND_COUNT);
    group.size = 0;
    ck_assert(!progress_read(&group, &p));
    atomic_store(&group.number, 0);
    ck_assert(!progress_read(&group, &p));
}
END_TEST

START_TEST(operations_have_the_names_of_the_worker_runtime) {
    for (int k = 0; k <= (int) PROGRESS_RECV; k++)
        ck_assert_str_eq(progress_kind_name((enum progress_kind) k),
                         op_kind_name((crunrt_op_kind) k));
    ck_assert_str_eq(op_kind_name((crunrt_op_kind) (PROGRESS_RECV + 1)), "unknown operation");
}
END_TEST

/* ---- the line ---- */

static struct behind_entry entries[4096];
static size_t count;
static char line[1024];

static struct behind_entry *add(uint64_t number, const char *name, uint32_t size, uint32_t place,
                                uint32_t rank) {
    struct behind_entry *e = &entries[count++];
    *e = (struct behind_entry){.group = number, .size = size, .place = place, .rank = rank};
    (void) strncpy(e->name, name, sizeof(e->name) - 1);
    (void) strncpy(e->op, "all_reduce", sizeof(e->op) - 1);
    return e;
}

static struct behind_entry *in_collective(struct behind_entry *e, uint32_t seq, int64_t since_ms) {
    e->state = RENDEZVOUS_WAITS_COLLECTIVE;
    e->seq = seq;
    e->begun = seq + 1;
    e->since_ms = since_ms;
    return e;
}

static struct behind_entry *after(struct behind_entry *e, uint32_t begun) {
    e->begun = begun;
    return e;
}

static struct behind_entry *in_message(struct behind_entry *e, const char *op, uint32_t peer) {
    e->state = RENDEZVOUS_WAITS_MESSAGE;
    e->peer = peer;
    memset(e->op, 0, sizeof(e->op));
    (void) strncpy(e->op, op, sizeof(e->op) - 1);
    return e;
}

static bool ask(uint32_t world_size) {
    bool is_found = behind_describe(entries, count, world_size, line, sizeof(line));
    count = 0;
    return is_found;
}

START_TEST(one_rank_is_behind) {
    for (uint32_t r = 0; r < 4; r++)
        if (r != 2) (void) in_collective(add(0, "world", 4, r, r), 17, 1000 + 100 * r);
    (void) after(add(0, "world", 4, 2, 2), 17);
    ck_assert(ask(4));
    ck_assert_str_eq(line, "rank 2 has not entered all_reduce #17 of group 'world', in which 3 "
                           "ranks wait, rank 3 for 1.3 s");
}
END_TEST

START_TEST(nobody_waits) {
    ck_assert(!ask(4));
    for (uint32_t r = 0; r < 4; r++) (void) after(add(0, "world", 4, r, r), 17);
    ck_assert(!ask(4));
    ck_assert_str_eq(line, "no rank waits in an operation of a process group");
}
END_TEST

START_TEST(all_are_in_the_same_operation) {
    for (uint32_t r = 0; r < 4; r++) (void) in_collective(add(0, "world", 4, r, r), 17, 500);
    ck_assert(ask(4));
    ck_assert_str_eq(line, "all 4 ranks are in all_reduce #17 of group 'world', rank 0 for 0.5 s");
}
END_TEST

/* Rank 1 has not entered an operation of group "tp0" (ranks 0 and 1), in which rank 0 waits. So
 * rank 0 has not entered an operation of group "dp0" (ranks 0 and 2), in which rank 2 waits. Only
 * rank 1 is named, because rank 0 waits itself. */
START_TEST(a_rank_that_waits_itself_is_not_named) {
    (void) in_collective(add(1, "tp0", 2, 0, 0), 5, 3000);
    (void) after(add(1, "tp0", 2, 1, 1), 5);
    (void) after(add(2, "dp0", 2, 0, 0), 8);
    (void) in_collective(add(2, "dp0", 2, 1, 2), 8, 2000);
    ck_assert(ask(4));
    ck_assert_str_eq(line, "rank 1 has not entered all_reduce #5 of group 'tp0', in which 1 rank "
                           "waits, rank 0 for 3.0 s");
}
END_TEST

START_TEST(the_peer_of_a_receive) {
    in_message(add(0, "world", 2, 0, 0), "recv", 1)->since_ms = 4000;
    (void) add(0, "world", 2, 1, 1);
    ck_assert(ask(2));
    ck_assert_str_eq(line, "rank 1 has not entered recv #0 of group 'world', in which 1 rank "
                           "waits, rank 0 for 4.0 s");
}
END_TEST

START_TEST(two_that_exchange_a_message_do_not_wait_for_each_other) {
    (void) in_message(add(0, "world", 2, 0, 0), "recv", 1);
    (void) in_message(add(0, "world", 2, 1, 1), "send", 0);
    ck_assert(ask(2));
    ck_assert_ptr_null(strstr(line, "has not entered"));
}
END_TEST

START_TEST(a_circle_is_said_to_be_one) {
    (void) in_message(add(0, "world", 2, 0, 0), "recv", 1);
    (void) in_message(add(0, "world", 2, 1, 1), "recv", 0);
    (void) add(0, "world", 3, 2, 2);
    ck_assert(ask(3));
    ck_assert_ptr_nonnull(strstr(line, "all 2 ranks are in recv #0 of group 'world'"));
}
END_TEST

START_TEST(the_rank_that_has_not_made_the_group) {
    for (uint32_t r = 0; r < 3; r++) add(0, "world", 4, r, r)->state = RENDEZVOUS_WAITS_MAKING;
    ck_assert(ask(4));
    ck_assert_str_eq(line, "rank 3 has not entered the making of group 'world', in which 3 ranks "
                           "wait, rank 0 for 0.0 s");
}
END_TEST

START_TEST(operations_on_a_stream) {
    for (uint32_t r = 0; r < 4; r++) {
        add(0, "world", 4, r, r)->state = RENDEZVOUS_OPEN;
        entries[count - 1].begun = r == 1 ? 7 : 8;
        entries[count - 1].since_ms = 900;
    }
    ck_assert(ask(4));
    ck_assert_str_eq(line, "rank 1 has not entered all_reduce #7 of group 'world', which 4 ranks "
                           "started, rank 0 for 0.9 s");
}
END_TEST

START_TEST(many_ranks_are_counted) {
    for (uint32_t r = 0; r < 1000; r++) {
        if (r % 10 == 0) (void) in_collective(add(0, "world", 1000, r, r), 3, 1);
        else (void) after(add(0, "world", 1000, r, r), 3);
    }
    ck_assert(ask(1000));
    ck_assert_ptr_nonnull(strstr(line, "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, "
                                       "17 and 884 more have not entered all_reduce #3"));
}
END_TEST

START_TEST(numbers_that_no_node_should_send) {
    struct behind_entry *e = in_collective(add(7, "x", 4, 9, 4000000000U), 4294967294U, -5);
    e->begun = 0;
    (void) in_message(add(7, "x", 0, 4000000000U, 1), "recv", 4000000000U);
    (void) ask(4);
    add(0, "world", 2, 0, 0)->state = 99;
    ck_assert(!ask(2));
}
END_TEST

/* ---- ranks that are slow ---- */

START_TEST(a_rank_is_slow_by_the_median) {
    uint64_t median;
    struct slow_entry few[] = {{7, 10}, {3, 4}, {1, 4}, {9, 11}, {2, 10}};
    ck_assert_uint_eq(slow_find(few, 5, 50, &median), 2);
    ck_assert_uint_eq(median, 10);
    ck_assert_uint_eq(few[0].rank, 1);
    ck_assert_uint_eq(few[1].rank, 3);
    ck_assert_uint_eq(slow_find(few, 5, 40, &median), 0); /* 4 is not less than 40 % */
    ck_assert_uint_eq(slow_find(few, 5, 0, &median), 0);
    struct slow_entry two[] = {{0, 1}, {1, 100}};
    ck_assert_uint_eq(slow_find(two, 2, 90, &median), 0);
    ck_assert_uint_eq(slow_find(NULL, 0, 90, &median), 0);
    struct slow_entry odd[] = {{0, UINT64_MAX}, {1, UINT64_MAX}, {2, 1}};
    ck_assert_uint_eq(slow_find(odd, 3, 100, &median), 1);
    struct slow_entry idle[] = {{0, 0}, {1, 0}, {2, 0}};
    ck_assert_uint_eq(slow_find(idle, 3, 100, &median), 0); /* all stand still: nobody is slow */
}
END_TEST

int main(void) {
    Suite *s = suite_create("behind");
    TCase *t = tcase_create("all");
    tcase_add_test(t, a_collective_is_read_as_it_was_written);
    tcase_add_test(t, a_wait_for_an_older_operation_does_not_hide_the_newer_ones);
    tcase_add_test(t, a_message_is_read_as_it_was_written);
    tcase_add_test(t, states_without_a_wait);
    tcase_add_test(t, what_no_worker_should_write_is_limited);
    tcase_add_test(t, operations_have_the_names_of_the_worker_runtime);
    tcase_add_test(t, one_rank_is_behind);
    tcase_add_test(t, nobody_waits);
    tcase_add_test(t, all_are_in_the_same_operation);
    tcase_add_test(t, a_rank_that_waits_itself_is_not_named);
    tcase_add_test(t, the_peer_of_a_receive);
    tcase_add_test(t, two_that_exchange_a_message_do_not_wait_for_each_other);
    tcase_add_test(t, a_circle_is_said_to_be_one);
    tcase_add_test(t, the_rank_that_has_not_made_the_group);
    tcase_add_test(t, operations_on_a_stream);
    tcase_add_test(t, many_ranks_are_counted);
    tcase_add_test(t, numbers_that_no_node_should_send);
    tcase_add_test(t, a_rank_is_slow_by_the_median);
    suite_add_tcase(s, t);
    return run_suite(s);
}
