/* crun-agent jobs: the daemon that runs commands of users who call from other hosts. */
#include "operator/daemon_internal.h"
#include "operator/operator_internal.h"

#include "base/log/log.h"
#include "base/process/daemon.h"
#include "remote/remote.h"

#include <errno.h>
#include <unistd.h>

enum { LISTEN, TOKEN, SOCKET, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [LISTEN] = {.name = "listen",
                .value_name = "HOST:PORT",
                .default_value = "[::]:29401",
                .words = "[::]:29401 0.0.0.0:29401 127.0.0.1:0",
                .help = "where to listen; [::]: all interfaces; port 0: any free one"},
    [TOKEN] = {.name = "rdzv-token-file", .value_name = "FILE",
               .help = "file with the cluster's secret, the same on all hosts (default: "
                       "CRUN_RDZV_TOKEN_FILE)"},
    [SOCKET] = {.name = "socket", .value_name = "PATH", .default_value = REMOTE_SOCKET,
                .help = "where users of this host get their keys"},
    [HELP] = CR_OPTION_HELP,
};

static struct cr_endpoint listen_at;

static void announce(uint16_t port) {
    operator_announce(&listen_at, port);
    cr_info("version %s, pid %d, runs jobs, listens on %s port %u", CRUN_VERSION, (int) getpid(),
            listen_at.host, port);
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct remote_daemon daemon = {.token_file = operator_token_file(command, line),
                                   .socket = line->value[SOCKET]};
    struct cr_error err = {0};
    if (cr_endpoint_parse(line->value[LISTEN], REMOTE_PORT, &daemon.listen, &err) < 0) {
        return cr_complain_usage(command->name, "--listen: %s", err.text);
    }
    if (daemon.token_file == NULL || daemon.token_file[0] == '\0') {
        return cr_complain_usage(command->name, "--rdzv-token-file is missing: without a secret "
                                 "anybody could run commands here");
    }
    listen_at = daemon.listen;
    cr_raise_descriptor_limit();
    int rc = remote_serve(&daemon, announce, &err);
    if (rc == 0) return 0;
    cr_complain(command->name, "%s", err.text);
    return CR_EXIT_FAILED;
}

const struct cr_command operator_jobs = {
    .name = "crun-agent jobs",
    .summary = "run jobs that users start from other hosts with crun --on",
    .arguments = "",
    .description =
        "Runs commands of users who call from other hosts: crun --on=HOST,... starts jobs through "
        "this daemon, without ssh. A caller must have the key of a user, and the command runs as "
        "that user. Run it as root; as another user, it runs the commands of that user only. The "
        "first line on stdout is the address. SIGTERM or SIGINT ends the daemon, but no job: it "
        "can be restarted and upgraded while jobs run.",
    .help_tail =
        "A user of a host on which the daemon runs needs no key of the own: the daemon hands it "
        "out by its socket, to the user who asks. For other hosts, crun-agent key --role=user "
        "writes one.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
