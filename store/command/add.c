/* crun-store add: adds to a counter and prints the sum. */
#include "store/command/command_internal.h"

#include "base/text/parse.h"

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status = command_read_target(command, line, &target);
    if (status != 0) return status;
    int64_t delta, total = 0;
    if (cr_parse_i64(target.args[1], INT64_MIN, INT64_MAX, &delta) < 0)
        return cr_complain_usage(command->name, "'%.100s' is not a whole number of 64 bits",
                                 target.args[1]);
    struct store *s = command_open(&target);
    if (s == NULL) return CR_EXIT_FAILED;
    struct cr_error err = {0};
    int rc = store_add(s, STORE_BYTES(target.args[0]), delta, command_time_left_ms(&target), &total,
                       &err);
    store_close(s);
    if (rc < 0) return command_fail(&target, &err);
    (void) printf(target.json ? "{\"total\": %lld}\n" : "%lld\n", (long long) total);
    return 0;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("10");

const struct cr_command command_add = {
    .name = "crun-store add",
    .summary = "add to a counter",
    .arguments = "HOST:PORT KEY NUMBER",
    .description = "Adds to a counter and prints the sum. Adding 0 reads it (and creates it).",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 3,
    .max_arguments = 3,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
