/* crun-store serve: runs a store until SIGTERM or SIGINT.
 *
 * The first line on stdout is the address, so that a script that passed --port 0 can read which
 * port is in use. At the same moment systemd is notified that the service is ready. */
#include "store/command/command_internal.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "base/process/daemon.h"
#include "base/text/parse.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- the command line ---- */

enum {
    HOST,
    PORT,
    PORT_RANGE,
    MAX_MEMORY,
    MAX_CLIENTS,
    MAX_KEY,
    MAX_VALUE,
    MAX_LIST,
    MAX_CLIENT_BUFFER,
    HELP,
    OPTION_COUNT
};

static const struct cr_option options[OPTION_COUNT] = {
    [HOST] = {.name = "host",
              .value_name = "HOST",
              .default_value = "",
              .help = "name or address to listen on (default: all interfaces)"},
    [PORT] = {.name = "port",
              .value_name = "PORT",
              .default_value = "0",
              .help = "port; 0 takes any free one"},
    [PORT_RANGE] = {.name = "port-range",
                    .value_name = "LO-HI",
                    .help = "ports among which --port=0 chooses (default: any free one)"},
    [MAX_MEMORY] = {.name = "max-memory",
                    .value_name = "SIZE",
                    .help = "bytes of keys, values and buffers (default: half of the memory "
                            "that the machine and the cgroup allow)"},
    [MAX_CLIENTS] = {.name = "max-clients",
                     .value_name = "N",
                     .help = "connections at a time (default: what descriptors allow)"},
    [MAX_KEY] = {.name = "max-key",
                 .value_name = "SIZE",
                 .default_value = "64K",
                 .help = "bytes of a key, torch's leading '/' not counted"},
    [MAX_VALUE] = {.name = "max-value",
                   .value_name = "SIZE",
                   .default_value = "64M",
                   .help = "bytes of a value in one request"},
    [MAX_LIST] = {.name = "max-list",
                  .value_name = "N",
                  .default_value = "131072",
                  .help = "keys in one request"},
    [MAX_CLIENT_BUFFER] = {.name = "max-client-buffer",
                           .value_name = "SIZE",
                           .default_value = "256M",
                           .help = "bytes of one request, one stored value, one reply, and of the "
                                   "replies that one client has not read"},
    [HELP] = CR_OPTION_HELP,
};

/* The options whose values are numbers, and their ranges. A SIZE may end in K, M or G. */
static const struct number {
    int option;
    bool is_size;
    int64_t min, max;
} numbers[] = {
    {PORT, false, 0, 65535},           {MAX_MEMORY, true, 1, INT64_MAX},
    {MAX_CLIENTS, false, 0, INT32_MAX}, {MAX_KEY, true, 1, 64 << 20},
    {MAX_VALUE, true, 1, 1 << 30},     {MAX_LIST, false, 1, 1 << 24},
    {MAX_CLIENT_BUFFER, true, 1, INT32_MAX},
};

static int parse_size(const char *text, int64_t max, int64_t *out) {
    static const char units[] = "KMG";
    char digits[24];
    size_t len = strlen(text);
    if (len == 0 || len >= sizeof(digits)) return -EINVAL;
    memcpy(digits, text, len + 1);
    const char *unit = strchr(units, digits[len - 1]);
    int shift = unit == NULL ? 0 : 10 * (int) (unit - units + 1);
    if (shift > 0) digits[len - 1] = '\0';
    int rc = cr_parse_i64(digits, 1, max >> shift, out);
    if (rc == 0) *out <<= shift;
    return rc;
}

/* Parses the value of an option whose value is a number into *out. Returns 0; on error prints the
 * reason and returns the exit status. */
static int read_number(const struct cr_command *command, const struct number *n, const char *text,
                       int64_t *out) {
    *out = 0; /* if the option was not given, *out stays 0, for which the server takes its
               * default */
    if (text == NULL) return 0;
    int rc = n->is_size ? parse_size(text, n->max, out) : cr_parse_i64(text, n->min, n->max, out);
    if (rc == 0) return 0;
    return cr_complain_usage(command->name,
                             "cannot use '%.100s' for --%s: give a %s from %lld to %lld", text,
                             options[n->option].name,
                             n->is_size ? "size such as 512M," : "whole number",
                             (long long) n->min, (long long) n->max);
}

/* ---- running ---- */

/* Prints the address and serves clients until one of the signals in `ends` arrives. Returns 0 or
 * CR_EXIT_FAILED. */
static int announce_and_serve(struct store_server *server, const struct store_space *space,
                              const sigset_t *ends) {
    if (printf("%s\n", store_space_address(space)) < 0 || fflush(stdout) != 0) {
        cr_log_error("cannot write the address to stdout: %s", strerror(errno));
        return CR_EXIT_FAILED;
    }
    cr_notify("READY=1");
    /* from now on, logging never waits for stderr, so that a full pipe there does not delay
     * clients */
    cr_log_never_wait();
    cr_info("store %s, pid %d, serves on %s", CRUN_VERSION, (int) getpid(),
            store_space_address(space));
    CR_AUTO_FD int fd = signalfd(-1, ends, SFD_CLOEXEC);
    int rc = fd < 0 ? -errno : store_server_run(server, fd);
    struct signalfd_siginfo ended;
    if (rc == 0 && read(fd, &ended, sizeof(ended)) < 0) rc = -errno;
    if (rc < 0) {
        cr_log_error("cannot wait for signals: %s", strerror(-rc));
        return CR_EXIT_FAILED;
    }
    int signal_number = (int) ended.ssi_signo;
    cr_info("store ends on signal %d", signal_number);
    cr_notify("STOPPING=1");
    return 0;
}

static int serve(const struct cr_command *command, const struct store_server_options *limits,
                 const char *host, uint16_t port, const sigset_t *ends) {
    struct cr_error err = {0};
    struct store_server *server = NULL;
    struct store_space *space;
    int rc = store_server_start(limits, &server, &err);
    if (rc == 0) rc = store_server_open(server, host, port, &space, &port, &err);
    if (rc < 0) {
        bool in_use = err.code == -EADDRINUSE;
        cr_complain(command->name, "%s%s", err.text,
                    in_use ? "; give another --port, or 0 for any free one" : "");
    } else {
        rc = announce_and_serve(server, space, ends);
    }
    store_server_stop(server);
    /* the next cr_log_flush() may wait forever for stderr; so from now on the signals SIGTERM and
     * SIGINT end the process */
    (void) pthread_sigmask(SIG_UNBLOCK, ends, NULL);
    cr_log_flush();
    return rc == 0 ? 0 : CR_EXIT_FAILED;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    int64_t value[OPTION_COUNT] = {0};
    for (size_t i = 0; i < CR_ARRAY_LEN(numbers); i++) {
        int option = numbers[i].option;
        int status = read_number(command, &numbers[i], line->value[option], &value[option]);
        if (status != 0) return status;
    }
    const char *range = line->value[PORT_RANGE];
    struct cr_port_range ports = {0};
    struct cr_error err = {0};
    if (range != NULL && cr_port_range_parse(range, &ports, &err) < 0) {
        return cr_complain_usage(command->name, "--port-range: %s", err.text);
    }
    const struct store_server_options limits = {
        .no_thread = 1,
        .ports = ports,
        .key_max = (size_t) value[MAX_KEY],
        .value_max = (size_t) value[MAX_VALUE],
        .list_max = (size_t) value[MAX_LIST],
        .memory_max = (size_t) value[MAX_MEMORY],
        .client_max = (size_t) value[MAX_CLIENTS],
        .client_buffer_max = (size_t) value[MAX_CLIENT_BUFFER],
    };
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    sigset_t ends;
    (void) sigemptyset(&ends);
    (void) sigaddset(&ends, SIGTERM);
    (void) sigaddset(&ends, SIGINT);
    (void) pthread_sigmask(SIG_BLOCK, &ends, NULL);
    return serve(command, &limits, line->value[HOST], (uint16_t) value[PORT], &ends);
}

const struct cr_command command_serve = {
    .name = "crun-store serve",
    .summary = "run a store",
    .arguments = "",
    .description =
        "Serves a store that torch's TCPStore clients of any release can use. The first line on "
        "stdout is the address; SIGTERM or SIGINT ends it.",
    .help_tail = "SIZE may end in K, M or G. A client that exceeds a limit is disconnected, and "
                 "one line on stderr names the client and the limit.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
