/* crun-store set: a value for a key, from the line or from stdin. */
#include "store/command/command.h"

#include "base/buffer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const struct command_shape shape = {
    "set",
    "KEY VALUE",
    "Sets a key. The value '-' is read from stdin, to its end. Returns when the store has it.",
    2,
    2,
    10000};

static int read_stdin(struct cr_buffer *b, struct cr_error *err) {
    for (;;) {
        if (b->len > STORE_VALUE_MAX)
            return cr_fail(err, -EMSGSIZE, "the value is longer than %zu bytes", STORE_VALUE_MAX);
        if (cr_buffer_reserve(b, 65536) < 0) return cr_fail(err, -ENOMEM, "out of memory");
        ssize_t n = read(STDIN_FILENO, b->data + b->len, 65536);
        if (n == 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cr_fail_errno(err, "read the value from stdin");
        b->len += (size_t) n;
    }
}

/* SET has no reply; counting the keys behind it has, and so tells that the value arrived. */
static int set_and_confirm(struct store *s, const struct command_line *line,
                           struct store_bytes value, struct cr_error *err) {
    int64_t keys;
    int rc = store_set(s, STORE_BYTES(line->args[0]), value, command_time_left_ms(line), err);
    return rc < 0 ? rc : store_num_keys(s, command_time_left_ms(line), &keys, err);
}

int command_set(int argc, char **argv) {
    struct command_line line;
    int status;
    if (!command_parse(&shape, argc, argv, &line, &status)) return status;
    struct cr_error err = {0};
    struct cr_buffer input = {0};
    struct store_bytes value = STORE_BYTES(line.args[1]);
    if (strcmp(line.args[1], "-") == 0) {
        if (read_stdin(&input, &err) < 0) {
            cr_buffer_done(&input);
            return command_fail(&line, &err);
        }
        value = (struct store_bytes){input.data, input.len};
    }
    struct store *s = command_open(&line);
    int rc = s == NULL ? -EIO : set_and_confirm(s, &line, value, &err);
    if (s != NULL && rc < 0) (void) command_fail(&line, &err);
    if (rc == 0 && line.json) (void) printf("{\"bytes\": %zu}\n", value.len);
    store_close(s);
    cr_buffer_done(&input);
    return rc < 0 ? COMMAND_FAILED : 0;
}
