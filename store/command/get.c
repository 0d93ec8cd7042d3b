/* crun-store get: prints the bytes of a key's value unchanged, or as JSON with --json. */
#include "store/command/command_internal.h"

#include <errno.h>
#include <stdlib.h>

static void print_value(const struct command_target *target, struct store_bytes value) {
    if (!target->json) {
        (void) fwrite(value.data, 1, value.len, stdout);
        (void) putchar('\n');
        return;
    }
    (void) printf("{\"key\": ");
    command_put_json(stdout, STORE_BYTES(target->args[0]));
    (void) printf(", \"value\": ");
    command_put_json(stdout, value);
    (void) printf("}\n");
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status;
    struct store *s = command_begin(command, line, &target, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    const char *key = target.args[0];
    void *value = NULL;
    size_t len = 0;
    int rc = store_get(s, STORE_BYTES(key), command_time_left_ms(&target), &value, &len, &err);
    if (rc == -ETIMEDOUT && target.timeout_ms == 0)
        (void) cr_fail(&err, rc, "no key '%.400s'; 'crun-store keys' lists them", key);
    if (rc == 0) print_value(&target, (struct store_bytes){value, len});
    free(value);
    store_close(s);
    return rc < 0 ? command_fail(&target, &err) : 0;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("0");

const struct cr_command command_get = {
    .name = "crun-store get",
    .summary = "print the value of a key",
    .arguments = "HOST:PORT KEY",
    .description =
        "Prints the value of a key and a newline. Without --timeout it looks once; with it, it "
        "waits for the key to be set.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 2,
    .max_arguments = 2,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
