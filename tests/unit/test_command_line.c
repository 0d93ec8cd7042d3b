/* Tests base/command_line and base/program with an invented program: where options may stand, what
 * ends the options, how arguments are counted, and the texts of help and errors. test_options.c
 * tests the further rules of crun's own command line. */
#include "base/cleanup.h"
#include "base/program/program.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { JSON, TIMEOUT, SECRET, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JSON] = {.name = "json", .help = "one line of JSON"},
    [TIMEOUT] = {.name = "time-limit",
                 .value_name = "SECONDS",
                 .default_value = "10",
                 .words = "10 60",
                 .help = "give up after so long"},
    [SECRET] = {.name = "jsonl", .is_hidden = true, .help = "not for everybody"},
    [HELP] = CR_OPTION_HELP,
};

static int run_nothing(const struct cr_command *command, const struct cr_command_line *line) {
    return (void) command, (void) line, 0;
}

/* A command with two arguments, whose options may stand anywhere on the line. */
static const struct cr_command free_command = {
    .name = "box put",
    .summary = "put a thing into the box",
    .arguments = "BOX THING",
    .description = "Puts a thing into a box.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run_nothing,
};

/* A command whose options must stand before the second argument: this argument and all that follow
 * are arguments, even if they begin with '-'. */
static const struct cr_command strict_command = {
    .name = "box get",
    .summary = "get things",
    .arguments = "BOX THING...",
    .description = "Gets things.",
    .help_tail = "A thing may be anything.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 2,
    .max_arguments = 100,
    .options_end_after = 2,
    .run = run_nothing,
};

static const struct cr_command *const commands[] = {&free_command, &strict_command, NULL};
static const struct cr_program program = {
    .name = "box",
    .summary = "a box of things",
    .commands = commands,
    .man_description = "It is a box.\n",
    .man_tail = ".SH SEE ALSO\ncrun\n",
};

static const char *value[OPTION_COUNT];
static enum cr_option_source source[OPTION_COUNT];
static struct cr_command_line line = {.value = value, .source = source};
static struct cr_error err;

static int parse(const struct cr_command *command, const char *const *words) {
    static const char *kept[16];
    size_t n = 0;
    do kept[n] = words[n];
    while (words[n++] != NULL);
    cr_error_clear(&err);
    return cr_command_line_parse(command, (char **) (void *) kept, NULL, NULL, &line, &err);
}

#define PARSE(command, ...) parse(&command, (const char *const[]){"put", __VA_ARGS__, NULL})

START_TEST(options_may_stand_between_the_arguments) {
    ck_assert_int_eq(PARSE(free_command, "b", "--json", "-5", "--time_limit=3"), 0);
    ck_assert_int_eq(line.argument_count, 2);
    ck_assert_str_eq(line.arguments[0], "b");
    ck_assert_str_eq(line.arguments[1], "-5"); /* an argument, because no option has the letter 5 */
    ck_assert_ptr_null(line.arguments[2]);
    ck_assert_str_eq(value[JSON], "1");
    ck_assert_str_eq(value[TIMEOUT], "3");
    ck_assert_int_eq(source[TIMEOUT], CR_FROM_LINE);
    ck_assert_int_eq(PARSE(free_command, "b", "t"), 0);
    ck_assert_str_eq(value[TIMEOUT], "10");
    ck_assert_int_eq(source[TIMEOUT], CR_FROM_DEFAULT);
    ck_assert_ptr_null(value[JSON]);
}
END_TEST

START_TEST(two_dashes_end_the_options) {
    ck_assert_int_eq(PARSE(free_command, "--", "--json", "--"), 0);
    ck_assert_str_eq(line.arguments[0], "--json");
    ck_assert_str_eq(line.arguments[1], "--");
    ck_assert(line.dashes_seen);
}
END_TEST

START_TEST(some_arguments_end_the_options) {
    ck_assert_int_eq(PARSE(strict_command, "--json", "b", "--time", "7", "t", "--json", "--"), 0);
    ck_assert_int_eq(line.argument_count, 4);
    ck_assert_str_eq(line.arguments[2], "--json");
    ck_assert_str_eq(line.arguments[3], "--");
    ck_assert_str_eq(value[TIMEOUT], "7");
}
END_TEST

START_TEST(hidden_options_are_known_by_their_full_name_only) {
    ck_assert_int_eq(PARSE(free_command, "--jso", "a", "b"), 0);
    ck_assert_ptr_null(value[SECRET]);
    ck_assert_int_eq(PARSE(free_command, "--jsonl", "a", "b"), 0);
    ck_assert_str_eq(value[SECRET], "1");
    ck_assert_int_eq(PARSE(free_command, "--jsonk", "a", "b"), -EINVAL);
    ck_assert_str_eq(err.text, "unknown option '--jsonk'; did you mean '--json'?");
}
END_TEST

START_TEST(help_needs_nothing_else) {
    ck_assert_int_eq(PARSE(free_command, "-h"), 0);
    ck_assert_int_eq(line.request, HELP);
    ck_assert_int_eq(PARSE(free_command, "--help", "--nonsense"), 0);
    /* --help is the third argument */
    ck_assert_int_eq(PARSE(strict_command, "a", "b", "--help"), 0);
    ck_assert_int_eq(line.request, -1);
}
END_TEST

START_TEST(mistakes_are_named) {
    static const struct {
        const char *words[4], *text;
    } mistakes[] = {
        {{"put", NULL}, "no BOX given; give BOX THING"},
        {{"put", "b", NULL}, "no THING given; give BOX THING"},
        {{"put", "--nonsense", NULL}, "unknown option '--nonsense'"},
        {{"put", "--json=1", NULL}, "--json takes no value, but '1' was given"},
        {{"put", "--time-limit", NULL}, "--time-limit needs a value: --time-limit SECONDS"},
        {{"put", "--time-limit", "--json", NULL},
         "--time-limit needs a value: --time-limit SECONDS"},
    };
    for (size_t i = 0; i < CR_ARRAY_LEN(mistakes); i++) {
        ck_assert_int_eq(parse(&free_command, mistakes[i].words), -EINVAL);
        ck_assert_str_eq(err.text, mistakes[i].text);
    }
    ck_assert_int_eq(PARSE(free_command, "a", "b", "c"), -EINVAL);
    ck_assert_str_eq(err.text, "unexpected argument 'c'");
    ck_assert_int_eq(PARSE(strict_command, "a"), -EINVAL);
    ck_assert_str_eq(err.text, "no THING given; give BOX THING...");
}
END_TEST

static void expect_text(int rc, struct cr_buffer *b, const char *text) {
    ck_assert_int_eq(rc, 0);
    ck_assert_str_eq(b->data, text);
    cr_buffer_done(b);
}

START_TEST(help_is_written_from_the_table) {
    struct cr_buffer b = {0};
    expect_text(cr_command_write_help(&strict_command, &b), &b,
                "Usage: box get [options] BOX THING...\n"
                "Gets things.\n"
                "\n"
                "  --json                one line of JSON\n"
                "  --time-limit SECONDS  give up after so long (default: 10)\n"
                "\n"
                "A thing may be anything.\n");
    expect_text(cr_program_write_help(&program, &b), &b,
                "Usage: box COMMAND [options] [arguments...]\n"
                "\n"
                "Commands:\n"
                "  put      put a thing into the box\n"
                "  get      get things\n"
                "\n"
                "'box COMMAND --help' shows the options of a command.\n");
}
END_TEST

START_TEST(the_manual_page_is_written_from_the_table) {
    struct cr_buffer b = {0};
    expect_text(cr_program_write_man(&program, &b), &b,
                ".\\\" Written by `make docs` from the tables of box; do not edit.\n"
                ".TH BOX 1 \"\" \"crun " CRUN_VERSION "\" \"User Commands\"\n"
                ".SH NAME\nbox \\- a box of things\n"
                ".SH SYNOPSIS\n"
                ".B box put\n[\\fIoptions\\fR] BOX THING\n"
                ".br\n.B box get\n[\\fIoptions\\fR] BOX THING...\n"
                ".SH DESCRIPTION\nIt is a box.\n"
                ".SH COMMANDS\n"
                ".SS \"box put [options] BOX THING\"\nPuts a thing into a box.\n"
                ".TP\n.B \\-\\-json\nOne line of JSON.\n"
                ".TP\n.B \\-\\-time\\-limit \\fISECONDS\\fR\nGive up after so long.\nDefault: 10.\n"
                ".SS \"box get [options] BOX THING...\"\nGets things.\n"
                ".TP\n.B \\-\\-json\nOne line of JSON.\n"
                ".TP\n.B \\-\\-time\\-limit \\fISECONDS\\fR\nGive up after so long.\nDefault: 10.\n"
                ".PP\nA thing may be anything.\n"
                ".SH SEE ALSO\ncrun\n");
}
END_TEST

START_TEST(the_completion_knows_commands_and_their_options) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(cr_program_write_completion(&program, &b), 0);
    ck_assert_ptr_nonnull(strstr(b.data, "compgen -W \"put get --help --version\""));
    ck_assert_ptr_nonnull(strstr(b.data, "get:--time-limit) COMPREPLY=($(compgen -W \"10 60\""));
    ck_assert_ptr_nonnull(strstr(b.data, "put) options=\"--json --time-limit\" ;;"));
    ck_assert_ptr_null(strstr(b.data, "jsonl"));
    cr_buffer_done(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("command line");
    TCase *t = tcase_create("command line");
    tcase_add_test(t, options_may_stand_between_the_arguments);
    tcase_add_test(t, two_dashes_end_the_options);
    tcase_add_test(t, some_arguments_end_the_options);
    tcase_add_test(t, hidden_options_are_known_by_their_full_name_only);
    tcase_add_test(t, help_needs_nothing_else);
    tcase_add_test(t, mistakes_are_named);
    tcase_add_test(t, help_is_written_from_the_table);
    tcase_add_test(t, the_manual_page_is_written_from_the_table);
    tcase_add_test(t, the_completion_knows_commands_and_their_options);
    suite_add_tcase(s, t);
    return run_suite(s);
}
