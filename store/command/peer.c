/* What the commands that talk to a store share: the command line, connecting, printing bytes. */
#include "store/command/command.h"

#include "base/clock.h"
#include "base/parse.h"

#include <string.h>

#define CONNECT_MS    3000 /* unless --timeout says otherwise: a server may just be starting */
#define TIMEOUT_S_MAX 1e9

/* ---- the command line ---- */

static void print_help(const struct command_shape *shape) {
    (void) printf("usage: crun-store %s [--json] [--timeout SECONDS] HOST:PORT%s%s\n\n%s\n\n",
                  shape->name, shape->args[0] != '\0' ? " " : "", shape->args, shape->help);
    (void) printf("  --json             one line of JSON on stdout, for scripts\n"
                  "  --timeout SECONDS  give up after so long (default: ");
    if (shape->default_timeout_ms == CR_FOREVER) {
        (void) printf("never)\n");
    } else {
        (void) printf("%g)\n", (double) shape->default_timeout_ms / 1000);
    }
    (void) printf(
        "\nThe store may be crun's or torch's of any release. Exit status: 0, 1 (not done, "
        "the\nreason is on stderr), 2 (the line cannot be understood).\n");
}

static int parse_timeout(struct command_line *line, const char *text) {
    const char *name = line->shape->name;
    double seconds;
    if (text == NULL) return command_usage_error(name, "option '--timeout' needs a value");
    if (cr_parse_double(text, &seconds) < 0 || seconds < 0 || seconds > TIMEOUT_S_MAX) {
        return command_usage_error(name, "cannot use '%s' for --timeout: give seconds, such as 2.5",
                                   text);
    }
    line->timeout_ms = (int64_t) (seconds * 1000);
    line->is_limited = line->timeout_ms > 0;
    return 0;
}

/* One option at argv[*i]; 0, or COMMAND_USAGE after printing. */
static int parse_option(struct command_line *line, char **argv, int *i) {
    const char *name = line->shape->name;
    if (strcmp(argv[*i], "--json") == 0) {
        line->json = 1;
        return 0;
    }
    if (strcmp(argv[*i], "--timeout") == 0) {
        *i += 1;
        return parse_timeout(line, argv[*i]);
    }
    if (strncmp(argv[*i], "--timeout=", 10) == 0) return parse_timeout(line, argv[*i] + 10);
    return command_usage_error(name, "unknown option '%s'", argv[*i]);
}

static int parse_endpoint(struct command_line *line, const char *text) {
    struct cr_error err = {0};
    if (cr_endpoint_parse(text, 0, &line->endpoint, &err) < 0)
        return command_usage_error(line->shape->name, "%s", err.text);
    if (line->endpoint.port == 0)
        return command_usage_error(line->shape->name, "no port in '%s': write HOST:PORT", text);
    return 0;
}

/* Options end at "--" or at the first key, since keys may begin with anything. */
static int parse_words(struct command_line *line, int argc, char **argv) {
    int i = 1, rc = 0;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0 && rc == 0; i++) {
        rc = parse_option(line, argv, &i);
    }
    if (rc != 0) return rc;
    if (i >= argc) return command_usage_error(line->shape->name, "no HOST:PORT given");
    rc = parse_endpoint(line, argv[i++]);
    for (; i < argc && strncmp(argv[i], "--", 2) == 0 && rc == 0; i++) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        rc = parse_option(line, argv, &i);
    }
    line->args = argv + i;
    line->arg_count = argc - i;
    return rc;
}

int command_parse(const struct command_shape *shape, int argc, char **argv,
                  struct command_line *line, int *status) {
    *line = (struct command_line){
        .shape = shape, .timeout_ms = shape->default_timeout_ms, .deadline_ms = CR_FOREVER};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help(shape);
        *status = 0;
        return 0;
    }
    *status = parse_words(line, argc, argv);
    if (*status != 0) return 0;
    if (line->arg_count < shape->min_args) {
        *status = command_usage_error(shape->name, "give %s behind HOST:PORT", shape->args);
    } else if (line->arg_count > shape->max_args) {
        *status = command_usage_error(shape->name, "'%s' is one word too many",
                                      line->args[shape->max_args]);
    }
    return *status == 0;
}

/* ---- talking ---- */

struct store *command_open(struct command_line *line) {
    struct cr_error err = {0};
    struct store_client *c = NULL;
    int64_t timeout_ms = line->is_limited ? line->timeout_ms : CONNECT_MS;
    if (line->is_limited) line->deadline_ms = cr_deadline_ms(timeout_ms);
    if (store_client_connect(line->endpoint.host, line->endpoint.port, STORE_PROTOCOL_PROBE,
                             timeout_ms, &c, &err) < 0) {
        (void) command_fail(line, &err);
        return NULL;
    }
    return store_client_store(c);
}

int64_t command_time_left_ms(const struct command_line *line) {
    int64_t left_ms = cr_time_left_ms(line->deadline_ms);
    return left_ms == CR_FOREVER ? line->timeout_ms : left_ms;
}

const char *command_where(const struct command_line *line, char out[COMMAND_WHERE_MAX]) {
    const char *host = line->endpoint.host;
    int is_v6 = strchr(host, ':') != NULL;
    (void) snprintf(out, COMMAND_WHERE_MAX, is_v6 ? "[%s]:%u" : "%s:%u", host, line->endpoint.port);
    return out;
}

struct store *command_begin(const struct command_shape *shape, int argc, char **argv,
                            struct command_line *line, int *status) {
    if (!command_parse(shape, argc, argv, line, status)) return NULL;
    *status = COMMAND_FAILED;
    return command_open(line);
}
