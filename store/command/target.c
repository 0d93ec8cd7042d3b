/* Parses HOST:PORT and the options that every command but serve has, and connects to that store. */
#include "store/command/command_internal.h"

#include "base/text/parse.h"
#include "base/time/clock.h"

#include <string.h>

/* time limit in ms of connecting if --timeout is not given or 0; the client retries in this time,
 * because the server may be just about to start */
#define CONNECT_MS    3000
#define TIMEOUT_S_MAX 1e9

/* ---- the command line ---- */

static int read_timeout(struct command_target *target, const struct cr_command_line *line) {
    const char *text = line->value[TARGET_TIMEOUT];
    double seconds;
    target->timeout_ms = CR_FOREVER;
    if (text == NULL) return 0;
    if (cr_parse_double(text, &seconds) < 0 || seconds < 0 || seconds > TIMEOUT_S_MAX)
        return cr_complain_usage(target->command->name,
                                 "cannot use '%s' for --timeout: give seconds, such as 2.5", text);
    target->timeout_ms = (int64_t) (seconds * 1000);
    target->is_limited = line->source[TARGET_TIMEOUT] == CR_FROM_LINE && target->timeout_ms > 0;
    return 0;
}

static int read_endpoint(struct command_target *target, const char *text) {
    struct cr_error err = {0};
    if (cr_endpoint_parse(text, 0, &target->endpoint, &err) < 0)
        return cr_complain_usage(target->command->name, "%s", err.text);
    if (target->endpoint.port == 0)
        return cr_complain_usage(target->command->name, "no port in '%s': write HOST:PORT", text);
    return 0;
}

int command_read_target(const struct cr_command *command, const struct cr_command_line *line,
                        struct command_target *target) {
    *target = (struct command_target){.command = command,
                                      .deadline_ms = CR_FOREVER,
                                      .json = line->value[TARGET_JSON] != NULL,
                                      .args = line->arguments + 1,
                                      .arg_count = line->argument_count - 1};
    int status = read_timeout(target, line);
    return status != 0 ? status : read_endpoint(target, line->arguments[0]);
}

/* ---- connecting ---- */

struct store *command_open(struct command_target *target) {
    struct cr_error err = {0};
    struct store_client *c = NULL;
    int64_t timeout_ms = target->is_limited ? target->timeout_ms : CONNECT_MS;
    if (target->is_limited) target->deadline_ms = cr_deadline_ms(timeout_ms);
    if (store_client_connect(target->endpoint.host, target->endpoint.port, STORE_PROTOCOL_PROBE,
                             timeout_ms, &c, &err) < 0) {
        (void) command_fail(target, &err);
        return NULL;
    }
    return store_client_store(c);
}

struct store *command_begin(const struct cr_command *command, const struct cr_command_line *line,
                            struct command_target *target, int *status) {
    *status = command_read_target(command, line, target);
    if (*status != 0) return NULL;
    *status = CR_EXIT_FAILED;
    return command_open(target);
}

int64_t command_time_left_ms(const struct command_target *target) {
    int64_t left_ms = cr_time_left_ms(target->deadline_ms);
    return left_ms == CR_FOREVER ? target->timeout_ms : left_ms;
}

const char *command_where(const struct command_target *target, char out[COMMAND_WHERE_MAX]) {
    const char *host = target->endpoint.host;
    bool is_v6 = strchr(host, ':') != NULL;
    (void) snprintf(out, COMMAND_WHERE_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host,
                    target->endpoint.port);
    return out;
}
