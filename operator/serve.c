/* crun-agent serve: hosts coordinators and stores until SIGTERM or SIGINT.
 *
 * When the server listens, this command prints the address as the first line on stdout, and reports
 * READY=1 to systemd. From that line, a script that has given port 0 learns the port. While there
 * are no jobs, the process never wakes up. */
#include "operator/operator_internal.h"

#include "base/daemon.h"
#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define CLOSE_TIMEOUT_MS 30000 /* time in ms for which the outcome of an ended job is kept, for
                                * nodes that join late */

struct daemon {
    uv_loop_t loop;
    uv_signal_t sigterm, sigint;
    struct rendezvous_server *server;
    bool ending;
};

/* ---- closing ---- */

static void on_server_closed(void *arg) {
    struct daemon *d = arg;
    uv_close((uv_handle_t *) &d->sigterm, NULL);
    uv_close((uv_handle_t *) &d->sigint, NULL);
}

static void on_signal(uv_signal_t *handle, int signum) {
    struct daemon *d = handle->data;
    if (d->ending) return;
    d->ending = true;
    cr_info("ends on signal %d", signum);
    cr_notify("STOPPING=1");
    rendezvous_server_close(d->server, "the coordinator was told to end (crun-agent)",
                            on_server_closed, d);
}

static void handle_signal(struct daemon *d, uv_signal_t *handle, int signum) {
    (void) uv_signal_init(&d->loop, handle);
    handle->data = d;
    (void) uv_signal_start(handle, on_signal, signum);
}

/* ---- opening ---- */

static void announce(const struct cr_endpoint *listen, uint16_t port) {
    bool is_v6 = strchr(listen->host, ':') != NULL;
    (void) printf(is_v6 ? "[%s]:%u\n" : "%s:%u\n", listen->host, port);
    (void) fflush(stdout);
    cr_notify("READY=1");
    cr_info("version %s, pid %d, serves on %s port %u", CRUN_VERSION, (int) getpid(), listen->host,
            port);
}

static int open_server(struct daemon *d, const struct rendezvous_server_options *options,
                       uint16_t *port, struct cr_error *err) {
    int rc = uv_loop_init(&d->loop);
    if (rc < 0) return cr_fail(err, rc, "cannot start: %s", uv_strerror(rc));
    rc = rendezvous_serve(&d->loop, options, &d->server, port, err);
    if (rc < 0) (void) uv_loop_close(&d->loop);
    return rc;
}

static int serve(const struct cr_command *command,
                 const struct rendezvous_server_options *options) {
    struct daemon d = {.ending = false};
    struct cr_error err = {0};
    uint16_t port;
    if (open_server(&d, options, &port, &err) < 0) {
        bool in_use = err.code == -EADDRINUSE;
        cr_complain(command->name, "%s%s", err.text,
                    in_use ? "; give another port, or 0 for any free one" : "");
        return CR_EXIT_FAILED;
    }
    cr_log_never_wait(); /* the event loop must answer keep-alives even while stderr is a full
                          * pipe */
    handle_signal(&d, &d.sigterm, SIGTERM);
    handle_signal(&d, &d.sigint, SIGINT);
    announce(&options->listen, port);
    (void) uv_run(&d.loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&d.loop);
    cr_log_flush();
    return 0;
}

/* ---- the command line ---- */

enum { LISTEN, PORT_RANGE, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [LISTEN] = {.name = "listen",
                .value_name = "HOST:PORT",
                .default_value = "[::]:29400",
                .words = "[::]:29400 0.0.0.0:29400 127.0.0.1:0",
                .help = "where to listen; [::]: all interfaces, 0.0.0.0: for IPv4 only; port 0: "
                        "any free one"},
    [PORT_RANGE] = {.name = "port-range",
                    .value_name = "LO-HI",
                    .words = "29500-29600",
                    .help = "ports for the rounds' stores, and for --listen with port 0 (default: "
                            "any free one)"},
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct rendezvous_server_options o = {.close_timeout_ms = CLOSE_TIMEOUT_MS};
    struct cr_error err = {0};
    const char *ports = line->value[PORT_RANGE];
    if (cr_endpoint_parse(line->value[LISTEN], OPERATOR_PORT, &o.listen, &err) < 0) {
        return cr_complain_usage(command->name, "--listen: %s", err.text);
    }
    if (ports != NULL && cr_port_range_parse(ports, &o.ports, &err) < 0) {
        return cr_complain_usage(command->name, "--port-range: %s", err.text);
    }
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    return serve(command, &o);
}

const struct cr_command operator_serve = {
    .name = "crun-agent serve",
    .summary = "host the rendezvous and the stores of any number of jobs",
    .arguments = "",
    .description =
        "Hosts the rendezvous and the stores of any number of jobs. The first line on stdout is "
        "the address; SIGTERM or SIGINT ends it, and the nodes of running jobs learn of it. "
        "Launch with crun --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT --rdzv-conf=is_host=0.",
    .help_tail =
        "A job whose last node is gone is remembered for 30 seconds, so that late nodes learn "
        "how it ended; then its id is free again.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
