/* crun-store stat: prints the statistics of a store, and which clients wait for which keys, and for
 * how long. Only crun's servers have these statistics. */
#include "store/command/command_internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- showing ---- */

static long long number(const json_t *stat, const char *name) {
    return (long long) json_integer_value(json_object_get(stat, name));
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "?";
}

static const char *human_size(char out[32], long long bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double) bytes;
    size_t unit = 0;
    for (; n >= 1024 && unit < 4; unit++) n /= 1024;
    (void) snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return out;
}

static const char *human_time(char out[32], long long ms) {
    long long s = ms / 1000;
    if (s < 60) {
        (void) snprintf(out, 32, "%.1f s", (double) ms / 1000);
    } else if (s < 3600) {
        (void) snprintf(out, 32, "%lld min %02lld s", s / 60, s % 60);
    } else {
        (void) snprintf(out, 32, "%lld h %02lld min", s / 3600, s / 60 % 60);
    }
    return out;
}

/* Prints a key of the JSON text. The server has written each byte of the key as one code point
 * (store/server/stat.c). This function turns each code point back into a byte, so a key in UTF-8 is
 * printed as it was set. */
static void print_key(const json_t *key) {
    const unsigned char *at = (const unsigned char *) json_string_value(key);
    size_t len = json_string_length(key), n = 0;
    unsigned char *bytes = malloc(len + 1);
    if (bytes == NULL) return;
    for (size_t i = 0; i < len; i++) {
        bytes[n] = at[i];
        if (at[i] >= 0xc2 && at[i] <= 0xc3 && i + 1 < len) {
            bytes[n] = (unsigned char) ((at[i] & 3) << 6 | (at[i + 1] & 0x3f));
            i++;
        }
        n++;
    }
    command_put_text(stdout, (struct store_bytes){bytes, n});
    free(bytes);
}

static void print_wait(const json_t *wait) {
    char since[32];
    const json_t *keys = json_object_get(wait, "keys");
    long long missing = number(wait, "missing");
    (void) printf("  %12s  %-24s %-8s", human_time(since, number(wait, "for_ms")),
                  text_of(wait, "peer"), text_of(wait, "kind"));
    size_t shown = json_array_size(keys);
    for (size_t i = 0; i < shown; i++) {
        (void) printf(" ");
        print_key(json_array_get(keys, i));
    }
    if (missing > (long long) shown) (void) printf(" and %lld more", missing - (long long) shown);
    (void) printf("\n");
}

static void print_waits(const json_t *stat) {
    const json_t *waiting = json_object_get(stat, "waiting");
    long long all = number(stat, "waiting_clients");
    if (all == 0) {
        (void) printf("waiting    nobody\n");
        return;
    }
    (void) printf("waiting    %lld; since, who, how, for which missing keys:\n", all);
    for (size_t i = 0; i < json_array_size(waiting); i++) print_wait(json_array_get(waiting, i));
    if (all > (long long) json_array_size(waiting))
        (void) printf("  and %lld more\n", all - (long long) json_array_size(waiting));
}

static void print_limit(const char *unit, const char *limit) {
    (void) printf(limit[0] != '\0' ? " of %s%s\n" : "\n", limit, unit);
}

static void print_stat(const json_t *stat) {
    char a[32], b[32], c[32], limit[32] = "";
    (void) printf("store      %s, version %s, pid %lld, up %s\n", text_of(stat, "address"),
                  text_of(stat, "version"), number(stat, "pid"),
                  human_time(a, number(stat, "uptime_ms")));
    if (number(stat, "clients_max") > 0)
        (void) snprintf(limit, sizeof(limit), "%lld", number(stat, "clients_max"));
    (void) printf("clients    %lld", number(stat, "clients"));
    print_limit("", limit);
    (void) printf("keys       %lld (%s of keys, %s of values), queues %lld\n", number(stat, "keys"),
                  human_size(a, number(stat, "key_bytes")),
                  human_size(b, number(stat, "value_bytes")), number(stat, "queues"));
    (void) printf("memory     %s", human_size(a, number(stat, "memory")));
    limit[0] = '\0';
    if (number(stat, "memory_max") > 0) (void) human_size(limit, number(stat, "memory_max"));
    print_limit("", limit);
    (void) printf("operations %lld, %.1f a second; %s in, %s out\n", number(stat, "operations"),
                  json_number_value(json_object_get(stat, "operations_per_second")),
                  human_size(b, number(stat, "bytes_in")),
                  human_size(c, number(stat, "bytes_out")));
    print_waits(stat);
}

static int show(const struct command_target *target, const char *text, size_t len) {
    struct cr_error err = {0};
    json_error_t why;
    json_t *stat = json_loadb(text, len, JSON_ALLOW_NUL, &why);
    if (stat == NULL) {
        /* jansson reports a failed allocation as if the text were wrong, so the message names both
         * possible reasons */
        (void) cr_fail(&err, -EPROTO,
                       "cannot read the store's answer: %s; it is not JSON, or memory is short",
                       why.text[0] != '\0' ? why.text : "no reason known");
        return command_fail(target, &err);
    }
    if (target->json) {
        (void) printf("%.*s\n", (int) len, text);
    } else {
        print_stat(stat);
    }
    json_decref(stat);
    return 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status = command_read_target(command, line, &target);
    if (status != 0) return status;
    struct cr_error err = {0};
    char *text = NULL;
    size_t len = 0;
    if (store_client_stat(target.endpoint.host, target.endpoint.port, target.timeout_ms, &text,
                          &len, &err) < 0)
        return command_fail(&target, &err);
    status = show(&target, text, len);
    free(text);
    return status;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("5");

const struct cr_command command_stat = {
    .name = "crun-store stat",
    .summary = "show clients, keys, traffic, and which clients wait for which keys",
    .arguments = "HOST:PORT",
    .description =
        "Shows clients, keys, bytes and operations of a store, and which clients wait for which "
        "keys since when, the longest wait first. Only crun's own stores can be asked.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
