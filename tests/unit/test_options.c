/* Tests of options_parse(): spellings, prefixes, values, "--", environment variables, and the error
 * text for each kind of mistake. */
#include "launcher/options/table.h"
#include "tests/lib/fake_environment.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct options o;
static struct cr_error err;

/* Parses `argv`. `o` will point into argv, so argv is first copied to a static array, which
 * outlives the caller's compound literal. */
static int parse(const char *const *argv) {
    static const char *kept[32];
    size_t n = 0;
    do kept[n] = argv[n];
    while (argv[n++] != NULL);
    cr_error_clear(&err);
    return options_parse((char **) (void *) kept, lookup, NULL, &o, &err);
}

#define PARSE(...)    parse((const char *const[]){"crun", __VA_ARGS__, NULL})
#define WITH_ENV(...) set_environment((const char *const[]){__VA_ARGS__, NULL})

#define EXPECT_FAILURE(needle)                                                                     \
    do {                                                                                           \
        ck_assert_int_eq(err.code, -EINVAL);                                                       \
        ck_assert_msg(strstr(err.text, needle) != NULL, "'%s' not in: %s", needle, err.text);      \
    } while (0)

static void setup(void) { environment = NULL; }

START_TEST(all_that_follows_the_program_is_untouched) {
    ck_assert_int_eq(
        PARSE("--nproc-per-node=2", "train.py", "--nproc-per-node=9", "-r", "-h", "--"), 0);
    ck_assert_str_eq(o.program, "train.py");
    ck_assert_str_eq(o.value[OPTION_NPROC], "2");
    ck_assert_str_eq(o.args[0], "--nproc-per-node=9");
    ck_assert_str_eq(o.args[2], "-h");
    ck_assert_str_eq(o.args[3], "--");
    ck_assert_ptr_null(o.args[4]);
}
END_TEST

START_TEST(dashes_and_underscores_and_prefixes_are_one_option) {
    static const char *const spellings[] = {"--nproc-per-node", "--nproc_per_node",
                                            "--nproc-per_node", "--nproc", "--np"};
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        ck_assert_int_eq(PARSE(spellings[i], "7", "x"), 0);
        ck_assert_str_eq(o.value[OPTION_NPROC], "7");
        ck_assert_int_eq(o.source[OPTION_NPROC], CR_FROM_LINE);
    }
}
END_TEST

START_TEST(values_may_be_joined_or_apart) {
    ck_assert_int_eq(PARSE("-r", "3", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_REDIRECTS], "3");
    ck_assert_int_eq(PARSE("-r3", "-t=2", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_REDIRECTS], "3");
    ck_assert_str_eq(o.value[OPTION_TEE], "2");
    ck_assert_int_eq(PARSE("-mr3", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_MODULE], "1");
    ck_assert_str_eq(o.value[OPTION_REDIRECTS], "3");
    ck_assert_int_eq(PARSE("--rdzv-conf=a=b,c=d", "--log-dir", "", "--max-restarts", "-1", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_RDZV_CONF], "a=b,c=d");
    ck_assert_str_eq(o.value[OPTION_LOG_DIR], "");
    /* "-1" is taken as the value of --max-restarts; options_parse() checks no ranges */
    ck_assert_str_eq(o.value[OPTION_MAX_RESTARTS], "-1");
}
END_TEST

START_TEST(the_last_value_wins) {
    ck_assert_int_eq(PARSE("--role=a", "--role=b", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_ROLE], "b");
}
END_TEST

START_TEST(exactly_one_double_dash_is_swallowed) {
    ck_assert_int_eq(PARSE("--", "prog", "--", "x"), 0);
    ck_assert_str_eq(o.program, "prog");
    ck_assert_str_eq(o.args[0], "--");
    ck_assert_int_eq(PARSE("prog", "--", "-x"), 0);
    ck_assert_str_eq(o.args[0], "-x");
    ck_assert_int_eq(PARSE("prog", "--", "--"), 0);
    ck_assert_str_eq(o.args[0], "--");
    ck_assert_ptr_null(o.args[1]);
    ck_assert_int_eq(PARSE("prog", "-q", "--", "y"), 0);
    ck_assert_str_eq(o.args[1], "--");
    ck_assert_int_eq(PARSE("--", "--odd-name"), 0);
    ck_assert_str_eq(o.program, "--odd-name");
}
END_TEST

START_TEST(defaults_then_variables_then_the_line) {
    ck_assert_int_eq(PARSE("x"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "1");
    ck_assert_int_eq(o.source[OPTION_NPROC], CR_FROM_DEFAULT);
    ck_assert_ptr_null(o.value[OPTION_STANDALONE]);
    WITH_ENV("PET_NPROC_PER_NODE=2", "PET_STANDALONE=1", "PET_MODULE=0", "PET_NNODES=");
    ck_assert_int_eq(PARSE("x"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "2");
    ck_assert_int_eq(o.source[OPTION_NPROC], CR_FROM_VARIABLE);
    ck_assert_str_eq(o.value[OPTION_STANDALONE], "1");
    ck_assert_ptr_null(o.value[OPTION_MODULE]);
    ck_assert_str_eq(o.value[OPTION_NNODES], ""); /* an empty variable counts as set */
    ck_assert_int_eq(PARSE("--nproc-per-node=3", "-m", "x"), 0);
    ck_assert_str_eq(o.value[OPTION_NPROC], "3");
    /* a flag on the command line overrides PET_MODULE=0 */
    ck_assert_str_eq(o.value[OPTION_MODULE], "1");
}
END_TEST

START_TEST(flags_from_the_environment_are_integers) {
    WITH_ENV("PET_STANDALONE=true");
    ck_assert_int_lt(PARSE("x"), 0);
    EXPECT_FAILURE("PET_STANDALONE='true'");
    /* a wrong variable is an error even if the command line gives the same flag */
    ck_assert_int_lt(PARSE("--standalone", "x"), 0);
    WITH_ENV("PET_LOGS_SPECS=x", "PET_NUMA_BINDING=x");
    ck_assert_int_eq(PARSE("x"), 0); /* --logs-specs and --numa-binding have no variable */
    ck_assert_ptr_null(o.value[OPTION_LOGS_SPECS]);
    ck_assert_ptr_null(o.value[OPTION_NUMA_BINDING]);
}
END_TEST

START_TEST(labels_say_where_a_value_came_from) {
    char label[CR_OPTION_LABEL_MAX];
    WITH_ENV("PET_RDZV_CONF=a=b");
    ck_assert_int_eq(PARSE("--rdzv_id=7", "x"), 0);
    ck_assert_str_eq(option_label(&o, OPTION_RDZV_CONF, label), "PET_RDZV_CONF");
    ck_assert_str_eq(option_label(&o, OPTION_RDZV_ID, label), "--rdzv-id");
}
END_TEST

START_TEST(mistakes_are_named) {
    ck_assert_int_lt(parse((const char *const[]){"crun", NULL}), 0);
    EXPECT_FAILURE("the following arguments are required: PROGRAM; usage: [options] PROGRAM");
    ck_assert_int_lt(PARSE("--standalone"), 0);
    EXPECT_FAILURE("the following arguments are required: PROGRAM");
    ck_assert_int_lt(PARSE("--bogus", "x"), 0);
    EXPECT_FAILURE("unrecognized arguments: '--bogus'");
    ck_assert_int_lt(PARSE("--log-dri=a", "x"), 0);
    EXPECT_FAILURE("did you mean '--log-dir'?");
    ck_assert_int_lt(PARSE("--rdzv-=c10d", "x"), 0);
    EXPECT_FAILURE("--rdzv-backend, --rdzv-endpoint, --rdzv-id, --rdzv-conf");
    ck_assert_int_lt(PARSE("-z", "x"), 0);
    EXPECT_FAILURE("'-z'");
    ck_assert_int_lt(PARSE("--role", "--standalone", "x"), 0);
    EXPECT_FAILURE("--role needs a value: --role NAME");
    ck_assert_int_lt(PARSE("--role"), 0);
    EXPECT_FAILURE("--role needs a value");
    ck_assert_int_lt(PARSE("--role", "--", "x"), 0);
    EXPECT_FAILURE("--role needs a value");
    ck_assert_int_lt(PARSE("--standalone=1", "x"), 0);
    EXPECT_FAILURE("--standalone takes no value, but '1' was given");
    ck_assert_int_lt(PARSE("-m=1", "x"), 0);
    EXPECT_FAILURE("--module takes no value");
}
END_TEST

START_TEST(names_of_any_length_are_answered) {
    char *name = malloc(100001);
    memset(name, 'a', 100000);
    memcpy(name, "--", 2);
    name[100000] = '\0';
    ck_assert_int_lt(PARSE(name, "x"), 0);
    EXPECT_FAILURE("unrecognized arguments");
    free(name);
}
END_TEST

START_TEST(help_and_version_need_nothing_else) {
    WITH_ENV("PET_STANDALONE=true");
    ck_assert_int_eq(PARSE("-h"), 0);
    ck_assert_int_eq(o.wanted, OPTIONS_HELP);
    ck_assert_int_eq(PARSE("--nnodes", "2", "--version", "--bogus"), 0);
    ck_assert_int_eq(o.wanted, OPTIONS_VERSION);
    ck_assert_int_eq(PARSE("--print-completion=bash"), 0);
    ck_assert_int_eq(o.wanted, OPTIONS_COMPLETION);
    ck_assert_int_lt(PARSE("--print-completion", "fish"), 0);
    EXPECT_FAILURE("there is none for 'fish'");
    /* --help comes after prog and so belongs to it; the wrong PET_STANDALONE is an error */
    ck_assert_int_eq(PARSE("prog", "--help"), -EINVAL);
}
END_TEST

START_TEST(every_text_names_every_option) {
    struct cr_buffer help = {0}, man = {0}, completion = {0};
    ck_assert_int_eq(cr_command_write_help(&crun_command, &help), 0);
    ck_assert_int_eq(cr_program_write_man(&crun_program, &man), 0);
    ck_assert_int_eq(cr_program_write_completion(&crun_program, &completion), 0);
    for (int i = 0; i < OPTION_COUNT; i++) {
        char name[CR_OPTION_LABEL_MAX + 4], roff[2 * CR_OPTION_LABEL_MAX];
        size_t n = 0;
        const struct cr_option *option = &crun_command.options[i];
        ck_assert_ptr_nonnull(option->name);
        if (option->is_hidden) continue;
        (void) snprintf(name, sizeof(name), "--%s", option->name);
        for (const char *at = name; *at != '\0'; at++) {
            if (*at == '-') roff[n++] = '\\';
            roff[n++] = *at;
        }
        roff[n] = '\0';
        ck_assert_msg(strstr(help.data, name) != NULL, "--help lacks %s", name);
        ck_assert_msg(strstr(man.data, roff) != NULL, "crun(1) lacks %s", name);
        ck_assert_msg(strstr(completion.data, name) != NULL, "the completion lacks %s", name);
    }
    for (char *line = strtok(help.data, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        ck_assert_msg(strlen(line) <= 100, "too wide: %s", line);
    }
    cr_buffer_done(&help);
    cr_buffer_done(&man);
    cr_buffer_done(&completion);
}
END_TEST

int main(void) {
    Suite *s = suite_create("options");
    TCase *t = tcase_create("parse");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, all_that_follows_the_program_is_untouched);
    tcase_add_test(t, dashes_and_underscores_and_prefixes_are_one_option);
    tcase_add_test(t, values_may_be_joined_or_apart);
    tcase_add_test(t, the_last_value_wins);
    tcase_add_test(t, exactly_one_double_dash_is_swallowed);
    tcase_add_test(t, defaults_then_variables_then_the_line);
    tcase_add_test(t, flags_from_the_environment_are_integers);
    tcase_add_test(t, labels_say_where_a_value_came_from);
    tcase_add_test(t, mistakes_are_named);
    tcase_add_test(t, names_of_any_length_are_answered);
    tcase_add_test(t, help_and_version_need_nothing_else);
    tcase_add_test(t, every_text_names_every_option);
    suite_add_tcase(s, t);
    return run_suite(s);
}
