/* Parses the lines of the timer pipe: implements timer_request.h. */
#include "agent/watchdog/timer_request.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Largest time of expiration, in s since 1970. A timer with a later time never expires, because in
 * ms such a time might not fit into an int64_t. */
#define SECONDS_MAX 9e12

static bool parse_pid(const json_t *value, pid_t *out) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number <= 1 || number > INT_MAX) return false;
    *out = (pid_t) number;
    return true;
}

static bool parse_signal(const json_t *value, int *out) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number >= NSIG) return false;
    *out = number > 0 ? (int) number : 0;
    return true;
}

static bool parse_time(const json_t *value, struct timer_request *out) {
    double seconds = json_number_value(value);
    if (!json_is_number(value)) return false;
    out->cancels = seconds < 0;
    if (out->cancels) return true;
    out->expires_ms = seconds > SECONDS_MAX ? INT64_MAX : (int64_t) (seconds * 1000);
    return true;
}

int timer_request_parse(struct timer_request *out, const char *line, size_t len) {
    json_error_t error;
    struct timer_request r = {0};
    json_auto_t *root = json_loadb(line, len, 0, &error);
    const json_t *scope = json_object_get(root, "scope_id");
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory) return -ENOMEM;
    if (!parse_pid(json_object_get(root, "pid"), &r.pid) || !json_is_string(scope) ||
        !parse_time(json_object_get(root, "expiration_time"), &r) ||
        !parse_signal(json_object_get(root, "signal"), &r.signum)) {
        return -EINVAL;
    }
    r.scope = strdup(json_string_value(scope));
    if (r.scope == NULL) return -ENOMEM;
    *out = r;
    return 0;
}

void timer_request_done(struct timer_request *r) {
    free(r->scope);
    r->scope = NULL;
}
