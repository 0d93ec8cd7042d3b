/* Tests inspect/: which rank is named as the odd one, how equal rows are folded, and rows as
 * JSON. */
#include "inspect/inspect_internal.h"

#include "tests/lib/run_suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 16

static struct inspect_row rows[ROWS];

/* Makes ROWS rows, each with the native stack `stack`. */
static void fill(const char *stack) {
    for (int i = 0; i < ROWS; i++) {
        inspect_row_init(&rows[i], 1000 + i);
        rows[i].rank = i;
        rows[i].state = 'S';
        (void) snprintf(rows[i].host, sizeof(rows[i].host), "n%d", i / 8);
        (void) snprintf(rows[i].program, sizeof(rows[i].program), "train");
        (void) snprintf(rows[i].native, sizeof(rows[i].native), "%s", stack);
    }
}

static const char *line_of(size_t count) {
    static char text[2048];
    struct cr_buffer b = {0};
    ck_assert_int_eq(inspect_write_line(&b, rows, count), 0);
    (void) snprintf(text, sizeof(text), "%s", b.data);
    cr_buffer_done(&b);
    return text;
}

/* ---- the text of Python's faulthandler ---- */

static const char *python_of(const char *text) {
    static struct inspect_row row;
    inspect_row_init(&row, 1);
    inspect_take_faulthandler(&row, text);
    return row.python;
}

START_TEST(the_main_thread_of_faulthandlers_text_is_taken) {
    ck_assert_str_eq(python_of("Thread 0x01 (most recent call first):\n"
                               "  File \"/x/plugin.py\", line 2 in <module>\n"
                               "  File \"<frozen importlib>\", line 3 in _load\n\n"
                               "Current thread 0x02 (most recent call first):\n"
                               "  File \"/x/train.py\", line 9 in load_batch\n"
                               "  File \"/x/train.py\", line 20 in <module>\n"),
                     "load_batch (train.py:9) < <module> (train.py:20)");
    ck_assert_str_eq(python_of("Stack (most recent call first):\n"
                               "  File \"t.py\", line 1 in f\n  ...\n"), "f (t.py:1)");
}
END_TEST

START_TEST(other_texts_than_faulthandlers_give_no_stack) {
    ck_assert_str_eq(python_of(""), "");
    ck_assert_str_eq(python_of("loss 3.1\nloss 3.0\n"), "");
    ck_assert_str_eq(python_of("  File \"t.py\", line x in f\n\n\n\n"), "");
    ck_assert_str_eq(python_of("  File \"t.py"), "");
}
END_TEST

START_TEST(the_odd_rank_is_named_by_its_place) {
    fill("poll < recv_all < all_reduce < train < main");
    (void) strcpy(rows[11].native, "nanosleep < read_file < load_batch < train < main");
    ck_assert_str_eq(line_of(ROWS), "rank 11 on n1, pid 1011 differs from the other 15 ranks: it "
                                    "is in load_batch, there in nanosleep");
}
END_TEST

START_TEST(places_inside_of_the_same_operation_are_no_reason) {
    fill("poll < recv_all < all_reduce < train < main");
    for (int i = 0; i < ROWS; i += 3) {
        (void) strcpy(rows[i].native, "write < send_all < all_reduce < train < main");
    }
    (void) strcpy(rows[4].native, "poll < recv_all < broadcast < train < main");
    ck_assert_ptr_nonnull(strstr(line_of(ROWS), "rank 4 on n0, pid 1004 differs"));
    ck_assert_ptr_nonnull(strstr(line_of(ROWS), "it is in broadcast, there in poll"));
}
END_TEST

START_TEST(the_operation_counts_more_than_the_stack) {
    fill("poll < wait < train < main");
    for (int i = 0; i < ROWS; i++) (void) strcpy(rows[i].operation, "all_reduce 7 of group 'w'");
    (void) strcpy(rows[3].native, "futex < wait < train < main");
    (void) strcpy(rows[9].operation, "none; the last one was all_reduce 6 of group 'w'");
    ck_assert_str_eq(line_of(ROWS),
                     "rank 9 on n1, pid 1009 differs from the other 15 ranks: it is in poll; "
                     "operation: none; the last one was all_reduce 6 of group 'w'");
}
END_TEST

START_TEST(the_python_stack_replaces_the_native_one) {
    fill("poll < x < main");
    for (int i = 0; i < ROWS; i++) {
        (void) snprintf(rows[i].native, sizeof(rows[i].native), "f%d < main", i);
        (void) strcpy(rows[i].python, "all_reduce (dist.py:9) < step (t.py:3) < <module> (t.py:8)");
    }
    (void) strcpy(rows[2].python, "get (queue.py:5) < step (t.py:2) < <module> (t.py:8)");
    ck_assert_ptr_nonnull(strstr(line_of(ROWS), "rank 2 on n0, pid 1002 differs from the other 15 "
                                                "ranks: it is in step (t.py:2), there in get "));
}
END_TEST

START_TEST(without_a_majority_nobody_is_odd) {
    fill("poll < a < main");
    for (int i = 0; i < ROWS / 2; i++) (void) strcpy(rows[i].native, "poll < b < main");
    ck_assert_str_eq(line_of(ROWS), "the 16 ranks are at 2 places; no place has most of them");
    fill("poll < a < main");
    ck_assert_str_eq(line_of(ROWS), "all 16 ranks are at the same place");
    ck_assert_str_eq(line_of(1), "1 rank");
    ck_assert_str_eq(line_of(0), "no worker was found");
}
END_TEST

START_TEST(a_moment_outside_of_the_kernel_is_no_reason) {
    fill("poll < a < main");
    for (int i = 0; i < ROWS; i++) (void) strcpy(rows[i].kernel, "poll");
    rows[7].state = 'R';
    rows[7].kernel[0] = '\0';
    ck_assert_str_eq(line_of(ROWS), "all 16 ranks are at the same place");
    rows[7].state = 'T';
    (void) strcpy(rows[7].kernel, "do_signal_stop");
    ck_assert_ptr_nonnull(strstr(line_of(ROWS), "rank 7 on n0, pid 1007 differs"));
}
END_TEST

START_TEST(two_odd_ranks_are_named_together) {
    fill("poll < a < main");
    (void) strcpy(rows[3].native, "poll < b < main");
    (void) strcpy(rows[4].native, "poll < b < main");
    ck_assert_str_eq(line_of(ROWS),
                     "ranks 3-4 differ from the other 14 ranks: it is in b, there in poll");
}
END_TEST

START_TEST(the_report_shows_each_group_once) {
    struct cr_buffer b = {0};
    fill("poll < a < main");
    (void) strcpy(rows[5].native, "");
    (void) strcpy(rows[5].kernel, "nfs_wait (read of /data/x)");
    (void) strcpy(rows[5].note, "native stack: none");
    rows[5].state = 'D';
    ck_assert_int_eq(inspect_write_report(&b, rows, ROWS, "> "), 0);
    ck_assert_str_eq(b.data,
                     "rank 5 on n0, pid 1005 differs from the other 15 ranks: it is in nfs_wait "
                     "(read of /data/x)\n"
                     "> rank 5 on n0, pid 1005: train waits and cannot be killed in nfs_wait (read "
                     "of /data/x)\n"
                     ">   not known: native stack: none\n"
                     "> ranks 0-4, 6-15 (15 ranks): train sleeps\n"
                     ">   native: poll < a < main\n");
    cr_buffer_done(&b);
}
END_TEST

START_TEST(ranks_are_written_and_read) {
    static const char *const bad[] = {"", ",", "1,", "1-", "-1", "3-2", "a", "1 2", "0-16", "1,,2",
                                      "99999999999999999999", "0-4294967296"};
    struct cr_buffer b = {0};
    int64_t ranks[ROWS];
    fill("");
    ck_assert_int_eq(inspect_write_ranks(&b, rows, ROWS, SIZE_MAX, ","), 0);
    ck_assert_str_eq(b.data, "0-15");
    ck_assert_int_eq(inspect_read_ranks(b.data, ranks, ROWS), ROWS);
    ck_assert_int_eq(ranks[15], 15);
    ck_assert_int_eq(inspect_read_ranks("3,5-7,2000000", ranks, ROWS), 5);
    ck_assert_int_eq(ranks[1], 5);
    ck_assert_int_eq(ranks[4], 2000000);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(inspect_read_ranks(bad[i], ranks, ROWS) == -EINVAL, "%s", bad[i]);
    }
    cr_buffer_done(&b);
}
END_TEST

START_TEST(a_row_survives_json) {
    struct cr_buffer b = {0};
    struct inspect_row back;
    fill("poll < \"a\" < main");
    (void) strcpy(rows[1].python, "f (t.py:3)");
    (void) strcpy(rows[1].operation, "all_reduce 3 of group 'w'");
    ck_assert_int_eq(inspect_row_write(&b, &rows[1]), 0);
    ck_assert_int_eq(inspect_row_read(&back, b.data, b.len), 0);
    ck_assert_int_eq(back.rank, 1);
    ck_assert_int_eq(back.pid, 1001);
    ck_assert_int_eq(back.state, 'S');
    ck_assert_str_eq(back.native, rows[1].native);
    ck_assert_str_eq(back.python, rows[1].python);
    ck_assert_str_eq(back.operation, rows[1].operation);
    ck_assert_str_eq(back.host, "n0");
    cr_buffer_done(&b);
}
END_TEST

START_TEST(a_row_of_json_is_never_too_long) {
    struct cr_buffer b = {0};
    fill("");
    for (size_t i = 0; i + 4 < INSPECT_STACK_MAX; i += 4) {
        memcpy(rows[0].native + i, "\" < ", 4);
        memcpy(rows[0].python + i, "\\ < ", 4);
    }
    memset(rows[0].note, '"', sizeof(rows[0].note) - 1);
    memset(rows[0].kernel, '"', sizeof(rows[0].kernel) - 1);
    memset(rows[0].operation, '"', sizeof(rows[0].operation) - 1);
    ck_assert_int_eq(inspect_row_write(&b, &rows[0]), 0);
    ck_assert_uint_le(b.len, INSPECT_JSON_MAX);
    cr_buffer_done(&b);
}
END_TEST

START_TEST(bytes_from_outside_are_checked) {
    static const char *const bad[] = {"", "{", "[]", "7", "{}", "{\"pid\": 0}", "{\"pid\": \"1\"}"};
    struct inspect_row row;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(inspect_row_read(&row, bad[i], strlen(bad[i])), -EINVAL);
    }
    const char *odd = "{\"pid\": 7, \"native\": \"a\\u001b[2Jb\", \"state\": 5, \"rank\": \"x\"}";
    ck_assert_int_eq(inspect_row_read(&row, odd, strlen(odd)), 0);
    ck_assert_str_eq(row.native, "a\\x1b[2Jb");
    ck_assert_int_eq(row.state, '?');
    ck_assert_int_eq(row.rank, -1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("inspect");
    TCase *t = tcase_create("inspect");
    tcase_add_test(t, the_main_thread_of_faulthandlers_text_is_taken);
    tcase_add_test(t, other_texts_than_faulthandlers_give_no_stack);
    tcase_add_test(t, the_odd_rank_is_named_by_its_place);
    tcase_add_test(t, places_inside_of_the_same_operation_are_no_reason);
    tcase_add_test(t, the_operation_counts_more_than_the_stack);
    tcase_add_test(t, the_python_stack_replaces_the_native_one);
    tcase_add_test(t, without_a_majority_nobody_is_odd);
    tcase_add_test(t, a_moment_outside_of_the_kernel_is_no_reason);
    tcase_add_test(t, two_odd_ranks_are_named_together);
    tcase_add_test(t, the_report_shows_each_group_once);
    tcase_add_test(t, ranks_are_written_and_read);
    tcase_add_test(t, a_row_survives_json);
    tcase_add_test(t, a_row_of_json_is_never_too_long);
    tcase_add_test(t, bytes_from_outside_are_checked);
    suite_add_tcase(s, t);
    return run_suite(s);
}
