/* crun-agent serve: hosts coordinators and stores until SIGTERM or SIGINT.
 *
 * When the server listens, this command prints the address as the first line on stdout, and reports
 * READY=1 to systemd. From that line, a script that has given port 0 learns the port. While there
 * are no jobs, the process never wakes up. */
#include "operator/operator_internal.h"

#include "base/log.h"
#include "base/process/daemon.h"
#include "rendezvous/types.h"
#include "status/status.h"

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
    struct status_server *status; /* NULL if there is no status address */
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
    if (d->status != NULL) status_server_close(d->status, NULL, NULL);
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

/* ---- the status address ---- */

static json_t *snapshot(void *arg) {
    static const struct rendezvous_status_events events = {status_add_job, status_add_node, NULL};
    const struct daemon *d = arg;
    json_t *jobs = json_array();
    if (jobs != NULL) rendezvous_server_visit(d->server, &events, jobs);
    return status_snapshot(jobs);
}

static const char *why_not_ready(void *arg) {
    const struct daemon *d = arg;
    return d->ending ? "it ends" : NULL;
}

/* Opens the status address, if there is one. Returns 0; or a negative errno, prints the reason, and
 * ends the server. */
static int open_status(struct daemon *d, const struct cr_command *command, const char *address) {
    const struct status_source source = {snapshot, why_not_ready, d};
    struct cr_error err = {0};
    if (address == NULL || address[0] == '\0') return 0;
    int rc = status_serve(&d->loop, address, &source, &d->status, &err);
    if (rc == 0) {
        cr_info("the status address is %s", status_server_address(d->status));
        return 0;
    }
    cr_complain(command->name, "%s", err.text);
    d->ending = true;
    rendezvous_server_close(d->server, "the daemon could not start", on_server_closed, d);
    return rc;
}

static int serve(const struct cr_command *command,
                 const struct rendezvous_server_options *options,
                 const char *status_addr) {
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
    int rc = open_status(&d, command, status_addr);
    if (rc == 0) announce(&options->listen, port);
    (void) uv_run(&d.loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&d.loop);
    cr_log_flush();
    return rc == 0 ? 0 : CR_EXIT_FAILED;
}

/* ---- the command line ---- */

enum { LISTEN, PORT_RANGE, STORE_ALLOW, STATUS_ADDR, TOKEN, AUTH, HELP, OPTION_COUNT };

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
    [STATUS_ADDR] = {.name = "status-addr",
                     .value_name = "HOST:PORT|unix:PATH",
                     .words = "127.0.0.1:9400",
                     .help = "serve the state of all jobs by HTTP: a page at /, /status.json, "
                             "/metrics, /healthz, /readyz"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [AUTH] = {.name = "auth",
              .value_name = "WORD",
              .default_value = "auto",
              .words = "auto required off",
              .help = "whether nodes and operators need the secret; auto: if there is a token "
                      "file; required: do not start without one"},
    [STORE_ALLOW] = {.name = "store-allow",
                     .value_name = "WHO",
                     .words = "nodes any",
                     .help = "whom the stores that it hosts serve: nodes: this machine and the "
                             "nodes of the round; NETWORK,...: these, too; any: everybody"},
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct rendezvous_server_options o = {.close_timeout_ms = CLOSE_TIMEOUT_MS};
    struct cr_error err = {0};
    const char *ports = line->value[PORT_RANGE], *auth = line->value[AUTH];
    const char *allow = line->value[STORE_ALLOW];
    o.token_file = operator_token_file(command, line);
    o.auth = strcmp(auth, "off") == 0        ? RENDEZVOUS_AUTH_OFF
             : strcmp(auth, "required") == 0 ? RENDEZVOUS_AUTH_REQUIRED
                                             : RENDEZVOUS_AUTH_AUTO;
    if (o.auth == RENDEZVOUS_AUTH_AUTO && strcmp(auth, "auto") != 0) {
        return cr_complain_usage(command->name,
                                 "--auth: '%s' is not known; give auto, required or off", auth);
    }
    if (cr_endpoint_parse(line->value[LISTEN], OPERATOR_PORT, &o.listen, &err) < 0) {
        return cr_complain_usage(command->name, "--listen: %s", err.text);
    }
    if (ports != NULL && cr_port_range_parse(ports, &o.ports, &err) < 0) {
        return cr_complain_usage(command->name, "--port-range: %s", err.text);
    }
    if (allow != NULL && rendezvous_store_guard_parse(allow, &o.store_guard, &err) < 0) {
        return cr_complain_usage(command->name, "--store-allow: %s", err.text);
    }
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    return serve(command, &o, line->value[STATUS_ADDR]);
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
