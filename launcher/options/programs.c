/* Parses the programs behind a ":" on the command line: implements launcher/options/programs.h. */
#include "launcher/options/programs.h"

#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { NPROC, ROLE, ON_FAILURE, SERVICE, MODULE, NO_PYTHON, RUN_PATH, COUNT };

static const struct cr_option table[COUNT] = {
    [NPROC] = {.name = "nproc-per-node", .letter = 'n', .word = "-ppn",
               .value_name = "N", .help = "workers"},
    [ROLE] = {.name = "role", .value_name = "NAME", .help = "role of these workers"},
    [ON_FAILURE] = {.name = "on-failure", .value_name = "WORD", .help = "what follows a failure"},
    [SERVICE] = {.name = "service", .help = "the job does not wait for these workers"},
    [MODULE] = {.name = "module", .letter = 'm', .help = "the program is a Python module"},
    [NO_PYTHON] = {.name = "no-python", .help = "the program is an executable"},
    [RUN_PATH] = {.name = "run-path", .help = "run the program with runpy"},
};

static const struct cr_command command = {
    .name = "crun ... :",
    .options = table,
    .option_count = COUNT,
    .max_arguments = INT_MAX,
    .options_end_after = 1,
    .has_short_options = true,
    .unknown_advice = "behind a ':' stand only --nproc-per-node, --role, --on-failure, --service, "
                      "-m, --no-python and --run-path; the others stand before the first program",
};

/* Returns true if `word` is the option `name`, with or without "=VALUE"; a '_' in `word` counts as
 * '-'. */
static bool is_option(const char *word, const char *name) {
    for (; *name != '\0'; word++, name++) {
        if (*word != *name && !(*name == '-' && *word == '_')) return false;
    }
    return *word == '\0' || *word == '=';
}

static bool begins_program(const char *word) {
    static const char *const names[] = {"--nproc-per-node", "-ppn", "-n", "--role", "--on-failure",
                                        "--service"};
    for (size_t i = 0; word != NULL && i < CR_ARRAY_LEN(names); i++) {
        if (is_option(word, names[i])) return true;
    }
    return false;
}

char **programs_split(char **words) {
    for (; *words != NULL; words++) {
        if (strcmp(*words, ":") != 0 || !begins_program(words[1])) continue;
        *words = NULL;
        return words + 1;
    }
    return NULL;
}

int programs_parse(char **words, unsigned number, struct program_line *out, char ***next,
                   struct cr_error *err) {
    const char *value[COUNT] = {0};
    enum cr_option_source source[COUNT] = {0};
    struct cr_command_line line = {.value = value, .source = source};
    *next = programs_split(words);
    /* The parser skips the first word, as it skips a program's own name; here that word is the NULL
     * in place of the ":". */
    int rc = cr_command_line_parse(&command, words - 1, NULL, NULL, &line, err);
    if (rc == 0 && line.argument_count == 0) rc = cr_fail(err, -EINVAL, "no program given");
    if (rc < 0) return cr_wrap(err, "program %u, behind ':'", number);
    *out = (struct program_line){.nproc = value[NPROC] != NULL ? value[NPROC] : "1",
                                 .role = value[ROLE] != NULL ? value[ROLE] : "default",
                                 .on_failure = value[ON_FAILURE] != NULL ? value[ON_FAILURE]
                                                                         : "all",
                                 .is_service = value[SERVICE] != NULL,
                                 .module = value[MODULE] != NULL,
                                 .no_python = value[NO_PYTHON] != NULL,
                                 .run_path = value[RUN_PATH] != NULL,
                                 .program = line.arguments[0],
                                 .args = line.arguments + 1};
    if (!line.dashes_seen && *out->args != NULL && strcmp(*out->args, "--") == 0) out->args++;
    return 0;
}
