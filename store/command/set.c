/* crun-store set: sets a key to a value from the command line or from stdin. */
#include "store/command/command_internal.h"

#include "base/buffer.h"

#include <errno.h>
#include <unistd.h>

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

/* Sets the key and waits until the server has carried out the SET. SET has no reply. Therefore the
 * function then requests the number of keys: the reply to this request proves that the server has
 * carried out the SET. */
static int set_and_confirm(struct store *s, const struct command_target *target,
                           struct store_bytes value, struct cr_error *err) {
    int64_t keys;
    struct store_bytes key = STORE_BYTES(target->args[0]);
    int rc = store_set(s, key, value, command_time_left_ms(target), err);
    return rc < 0 ? rc : store_num_keys(s, command_time_left_ms(target), &keys, err);
}

static int set(struct command_target *target, struct store_bytes value) {
    struct store *s = command_open(target);
    if (s == NULL) return CR_EXIT_FAILED;
    struct cr_error err = {0};
    int rc = set_and_confirm(s, target, value, &err);
    store_close(s);
    if (rc < 0) return command_fail(target, &err);
    if (target->json) (void) printf("{\"bytes\": %zu}\n", value.len);
    return 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status = command_read_target(command, line, &target);
    if (status != 0) return status;
    if (strcmp(target.args[1], "-") != 0) return set(&target, STORE_BYTES(target.args[1]));
    struct cr_error err = {0};
    struct cr_buffer input = {0};
    if (read_stdin(&input, &err) < 0) {
        status = command_fail(&target, &err);
    } else {
        status = set(&target, (struct store_bytes){input.data, input.len});
    }
    cr_buffer_done(&input);
    return status;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("10");

const struct cr_command command_set = {
    .name = "crun-store set",
    .summary = "set a key",
    .arguments = "HOST:PORT KEY VALUE",
    .description = "Sets a key and returns when the store has the value. The value '-' is read "
                   "from stdin, to its end.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 3,
    .max_arguments = 3,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
