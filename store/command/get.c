/* crun-store get: the value of a key, as it is. */
#include "store/command/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct command_shape shape = {
    "get", "KEY", "Prints the value of a key and a newline. With --timeout it waits for the key.",
    1,     1,     0};

static void print_value(const struct command_line *line, struct store_bytes value) {
    if (!line->json) {
        (void) fwrite(value.data, 1, value.len, stdout);
        (void) putchar('\n');
        return;
    }
    (void) printf("{\"key\": ");
    command_put_json(stdout, STORE_BYTES(line->args[0]));
    (void) printf(", \"value\": ");
    command_put_json(stdout, value);
    (void) printf("}\n");
}

int command_get(int argc, char **argv) {
    struct command_line line;
    int status;
    struct store *s = command_begin(&shape, argc, argv, &line, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    void *value = NULL;
    size_t len = 0;
    int rc =
        store_get(s, STORE_BYTES(line.args[0]), command_time_left_ms(&line), &value, &len, &err);
    if (rc == -ETIMEDOUT && line.timeout_ms == 0)
        (void) cr_fail(&err, rc, "no key '%.400s'; 'crun-store keys' lists them", line.args[0]);
    if (rc == 0) print_value(&line, (struct store_bytes){value, len});
    free(value);
    store_close(s);
    return rc < 0 ? command_fail(&line, &err) : 0;
}
