/* crun-store delete: deletes keys, and prints on stderr which of them did not exist. */
#include "store/command/command_internal.h"

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status;
    struct store *s = command_begin(command, line, &target, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    int count = 0, rc = 0;
    for (int i = 0; i < target.arg_count && rc == 0; i++) {
        int deleted = 0;
        rc = store_delete(s, STORE_BYTES(target.args[i]), command_time_left_ms(&target), &deleted,
                          &err);
        count += deleted;
        if (rc == 0 && !deleted) cr_complain(command->name, "no key '%.400s'", target.args[i]);
    }
    store_close(s);
    if (rc < 0) return command_fail(&target, &err);
    if (target.json) (void) printf("{\"deleted\": %d}\n", count);
    return count == target.arg_count ? 0 : CR_EXIT_FAILED;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("10");

const struct cr_command command_delete = {
    .name = "crun-store delete",
    .summary = "delete keys",
    .arguments = "HOST:PORT KEY...",
    .description = "Deletes keys. The exit status is 1 if one of them did not exist.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 2,
    .max_arguments = 1 << 16,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
