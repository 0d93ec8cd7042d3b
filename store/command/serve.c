/* crun-store serve: the server alone, until SIGTERM or SIGINT.
 *
 * The first line on stdout is the address. Under systemd the same moment is reported as READY. */
#include "store/command/command.h"
#include "store/store.h"

#include "base/cleanup.h"
#include "base/daemon.h"
#include "base/log.h"
#include "base/parse.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct serve {
    const char *host;
    int64_t port;
    int64_t max_memory, max_clients, max_key, max_value, max_list, max_client_buffer;
};

/* ---- the command line ---- */

enum kind { TEXT, NUMBER, SIZE };

static const struct option {
    const char *name, *value, *help;
    enum kind kind;
    size_t offset;
    int64_t min, max;
} options[] = {
    {"--host", "HOST", "name or address to listen on (default: all interfaces)", TEXT,
     offsetof(struct serve, host), 0, 0},
    {"--port", "PORT", "port; 0, the default, takes any free one", NUMBER,
     offsetof(struct serve, port), 0, 65535},
    {"--max-memory", "SIZE", "bytes of keys, values and buffers (default: half of the memory)",
     SIZE, offsetof(struct serve, max_memory), 1, INT64_MAX},
    {"--max-clients", "N", "connections at a time (default: what descriptors allow)", NUMBER,
     offsetof(struct serve, max_clients), 0, INT32_MAX},
    {"--max-key", "SIZE", "bytes of a key (default: 64K)", SIZE, offsetof(struct serve, max_key),
     1, 64 << 20},
    {"--max-value", "SIZE", "bytes of a value in one request (default: 64M)", SIZE,
     offsetof(struct serve, max_value), 1, 1 << 30},
    {"--max-list", "N", "keys in one request (default: 131072)", NUMBER,
     offsetof(struct serve, max_list), 1, 1 << 24},
    {"--max-client-buffer", "SIZE",
     "one request, and unread replies, of one client (default: 256M)", SIZE,
     offsetof(struct serve, max_client_buffer), 1, INT32_MAX},
};

static void print_help(void) {
    (void) printf("usage: crun-store serve [options]\n\n"
                  "Serves a store that torch's TCPStore clients of any release can use. The first\n"
                  "line on stdout is the address; SIGTERM or SIGINT ends it.\n\n");
    for (size_t i = 0; i < CR_ARRAY_LEN(options); i++) {
        char left[40];
        (void) snprintf(left, sizeof(left), "%s %s", options[i].name, options[i].value);
        (void) printf("  %-26s %s\n", left, options[i].help);
    }
    (void) printf("\nSIZE may end in K, M or G. A client that exceeds a limit is disconnected.\n");
}

/* "64M" and the like. */
static int parse_size(const char *text, int64_t max, int64_t *out) {
    char digits[24];
    size_t len = strlen(text);
    if (len == 0 || len >= sizeof(digits)) return -EINVAL;
    memcpy(digits, text, len + 1);
    const char *const units = "KMG";
    const char *unit = strchr(units, digits[len - 1]);
    int shift = unit == NULL ? 0 : 10 * (int) (unit - units + 1);
    if (shift > 0) digits[len - 1] = '\0';
    int rc = cr_parse_i64(digits, 1, max >> shift, out);
    if (rc == 0) *out <<= shift;
    return rc;
}

static int set_option(const struct option *o, const char *value, struct serve *serve) {
    char *field = (char *) serve + o->offset;
    if (o->kind == TEXT) {
        *(const char **) (void *) field = value;
        return 0;
    }
    int64_t *number = (int64_t *) (void *) field;
    int rc = o->kind == SIZE ? parse_size(value, o->max, number)
                             : cr_parse_i64(value, o->min, o->max, number);
    if (rc == 0) return 0;
    return command_usage_error("serve", "cannot use '%.100s' for %s: give a %s from %lld to %lld",
                               value, o->name,
                               o->kind == SIZE ? "size such as 512M," : "whole number",
                               (long long) o->min, (long long) o->max);
}

static const struct option *find_option(const char *arg, size_t len) {
    for (size_t i = 0; i < CR_ARRAY_LEN(options); i++) {
        if (strlen(options[i].name) == len && strncmp(options[i].name, arg, len) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* 0, or the exit status to leave with; *help is set when that is all there is to do. */
static int parse(int argc, char **argv, struct serve *serve, int *help) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = 1;
            return 0;
        }
        const char *equals = strchr(argv[i], '=');
        size_t len = equals == NULL ? strlen(argv[i]) : (size_t) (equals - argv[i]);
        const struct option *o = find_option(argv[i], len);
        if (o == NULL) return command_usage_error("serve", "unknown option '%s'", argv[i]);
        const char *value = equals == NULL ? argv[++i] : equals + 1;
        if (value == NULL)
            return command_usage_error("serve", "option '%s' needs a value", o->name);
        int rc = set_option(o, value, serve);
        if (rc != 0) return rc;
    }
    return 0;
}

/* ---- running ---- */

/* The address on stdout, then nothing but serving. */
static int announce_and_serve(struct store_server *server, const struct store_space *space,
                              const sigset_t *ends) {
    if (printf("%s\n", store_space_address(space)) < 0 || fflush(stdout) != 0) {
        cr_log_error("cannot write the address to stdout: %s", strerror(errno));
        return 1;
    }
    cr_notify("READY=1");
    cr_log_never_wait(); /* clients wait for us */
    cr_info("store %s, pid %d, serves on %s", CRUN_VERSION, (int) getpid(),
            store_space_address(space));
    CR_AUTO_FD int fd = signalfd(-1, ends, SFD_CLOEXEC);
    int rc = fd < 0 ? -errno : store_server_run(server, fd);
    struct signalfd_siginfo ended;
    if (rc == 0 && read(fd, &ended, sizeof(ended)) < 0) rc = -errno;
    if (rc < 0) {
        cr_log_error("cannot wait for signals: %s", strerror(-rc));
        return 1;
    }
    int signal_number = (int) ended.ssi_signo;
    cr_info("store ends on signal %d", signal_number);
    cr_notify("STOPPING=1");
    return 0;
}

static int run(const struct serve *serve, const sigset_t *ends) {
    const struct store_server_options server_options = {
        .no_thread = 1,
        .key_max = (size_t) serve->max_key,
        .value_max = (size_t) serve->max_value,
        .list_max = (size_t) serve->max_list,
        .memory_max = (size_t) serve->max_memory,
        .client_max = (size_t) serve->max_clients,
        .client_buffer_max = (size_t) serve->max_client_buffer,
    };
    struct cr_error err = {0};
    struct store_server *server = NULL;
    struct store_space *space;
    uint16_t port;
    int rc = store_server_start(&server_options, &server, &err);
    if (rc == 0)
        rc = store_server_open(server, serve->host, (uint16_t) serve->port, &space, &port, &err);
    if (rc < 0) {
        const char *remedy =
            err.code == -EADDRINUSE ? "; give another --port, or 0 for any free one" : "";
        (void) fprintf(stderr, "crun-store serve: %s%s\n", err.text, remedy);
    } else {
        rc = announce_and_serve(server, space, ends);
    }
    store_server_stop(server);
    (void) pthread_sigmask(SIG_UNBLOCK, ends, NULL); /* nobody has to wait for a full stderr */
    cr_log_flush();
    return rc == 0 ? 0 : 1;
}

int command_serve(int argc, char **argv) {
    struct serve serve = {.host = ""};
    int help = 0;
    int rc = parse(argc, argv, &serve, &help);
    if (rc != 0) return rc;
    if (help) {
        print_help();
        return 0;
    }
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    sigset_t ends;
    (void) sigemptyset(&ends);
    (void) sigaddset(&ends, SIGTERM);
    (void) sigaddset(&ends, SIGINT);
    (void) pthread_sigmask(SIG_BLOCK, &ends, NULL);
    return run(&serve, &ends);
}
