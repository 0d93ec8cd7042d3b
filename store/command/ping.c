/* crun-store ping: is it there, what does it speak, how far away is it? */
#include "store/command/command.h"

#include "base/clock.h"

static const struct command_shape shape = {
    "ping",
    "",
    "Connects, and times requests: the server's protocol, and the shortest and longest "
    "of 5\nround trips.",
    0,
    0,
    5000};

#define ROUNDS 5

int command_ping(int argc, char **argv) {
    struct command_line line;
    int status;
    struct store *s = command_begin(&shape, argc, argv, &line, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    int64_t keys, best = INT64_MAX, worst = 0;
    int rc = 0;
    for (int i = 0; i < ROUNDS && rc == 0; i++) {
        int64_t start = cr_monotonic_ns();
        rc = store_num_keys(s, command_time_left_ms(&line), &keys, &err);
        int64_t took = cr_monotonic_ns() - start;
        best = took < best ? took : best;
        worst = took > worst ? took : worst;
    }
    const char *speaks = store_client_protocol((struct store_client *) (void *) s);
    double min_ms = (double) best / 1e6, max_ms = (double) worst / 1e6;
    char where[COMMAND_WHERE_MAX];
    if (rc == 0 && line.json) {
        (void) printf("{\"host\": \"%s\", \"port\": %u, \"protocol\": \"%s\", \"min_ms\": %.3f, "
                      "\"max_ms\": %.3f}\n",
                      line.endpoint.host, line.endpoint.port, speaks, min_ms, max_ms);
    } else if (rc == 0) {
        (void) printf("%s: %s, %.3f to %.3f ms\n", command_where(&line, where), speaks, min_ms,
                      max_ms);
    }
    store_close(s);
    return rc < 0 ? command_fail(&line, &err) : 0;
}
