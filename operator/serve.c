/* crun-agent serve: hosts coordinators and stores until SIGTERM or SIGINT.
 *
 * When the server listens, this command prints the address as the first line on stdout, and reports
 * READY=1 to systemd. From that line, a script that has given port 0 learns the port. While there
 * are no jobs, the process never wakes up. */
#include "operator/daemon_internal.h"
#include "operator/operator_internal.h"

#include "base/log/log.h"
#include "base/memory.h"
#include "base/process/daemon.h"
#include "rendezvous/types.h"
#include "status/status.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define CLOSE_TIMEOUT_MS 30000 /* time in ms for which the outcome of an ended job is kept, for
                                * nodes that join late */

struct serve_daemon {
    struct operator_daemon daemon;
    struct rendezvous_server *server;
    struct status_server *status; /* NULL if there is no status address */
};

/* ---- closing ---- */

static void on_server_closed(void *arg) { operator_daemon_end(arg); }

static void on_signal(struct operator_daemon *daemon) {
    struct serve_daemon *d = CR_CONTAINER_OF(daemon, struct serve_daemon, daemon);
    if (d->status != NULL) status_server_close(d->status, NULL, NULL);
    rendezvous_server_close(d->server, "the coordinator was told to end (crun-agent)",
                            on_server_closed, daemon);
}

/* ---- opening ---- */

static int open_server(struct serve_daemon *d, const struct rendezvous_server_options *options,
                       uint16_t *port, struct cr_error *err) {
    int rc = operator_daemon_open(&d->daemon, on_signal, err);
    if (rc < 0) return rc;
    rc = rendezvous_serve(&d->daemon.loop, options, &d->server, port, err);
    if (rc < 0) (void) uv_loop_close(&d->daemon.loop);
    return rc;
}

/* ---- the status address ---- */

static json_t *snapshot(void *arg) {
    static const struct rendezvous_status_events events = {
        .on_job = status_add_job, .on_node = status_add_node, .on_rank = status_add_rank};
    const struct serve_daemon *d = arg;
    json_t *jobs = json_array();
    json_t *job;
    size_t i;
    if (jobs != NULL) rendezvous_server_visit(d->server, &events, jobs);
    rendezvous_server_watch_ranks(d->server);
    json_array_foreach(jobs, i, job) {
        if (json_object_get(job, "ranks") != NULL) status_judge(job);
    }
    return status_snapshot(jobs);
}

static const char *why_not_ready(void *arg) {
    const struct serve_daemon *d = arg;
    return d->daemon.ending ? "it ends" : NULL;
}

/* Opens the status address, unless `address` is NULL or empty. Returns 0. On error, prints the
 * reason, ends the server and returns a negative errno. */
static int open_status(struct serve_daemon *d, const struct cr_command *command,
                       const char *address) {
    const struct status_source source = {snapshot, why_not_ready, d};
    struct cr_error err = {0};
    if (address == NULL || address[0] == '\0') return 0;
    int rc = status_serve(&d->daemon.loop, address, &source, &d->status, &err);
    if (rc == 0) {
        cr_info("the status address is %s", status_server_address(d->status));
        return 0;
    }
    cr_complain(command->name, "%s", err.text);
    d->daemon.ending = true;
    rendezvous_server_close(d->server, "the daemon could not start", on_server_closed, &d->daemon);
    return rc;
}

static int serve(const struct cr_command *command,
                 const struct rendezvous_server_options *options,
                 const char *status_addr) {
    struct serve_daemon d = {.status = NULL};
    struct cr_error err = {0};
    uint16_t port;
    if (open_server(&d, options, &port, &err) < 0) {
        bool in_use = err.code == -EADDRINUSE;
        cr_complain(command->name, "%s%s", err.text,
                    in_use ? "; give another port, or 0 for any free one" : "");
        return CR_EXIT_FAILED;
    }
    operator_daemon_watch(&d.daemon);
    int rc = open_status(&d, command, status_addr);
    if (rc == 0) {
        operator_announce(&options->listen, port);
        cr_info("version %s, pid %d, serves on %s port %u", CRUN_VERSION, (int) getpid(),
                options->listen.host, port);
    }
    operator_daemon_run(&d.daemon);
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
    [AUTH] = OPERATOR_OPTION_AUTH,
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
    const char *ports = line->value[PORT_RANGE];
    const char *allow = line->value[STORE_ALLOW];
    o.token_file = operator_token_file(command, line);
    int rc = operator_read_auth(command, line->value[AUTH], &o.auth);
    if (rc != 0) return rc;
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
