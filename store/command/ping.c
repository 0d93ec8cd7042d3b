/* crun-store ping: prints which protocol a server speaks, and how long round trips to it take. */
#include "store/command/command_internal.h"

#include "base/time/clock.h"

#define ROUNDS 5

/* Measures the shortest and the longest of ROUNDS round trips. Returns 0 or a negative errno and
 * sets err. */
static int time_rounds(struct store *s, const struct command_target *target, double *min_ms,
                       double *max_ms, struct cr_error *err) {
    int64_t keys, best = INT64_MAX, worst = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = cr_monotonic_ns();
        int rc = store_num_keys(s, command_time_left_ms(target), &keys, err);
        if (rc < 0) return rc;
        int64_t took = cr_monotonic_ns() - start;
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
    }
    *min_ms = (double) best / 1e6;
    *max_ms = (double) worst / 1e6;
    return 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status;
    struct store *s = command_begin(command, line, &target, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    double min_ms, max_ms;
    int rc = time_rounds(s, &target, &min_ms, &max_ms, &err);
    const char *protocol = store_client_protocol((struct store_client *) (void *) s);
    char where[COMMAND_WHERE_MAX];
    if (rc == 0 && target.json) {
        (void) printf("{\"host\": \"%s\", \"port\": %u, \"protocol\": \"%s\", \"min_ms\": %.3f, "
                      "\"max_ms\": %.3f}\n",
                      target.endpoint.host, target.endpoint.port, protocol, min_ms, max_ms);
    } else if (rc == 0) {
        (void) printf("%s: %s, %.3f to %.3f ms\n", command_where(&target, where), protocol, min_ms,
                      max_ms);
    }
    store_close(s);
    return rc < 0 ? command_fail(&target, &err) : 0;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("5");

const struct cr_command command_ping = {
    .name = "crun-store ping",
    .summary = "show which protocol a server speaks, and its round trip time",
    .arguments = "HOST:PORT",
    .description = "Connects and times requests. Prints the server's protocol, and the shortest "
                   "and the longest of 5 round trips.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
