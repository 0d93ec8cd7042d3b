/* Tests the plan for re-forming a communicator after a failure: who leaves, who joins, and when the
 * ranks must start from nothing. */
#include "tests/lib/run_suite.h"
#include "worker_runtime/backends/nccl/reform_plan.h"

#include <check.h>
#include <stdlib.h>

#define KEPT(tag, rank, size) {true, true, tag, rank, size}
#define NOTHING               {true, true, 0, 0, 0}

/* Makes the plan for `entries`, writes it as text, and returns what is read back from the text, as
 * a rank would read it. */
static struct reform_plan decide(const struct reform_entry *entries, int size) {
    struct reform_plan plan, read;
    ck_assert(reform_decide(entries, size, 77, &plan));
    char *text = reform_plan_write(&plan);
    ck_assert_ptr_nonnull(text);
    ck_assert(reform_plan_read(text, size, &read));
    ck_assert_uint_eq(read.new_tag, 77);
    ck_assert_int_eq(read.is_fresh, plan.is_fresh);
    reform_plan_free(&plan);
    free(text);
    return read;
}

static void assert_fresh(const struct reform_entry *entries, int size) {
    struct reform_plan plan = decide(entries, size);
    ck_assert(plan.is_fresh);
    reform_plan_free(&plan);
}

START_TEST(a_rank_is_lost_and_replaced) {
    const struct reform_entry entries[] = {KEPT(5, 0, 4), KEPT(5, 2, 4), KEPT(5, 3, 4), NOTHING};
    int lost[4];
    struct reform_plan plan = decide(entries, 4);
    ck_assert(!plan.is_fresh);
    ck_assert_uint_eq(plan.old_tag, 5);
    ck_assert_int_eq(plan.old_size, 4);
    ck_assert_int_eq(plan.survivors, 3);
    ck_assert_int_eq(plan.old_ranks[1], 2);
    ck_assert_int_eq(reform_lost(&plan, lost), 1);
    ck_assert_int_eq(lost[0], 1);
    reform_plan_free(&plan);
}
END_TEST

START_TEST(nobody_is_lost) {
    const struct reform_entry entries[] = {KEPT(5, 1, 2), KEPT(5, 0, 2)}; /* any order */
    int lost[2];
    struct reform_plan plan = decide(entries, 2);
    ck_assert(!plan.is_fresh);
    ck_assert_int_eq(reform_lost(&plan, lost), 0);
    reform_plan_free(&plan);
}
END_TEST

START_TEST(fresh_where_nccl_cannot_do_it) {
    assert_fresh((struct reform_entry[]){NOTHING, NOTHING}, 2);
    /* a new rank before one that survives */
    assert_fresh((struct reform_entry[]){KEPT(5, 0, 3), NOTHING, KEPT(5, 2, 3)}, 3);
    /* survivors in another order */
    assert_fresh((struct reform_entry[]){KEPT(5, 2, 3), KEPT(5, 0, 3)}, 2);
    /* The ranks must start from nothing if one rank of the last round lacks ncclCommShrink(), or if
     * a new rank lacks ncclCommGrow(). */
    assert_fresh((struct reform_entry[]){KEPT(5, 0, 3), {false, false, 5, 1, 3}}, 2);
    assert_fresh((struct reform_entry[]){KEPT(5, 0, 2), {true, false, 0, 0, 0}}, 2);
    /* entries that contradict each other */
    assert_fresh((struct reform_entry[]){KEPT(5, 0, 3), KEPT(5, 1, 4)}, 2);
}
END_TEST

START_TEST(the_tag_of_most_ranks_counts) {
    const struct reform_entry entries[] = {KEPT(5, 0, 3), KEPT(5, 1, 3), KEPT(9, 0, 3)};
    struct reform_plan plan = decide(entries, 3);
    ck_assert(!plan.is_fresh);
    ck_assert_uint_eq(plan.old_tag, 5);
    ck_assert_int_eq(plan.survivors, 2);
    reform_plan_free(&plan);
}
END_TEST

START_TEST(text_that_is_no_plan) {
    static const char *const texts[] = {
        "",
        "reform 1 2 4",
        "reform 1 2 4 3 0 1",     /* a rank is missing */
        "reform 1 2 4 3 0 1 4",   /* no rank of the old communicator */
        "reform 1 2 2 3 0 1 1",   /* more survivors than ranks */
        "reform 1 2 9 5 0 1 2 3 4", /* more survivors than the round has ranks */
        "other 1 2 4 1 0",
    };
    struct reform_plan plan;
    struct reform_entry entry;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(!reform_plan_read(texts[i], 4, &plan), "%s", texts[i]);
    ck_assert(!reform_entry_read("", &entry));
    ck_assert(!reform_entry_read("1 1 5 4 4", &entry)); /* rank 4 of 4 */
    char text[REFORM_ENTRY_MAX];
    reform_entry_write(&(struct reform_entry) KEPT(0xfedcba9876543210, 3, 4), text);
    ck_assert(reform_entry_read(text, &entry));
    ck_assert_uint_eq(entry.tag, 0xfedcba9876543210);
    ck_assert_int_eq(entry.rank, 3);
}
END_TEST

int main(void) {
    Suite *s = suite_create("reform_plan");
    TCase *t = tcase_create("plan");
    tcase_add_test(t, a_rank_is_lost_and_replaced);
    tcase_add_test(t, nobody_is_lost);
    tcase_add_test(t, fresh_where_nccl_cannot_do_it);
    tcase_add_test(t, the_tag_of_most_ranks_counts);
    tcase_add_test(t, text_that_is_no_plan);
    suite_add_tcase(s, t);
    return run_suite(s);
}
