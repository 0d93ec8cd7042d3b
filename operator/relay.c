/* crun-agent relay: carries the connections of nodes to their coordinator, up to 64 of them over
 * one connection, until SIGTERM or SIGINT.
 *
 * When the relay listens, this command prints the address as the first line on stdout, and reports
 * READY=1 to systemd. */
#include "operator/daemon_internal.h"
#include "operator/operator_internal.h"

#include "base/log/log.h"
#include "base/memory.h"
#include "base/process/daemon.h"
#include "rendezvous/relay/relay.h"
#include "rendezvous/types.h"

#include <signal.h>
#include <unistd.h>

struct relay_daemon {
    struct operator_daemon daemon;
    struct rendezvous_relay *relay;
};

static void on_relay_closed(void *arg) { operator_daemon_end(arg); }

static void on_signal(struct operator_daemon *d) {
    rendezvous_relay_close(CR_CONTAINER_OF(d, struct relay_daemon, daemon)->relay, on_relay_closed,
                           d);
}

static int open_relay(struct relay_daemon *d, const struct rendezvous_relay_options *o,
                      uint16_t *port, struct cr_error *err) {
    int rc = operator_daemon_open(&d->daemon, on_signal, err);
    if (rc < 0) return rc;
    rc = rendezvous_relay_open(&d->daemon.loop, o, &d->relay, port, err);
    if (rc < 0) (void) uv_loop_close(&d->daemon.loop);
    return rc;
}

static int relay(const struct cr_command *command, const struct rendezvous_relay_options *o) {
    struct relay_daemon d;
    struct cr_error err = {0};
    uint16_t port;
    if (open_relay(&d, o, &port, &err) < 0) {
        cr_complain(command->name, "%s", err.text);
        return CR_EXIT_FAILED;
    }
    operator_daemon_watch(&d.daemon);
    operator_announce(&o->listen, port);
    cr_info("version %s, pid %d, relays from %s port %u to %s port %u", CRUN_VERSION,
            (int) getpid(), o->listen.host, port, o->upstream.host, o->upstream.port);
    operator_daemon_run(&d.daemon);
    return 0;
}

/* ---- the command line ---- */

enum { LISTEN, TOKEN, AUTH, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [LISTEN] = {.name = "listen",
                .value_name = "HOST:PORT",
                .default_value = "[::]:29402",
                .words = "[::]:29402 0.0.0.0:29402 127.0.0.1:0",
                .help = "where to listen; [::]: all interfaces; port 0: any free one"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [AUTH] = OPERATOR_OPTION_AUTH,
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct rendezvous_relay_options o = {.token_file = operator_token_file(command, line)};
    struct cr_error err = {0};
    int rc = operator_read_auth(command, line->value[AUTH], &o.auth);
    if (rc != 0) return rc;
    if (cr_endpoint_parse(line->arguments[0], OPERATOR_PORT, &o.upstream, &err) < 0) {
        return cr_complain_usage(command->name, "%s", err.text);
    }
    if (cr_endpoint_parse(line->value[LISTEN], OPERATOR_RELAY_PORT, &o.listen, &err) < 0) {
        return cr_complain_usage(command->name, "--listen: %s", err.text);
    }
    cr_raise_descriptor_limit();
    (void) signal(SIGPIPE, SIG_IGN);
    return relay(command, &o);
}

const struct cr_command operator_relay = {
    .name = "crun-agent relay",
    .summary = "carry the connections of many nodes to their coordinator",
    .arguments = "HOST:PORT",
    .min_arguments = 1,
    .max_arguments = 1,
    .description =
        "Stands between nodes and the coordinator at HOST:PORT: the coordinator's host has one "
        "connection for up to 64 nodes. The first line on stdout is the address; SIGTERM or SIGINT "
        "ends it, and the nodes connect to the coordinator. Nodes use it with "
        "--rdzv-conf=relay=HOST:PORT.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
