/* crun-store wait: returns when all keys exist. */
#include "store/command/command.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct command_shape shape = {"wait", "KEY...", "Returns when all the keys exist.",
                                           1,      1 << 16,  CR_FOREVER};

/* Names the first key that is still missing, which the wait as a whole cannot. */
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

int command_wait(int argc, char **argv) {
    struct command_line line;
    int status;
    if (!command_parse(&shape, argc, argv, &line, &status)) return status;
    size_t count = (size_t) line.arg_count;
    struct cr_error err = {0};
    struct store_bytes *keys = calloc(count, sizeof(*keys));
    if (keys == NULL) {
        (void) cr_fail(&err, -ENOMEM, "no memory left");
        return command_fail(&line, &err);
    }
    for (size_t i = 0; i < count; i++) keys[i] = STORE_BYTES(line.args[i]);
    struct store *s = command_open(&line);
    int64_t start = cr_monotonic_ms();
    int rc = s == NULL ? -EIO : store_wait(s, keys, count, command_time_left_ms(&line), &err);
    if (rc == -ETIMEDOUT) name_missing(s, keys, count, &err);
    if (s != NULL && rc < 0) (void) command_fail(&line, &err);
    if (rc == 0 && line.json)
        (void) printf("{\"waited_ms\": %lld}\n", (long long) (cr_monotonic_ms() - start));
    store_close(s);
    free(keys);
    return rc < 0 ? COMMAND_FAILED : 0;
}
