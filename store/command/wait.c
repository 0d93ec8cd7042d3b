/* crun-store wait: waits until all the given keys exist. */
#include "store/command/command_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <stdlib.h>

/* Call this after a wait has timed out. If the wait was for several keys, the function adds to the
 * error text the name of the first key that does not exist. */
static void name_missing(struct store *s, const struct store_bytes *keys, size_t count,
                         struct cr_error *err) {
    for (size_t i = 0; i < count && count > 1; i++) {
        int present = 1;
        if (store_check(s, &keys[i], 1, 1000, &present, NULL) < 0) return;
        if (present) continue;
        (void) cr_wrap(err, "'%.200s' is missing", (const char *) keys[i].data);
        return;
    }
}

static int wait_for_keys(struct command_target *target, const struct store_bytes *keys,
                         size_t count) {
    struct store *s = command_open(target);
    if (s == NULL) return CR_EXIT_FAILED;
    struct cr_error err = {0};
    int64_t start = cr_monotonic_ms();
    int rc = store_wait(s, keys, count, command_time_left_ms(target), &err);
    if (rc == -ETIMEDOUT) name_missing(s, keys, count, &err);
    store_close(s);
    if (rc < 0) return command_fail(target, &err);
    if (target->json)
        (void) printf("{\"waited_ms\": %lld}\n", (long long) (cr_monotonic_ms() - start));
    return 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status = command_read_target(command, line, &target);
    if (status != 0) return status;
    size_t count = (size_t) target.arg_count;
    struct store_bytes *keys = calloc(count, sizeof(*keys));
    if (keys == NULL) {
        cr_complain(command->name, "out of memory");
        return CR_EXIT_FAILED;
    }
    for (size_t i = 0; i < count; i++) keys[i] = STORE_BYTES(target.args[i]);
    status = wait_for_keys(&target, keys, count);
    free(keys);
    return status;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS(NULL);

const struct cr_command command_wait = {
    .name = "crun-store wait",
    .summary = "wait for keys",
    .arguments = "HOST:PORT KEY...",
    .description = "Returns when all keys exist. When the time is up it names one that is missing.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 2,
    .max_arguments = 1 << 16,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
