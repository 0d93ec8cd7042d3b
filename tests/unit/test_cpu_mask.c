/* Tests base/cpu_mask: sets of CPUs, read from sysfs lists such as "0-3,8" and written as such. */
#include "base/process/cpu_mask.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(lists_that_come_back) {
    static const char *const lists[] = {"",        "0",     "0-1",  "0-3,8",
                                        "1,3,5-7", "63-64", "8191", "0-8191"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct cr_cpu_mask m;
        char text[64];
        ck_assert_int_eq(cr_cpu_parse(lists[i], &m), 0);
        cr_cpu_format(&m, text, sizeof(text));
        ck_assert_str_eq(text, lists[i]);
    }
}
END_TEST

START_TEST(what_is_in_a_list) {
    struct cr_cpu_mask m, other;
    ck_assert_int_eq(cr_cpu_parse("2,4-6,100\n", &m), 0);
    ck_assert_uint_eq(cr_cpu_count(&m), 5);
    ck_assert(cr_cpu_has(&m, 5) && cr_cpu_has(&m, 100) && !cr_cpu_has(&m, 3));
    ck_assert(!cr_cpu_has(&m, CR_CPUS_MAX));
    ck_assert_uint_eq(cr_cpu_next(&m, 0), 2);
    ck_assert_uint_eq(cr_cpu_next(&m, 7), 100);
    ck_assert_uint_eq(cr_cpu_next(&m, 101), CR_CPUS_MAX);
    ck_assert_int_eq(cr_cpu_parse("0-4", &other), 0);
    cr_cpu_intersect(&m, &other);
    ck_assert_uint_eq(cr_cpu_count(&m), 2);
}
END_TEST

START_TEST(what_is_no_list) {
    static const char *const bad[] = {"x", "1,", ",1", "1,,2", "3-1", "1-", "-1", "8192", "1 2",
                                      "99999999999999999999", "0-8192", "+1"};
    struct cr_cpu_mask m;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(cr_cpu_parse(bad[i], &m) == -EINVAL, "'%s' is taken", bad[i]);
}
END_TEST

START_TEST(a_text_that_does_not_fit) {
    struct cr_cpu_mask m = {0};
    for (uint32_t cpu = 0; cpu < CR_CPUS_MAX; cpu += 2) cr_cpu_add(&m, cpu);
    for (size_t size = 1; size < 40; size++) {
        char text[64];
        memset(text, 'x', sizeof(text));
        cr_cpu_format(&m, text, size);
        ck_assert_uint_lt(strlen(text), size);
        ck_assert_int_eq(text[size], 'x');
        if (size > 8) ck_assert_str_eq(text + strlen(text) - 3, "…");
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("cpu_mask");
    TCase *t = tcase_create("lists");
    tcase_add_test(t, lists_that_come_back);
    tcase_add_test(t, what_is_in_a_list);
    tcase_add_test(t, what_is_no_list);
    tcase_add_test(t, a_text_that_does_not_fit);
    suite_add_tcase(s, t);
    return run_suite(s);
}
