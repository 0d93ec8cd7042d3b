/* crun-store delete: takes keys out of a store. */
#include "store/command/command.h"

#include <string.h>

static const struct command_shape shape = {
    "delete", "KEY...", "Deletes keys. The exit status is 1 if one of them was not there.",
    1,        1 << 16,  10000};

int command_delete(int argc, char **argv) {
    struct command_line line;
    int status;
    struct store *s = command_begin(&shape, argc, argv, &line, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    int count = 0, rc = 0;
    for (int i = 0; i < line.arg_count && rc == 0; i++) {
        int deleted = 0;
        rc =
            store_delete(s, STORE_BYTES(line.args[i]), command_time_left_ms(&line), &deleted, &err);
        count += deleted;
        if (rc == 0 && !deleted) command_complain("delete", "no key '%.400s'", line.args[i]);
    }
    store_close(s);
    if (rc < 0) return command_fail(&line, &err);
    if (line.json) (void) printf("{\"deleted\": %d}\n", count);
    return count == line.arg_count ? 0 : COMMAND_FAILED;
}
