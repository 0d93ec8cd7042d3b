/* crun-store add: counts a key up or down, and says where it is. */
#include "store/command/command.h"

#include "base/parse.h"

#include <string.h>

static const struct command_shape shape = {
    "add",
    "KEY NUMBER",
    "Adds to a counter and prints the sum. Adding 0 reads it (and creates it).",
    2,
    2,
    10000};

int command_add(int argc, char **argv) {
    struct command_line line;
    int status;
    if (!command_parse(&shape, argc, argv, &line, &status)) return status;
    int64_t delta, total = 0;
    if (cr_parse_i64(line.args[1], INT64_MIN, INT64_MAX, &delta) < 0)
        return command_usage_error("add", "'%.100s' is not a whole number of 64 bits",
                                   line.args[1]);
    struct store *s = command_open(&line);
    if (s == NULL) return COMMAND_FAILED;
    struct cr_error err = {0};
    int rc =
        store_add(s, STORE_BYTES(line.args[0]), delta, command_time_left_ms(&line), &total, &err);
    store_close(s);
    if (rc < 0) return command_fail(&line, &err);
    (void) printf(line.json ? "{\"total\": %lld}\n" : "%lld\n", (long long) total);
    return 0;
}
