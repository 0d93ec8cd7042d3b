/* Tests agent/watchdog/log_rules.h: reading rules, and which lines break them. */
#include "agent/watchdog/log_rules.h"

#include "tests/lib/run_suite.h"

#include <string.h>

static struct log_rules r;
static struct log_rules_look look;

static void open_rules(const char *hang, const char *value) {
    struct cr_error err = {0};
    log_rules_done(&r);
    ck_assert_msg(log_rules_add(&r, false, hang, &err) == 0, "%s", err.text);
    ck_assert_msg(log_rules_add(&r, true, value, &err) == 0, "%s", err.text);
    ck_assert_int_eq(log_rules_open(&r, 3), 0);
    log_rules_begin(&r, 1000);
}

/* Processes the line of a worker at the time now_ms. Returns the broken rule or NULL. */
static const struct log_rule *say(uint32_t worker, int64_t now_ms, const char *line) {
    bool changes = false;
    return log_rules_line(&r, worker, line, strlen(line), now_ms, &changes);
}

static void check_look(int64_t now_ms, uint64_t silent, uint64_t broken, int64_t next_ms) {
    log_rules_look(&r, now_ms, &look);
    ck_assert_uint_eq(look.silent, silent);
    ck_assert_uint_eq(look.broken, broken);
    ck_assert_int_eq(look.next_ms, next_ms);
}

/* ---- reading ---- */

static void check_refused(bool is_value, const char *text, const char *why) {
    struct cr_error err = {0};
    ck_assert_int_lt(log_rules_check(is_value, text, &err), 0);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' lacks '%s'", err.text, why);
}

START_TEST(wrong_rules_are_refused_with_the_place_and_the_reason) {
    check_refused(false, "1:2", "fewer than two ':'; give FIRST:EVERY:REGEX");
    check_refused(false, "loss", "fewer than two ':'");
    check_refused(false, "::loss", "FIRST and EVERY are both empty");
    check_refused(false, "0:1:loss", "FIRST is '0', which is not a time");
    check_refused(false, "-1:1:loss", "FIRST is '-1'");
    check_refused(false, "nan:1:loss", "FIRST is 'nan'");
    check_refused(false, "1:2592001:loss", "EVERY is '2592001'");
    check_refused(false, "1:1:", "REGEX is empty");
    check_refused(false, "1:1:a(", "REGEX 'a(' is not an extended regular expression: ");
    check_refused(false, "end:", "REGEX is empty");
    check_refused(false, "1:1:a\n1:x:b", "the rule '1:x:b': EVERY is 'x'");
    check_refused(true, "nan:1:loss", "has no group");
    check_refused(true, "nan:0:(a)", "COUNT is '0'");
    check_refused(true, "none:1:(a)", "TEST is 'none'");
    check_refused(true, ">:1:(a)", "TEST is '>'");
    check_refused(true, ">1e999:1:(a)", "TEST is '>1e999'");
    check_refused(true, "nan:1", "give TEST:COUNT:REGEX");
}
END_TEST

START_TEST(right_rules_are_read) {
    open_rules("1.5:300:loss: [0-9]+: x\n\n:0.0001:step\nend:saved", ">=-1e3::x=(.*)\nnan:7:(.)");
    ck_assert_uint_eq(r.count, 5);
    ck_assert_int_eq(r.rules[0].first_ms, 1500);
    ck_assert_int_eq(r.rules[0].every_ms, 300000);
    ck_assert_str_eq(r.rules[0].literal, "loss: ");
    ck_assert_int_eq(r.rules[1].first_ms, 0);
    ck_assert_int_eq(r.rules[1].every_ms, 1);
    ck_assert_int_eq(r.rules[2].kind, LOG_RULE_END);
    ck_assert_int_eq(r.rules[3].test, LOG_RULE_MORE_EQUAL);
    ck_assert(r.rules[3].limit < -999 && r.rules[3].limit > -1001);
    ck_assert_uint_eq(r.rules[3].count, 1);
    ck_assert_uint_eq(r.rules[4].count, 7);
    ck_assert_uint_eq(log_rules_mask(&r), 3);
}
END_TEST

START_TEST(there_is_a_largest_number_of_rules) {
    char text[LOG_RULES_MAX * 6 + 7] = "";
    for (int i = 0; i < LOG_RULES_MAX; i++) strcat(text, "1:1:a\n");
    struct cr_error err = {0};
    ck_assert_int_eq(log_rules_check(false, text, &err), 0);
    strcat(text, "1:1:a\n");
    check_refused(false, text, "more than 32 rules");
}
END_TEST

/* Each expression, the literal text that is found in it, and a line that matches. */
static const struct literal {
    const char *regex, *literal, *line;
} literals[] = {
    {"loss=", "loss=", "a loss=1"},
    {"abc*", "ab", "ab"},
    {"abc?", "ab", "ab"},
    {"abc+d", "abc", "abccd"},
    {"abc{0,2}de", "ab", "abde"},
    {"(abc)?de", "de", "de"},
    {"a|b", "", "b"},
    {"ab(c|d)", "", "abd"},
    {"[abc]de", "de", "ade"},
    {"[]a]bc", "bc", "]bc"},
    {"[^]a]bc", "bc", "xbc"},
    {"ab[[:digit:]]cde", "ab", "ab1cde"},
    {"a\\.bc\\(d", "bc", "a.bc(d"},
    {"^ab$", "ab", "ab"},
    {"(ab(c)d)e", "e", "abcde"},
    {".*", "", "x"},
    {"x{1}yz", "yz", "xyz"},
};

START_TEST(a_literal_text_never_hides_a_match) {
    for (size_t i = 0; i < sizeof(literals) / sizeof(literals[0]); i++) {
        const struct literal *l = &literals[i];
        char text[64] = ":9:";
        open_rules(strcat(text, l->regex), "");
        ck_assert_str_eq(r.rules[0].literal, l->literal);
        (void) say(0, 2000, l->line);
        ck_assert_msg(r.rules[0].is_seen, "'%s' does not match '%s'", l->regex, l->line);
    }
}
END_TEST

/* ---- hang rules ---- */

START_TEST(the_first_line_must_come_in_time) {
    open_rules("2::begins", "");
    check_look(2999, 1, 0, 3000);
    check_look(3000, 1, 1, INT64_MAX);
    open_rules("2::begins", "");
    ck_assert_ptr_null(say(1, 2999, "now it begins"));
    check_look(9999999, 0, 0, INT64_MAX);
}
END_TEST

START_TEST(the_next_line_must_come_in_time) {
    open_rules(":5:loss", "");
    check_look(9999999, 1, 0, INT64_MAX); /* no line has come, and there is no FIRST */
    (void) say(0, 2000, "loss 1");
    check_look(6999, 0, 0, 7000);
    check_look(7000, 1, 1, INT64_MAX);
    (void) say(0, 7500, "no such line");
    check_look(7500, 1, 1, INT64_MAX);
    (void) say(0, 8000, "loss 2"); /* it has come late, but it has come */
    check_look(8000, 0, 0, 13000);
}
END_TEST

START_TEST(rules_are_independent) {
    open_rules("2:5:a\n3:9:b", "");
    check_look(1000, 3, 0, 3000);
    (void) say(0, 1500, "a");
    check_look(4000, 2, 2, 6500);
    check_look(6500, 3, 3, INT64_MAX);
}
END_TEST

START_TEST(a_new_round_begins_anew) {
    open_rules("2:5:a", "");
    (void) say(0, 1500, "a");
    log_rules_begin(&r, 8000);
    check_look(8000, 1, 0, 10000);
}
END_TEST

START_TEST(a_time_that_is_left_out_does_not_count) {
    open_rules("2:5:a\n3::b", "");
    (void) say(0, 1500, "a");
    log_rules_leave_out(&r, 100000);
    check_look(103999, 2, 0, 104000);
    check_look(106499, 2, 2, 106500);
    check_look(106500, 3, 3, INT64_MAX);
}
END_TEST

START_TEST(a_worker_that_has_ended_writes_no_more) {
    open_rules("2:5:a", "");
    (void) say(1, 1500, "a");
    log_rules_worker_ended(&r, 0);
    check_look(1500, 0, 0, 6500);
    log_rules_worker_ended(&r, 1);
    check_look(9999999, 0, 0, INT64_MAX);
    (void) say(2, 20000, "a"); /* another worker goes on with it */
    check_look(20000, 0, 0, 25000);
}
END_TEST

START_TEST(after_the_last_line_no_rule_holds) {
    open_rules("2:5:a\nend:saving", "");
    (void) say(1, 1500, "saving the model");
    check_look(9999999, 0, 0, INT64_MAX);
    log_rules_begin(&r, 20000);
    check_look(20000, 1, 0, 22000);
}
END_TEST

START_TEST(a_long_line_is_cut) {
    static char line[LOG_RULE_LINE_MAX + 100];
    bool changes = false;
    memset(line, 'x', sizeof(line));
    memcpy(line + LOG_RULE_LINE_MAX - 1, "ab", 2);
    open_rules(":5:ab\n:5:xa", "");
    (void) log_rules_line(&r, 0, line, sizeof(line), 2000, &changes);
    ck_assert(!r.rules[0].is_seen && r.rules[1].is_seen && changes);
}
END_TEST

/* ---- values ---- */

/* Returns how many of the values, written by worker 0 one after the other, it takes to break the
 * rule; 0 if they do not break it. */
static int broken_after(const char *rule, const char *const *values) {
    open_rules("", rule);
    for (int i = 0; values[i] != NULL; i++) {
        char line[100] = "v=";
        if (say(0, 2000, strcat(line, values[i])) == &r.rules[0]) return i + 1;
    }
    return 0;
}
#define VALUES(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(values_are_compared) {
    ck_assert_int_eq(broken_after("nan::v=([^ ]*)", VALUES("1", "-2e3", "3,", "nan")), 4);
    ck_assert_int_eq(broken_after("nan::v=([^ ]*)", VALUES("inf")), 1);
    ck_assert_int_eq(broken_after("nan::v=([^ ]*)", VALUES("None")), 1);
    ck_assert_int_eq(broken_after("nan::v=([^ ]*)", VALUES("1e999")), 1);
    ck_assert_int_eq(broken_after(">5::v=([^ ]*)", VALUES("5", "5.1")), 2);
    ck_assert_int_eq(broken_after(">=5::v=([^ ]*)", VALUES("4.9", "5")), 2);
    ck_assert_int_eq(broken_after("<5::v=([^ ]*)", VALUES("5", "4")), 2);
    ck_assert_int_eq(broken_after("<=5::v=([^ ]*)", VALUES("6", "5")), 2);
    ck_assert_int_eq(broken_after("<5::v=([^ ]*)", VALUES("6", "NaN")), 2);
    ck_assert_int_eq(broken_after("<5::v=([0-9]+)?", VALUES("", "x", "4")), 3);
}
END_TEST

START_TEST(bad_values_count_in_a_row) {
    ck_assert_int_eq(broken_after("nan:3:v=(.*)", VALUES("nan", "nan", "1", "nan", "nan")), 0);
    ck_assert_int_eq(broken_after("nan:3:v=(.*)", VALUES("nan", "1", "nan", "nan", "nan")), 5);
    ck_assert_int_eq(broken_after("nan:2:v=(.*)", VALUES("nan", "nan", "nan")), 2);
}
END_TEST

START_TEST(each_worker_has_values_of_its_own) {
    open_rules("", "nan:2:v=(.*)");
    ck_assert_ptr_null(say(0, 2000, "v=nan"));
    ck_assert_ptr_null(say(1, 2000, "v=nan"));
    ck_assert_ptr_null(say(2, 2000, "v=1"));
    ck_assert_ptr_eq(say(1, 2000, "v=nan"), &r.rules[0]);
    log_rules_begin(&r, 3000);
    ck_assert_ptr_null(say(1, 3000, "v=nan"));
}
END_TEST

/* ---- texts ---- */

static void check_text(struct cr_buffer *text, const char *wanted) {
    ck_assert_str_eq(text->data, wanted);
    cr_buffer_done(text);
}

START_TEST(texts_name_the_rule_what_it_wants_and_what_was_seen) {
    struct cr_buffer text = {0};
    open_rules("2:5:loss", "nan:2:v=(.*)");
    ck_assert_int_eq(log_rule_describe_silence(&r, &r.rules[0], 8, 3250, &text), 0);
    check_text(&text, "no line has matched --hang-rule '2:5:loss' since the workers were started "
                      "2.25 s ago; the first one was expected within 2 s");
    (void) say(1, 4000, "loss");
    ck_assert_int_eq(log_rule_describe_silence(&r, &r.rules[0], 8, 10000, &text), 0);
    check_text(&text, "no line has matched --hang-rule '2:5:loss' for 6 s, and one was expected "
                      "every 5 s; the last one came from rank 9");
    (void) say(2, 4000, "v=nan");
    (void) say(2, 4000, "v=inf");
    ck_assert_int_eq(log_rule_describe_value(&r.rules[1], 2, &text), 0);
    check_text(&text, "2 lines in a row showed a bad value, last 'inf', for --value-rule "
                      "'nan:2:v=(.*)'");
}
END_TEST

static TCase *reading_case(void) {
    TCase *t = tcase_create("reading");
    tcase_add_test(t, wrong_rules_are_refused_with_the_place_and_the_reason);
    tcase_add_test(t, right_rules_are_read);
    tcase_add_test(t, there_is_a_largest_number_of_rules);
    tcase_add_test(t, a_literal_text_never_hides_a_match);
    return t;
}

int main(void) {
    Suite *s = suite_create("log_rules");
    TCase *t = tcase_create("lines");
    tcase_add_test(t, the_first_line_must_come_in_time);
    tcase_add_test(t, the_next_line_must_come_in_time);
    tcase_add_test(t, rules_are_independent);
    tcase_add_test(t, a_new_round_begins_anew);
    tcase_add_test(t, a_time_that_is_left_out_does_not_count);
    tcase_add_test(t, a_worker_that_has_ended_writes_no_more);
    tcase_add_test(t, after_the_last_line_no_rule_holds);
    tcase_add_test(t, a_long_line_is_cut);
    tcase_add_test(t, values_are_compared);
    tcase_add_test(t, bad_values_count_in_a_row);
    tcase_add_test(t, each_worker_has_values_of_its_own);
    tcase_add_test(t, texts_name_the_rule_what_it_wants_and_what_was_seen);
    suite_add_tcase(s, reading_case());
    suite_add_tcase(s, t);
    return run_suite(s);
}
