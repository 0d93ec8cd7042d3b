/* The program crun-agent: a daemon that hosts rendezvous and stores, and commands for operators.
 *
 * `serve` hosts the coordinators and the stores of any number of jobs, so that no training node has
 * to host them. `relay` carries the connections of many nodes to a coordinator. `status` lists the
 * jobs of a coordinator, `notify` requests nodes of a job to leave it, and `dump` requests flight
 * records from workers. These three commands work with every coordinator, whether `crun-agent
 * serve` or a crun hosts it. `why` shows where workers wait, `top` follows a job in a terminal, and
 * `key` derives a key of one job or user from a secret. `jobs` is a second daemon, which runs jobs
 * that users start from other hosts. */
#include "operator/operator_internal.h"

#include "base/log/log.h"
#include "base/process/daemon.h"
#include "remote/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *operator_token_file(const struct cr_command *command,
                                const struct cr_command_line *line) {
    int option = cr_option_find(command, "rdzv-token-file");
    const char *given = option >= 0 ? line->value[option] : NULL;
    return given != NULL && given[0] != '\0' ? given : getenv("CRUN_RDZV_TOKEN_FILE");
}

int operator_authenticate(const struct cr_command *command, const struct cr_command_line *line) {
    struct cr_error err = {0};
    if (rendezvous_authenticate(operator_token_file(command, line), &err) == 0) return 0;
    cr_complain(command->name, "%s", err.text);
    return CR_EXIT_FAILED;
}

int operator_read_where(const struct cr_command *command, const struct cr_command_line *line,
                        struct cr_endpoint *out) {
    struct cr_error err = {0};
    if (cr_endpoint_parse(line->arguments[0], OPERATOR_PORT, out, &err) == 0) {
        return operator_authenticate(command, line);
    }
    return cr_complain_usage(command->name, "%s", err.text);
}

int operator_read_auth(const struct cr_command *command, const char *word, int *out) {
    *out = strcmp(word, "off") == 0        ? RENDEZVOUS_AUTH_OFF
           : strcmp(word, "required") == 0 ? RENDEZVOUS_AUTH_REQUIRED
           : strcmp(word, "munge") == 0    ? RENDEZVOUS_AUTH_MUNGE
                                           : RENDEZVOUS_AUTH_AUTO;
    if (*out != RENDEZVOUS_AUTH_AUTO || strcmp(word, "auto") == 0) return 0;
    return cr_complain_usage(command->name,
                             "--auth: '%s' is not known; give auto, required, munge or off", word);
}

int operator_give_order(const struct cr_command *command, const struct cr_endpoint *where,
                        const struct rdzv_operate *order) {
    struct cr_error err = {0};
    uint32_t nodes;
    char behind[RENDEZVOUS_BEHIND_MAX];
    if (rendezvous_operate(where, OPERATOR_TIMEOUT_MS, order, &nodes, behind, &err) < 0) {
        cr_complain(command->name, "%s", err.text);
        return CR_EXIT_FAILED;
    }
    (void) printf("%" PRIu32 " node%s told\n", nodes, nodes == 1 ? " was" : "s were");
    if (behind[0] != '\0') (void) printf("%s\n", behind);
    return 0;
}

static const char man_description[] =
    ".B serve\n"
    "hosts the rendezvous and the stores of any number of jobs. It runs no workers and outlives\n"
    "the jobs, so that no training node is special. Nodes join with\n"
    ".PP\n"
    ".nf\n"
    "    crun \\-\\-nnodes=2:4 \\-\\-rdzv\\-backend=c10d \\-\\-rdzv\\-endpoint=HOST:PORT \\\\\n"
    "         \\-\\-rdzv\\-id=JOB \\-\\-rdzv\\-conf=is_host=0 PROGRAM\n"
    ".fi\n"
    ".PP\n"
    ".B relay\n"
    "carries the connections of up to 64 nodes to a coordinator over one connection, for jobs\n"
    "with more nodes than a process may have descriptors.\n"
    ".PP\n"
    ".B jobs\n"
    "runs the commands of users who call from other hosts with\n"
    ".BR \"crun \\-\\-on\" ,\n"
    "and\n"
    ".B key\n"
    "derives keys.\n"
    "The other commands ask a coordinator at HOST:PORT, which is a crun-agent or a crun that\n"
    "hosts its job.\n";

static const char man_tail[] =
    ".SH ENVIRONMENT\n"
    ".TP\n"
    ".B LOGLEVEL\n"
    "debug, info, warning (the default) or error. info logs every round and its ranks.\n"
    ".TP\n"
    ".B CRUN_RDZV_TOKEN_FILE\n"
    "Default of \\-\\-rdzv\\-token\\-file.\n"
    ".TP\n"
    ".B NOTIFY_SOCKET\n"
    "Set by systemd: serve reports there that it is ready, and that it stops.\n"
    ".SH \"EXIT STATUS\"\n"
    "0; 1 when the address cannot be used, nothing answers there, or there is no such job or\n"
    "node; 2 when the command line is wrong.\n"
    ".SH \"SEE ALSO\"\n"
    ".BR crun (1),\n"
    ".BR crun\\-store (1)\n";

static const struct cr_command *const commands[] = {
    &operator_serve, &operator_relay, &operator_status, &operator_notify, &operator_admit,
    &operator_dump,  &operator_why,   &operator_top,    &operator_key,
    &operator_jobs,  NULL};

static const struct cr_program program = {
    .name = "crun-agent",
    .summary = "host the rendezvous and the stores of crun jobs, and look into them",
    .commands = commands,
    .help_tail = "\n"
                 "Exit status: 0; 1: not done, the reason is on stderr; 2: the command line is "
                 "wrong.\n"
                 "LOGLEVEL=info logs every round to stderr. More: man crun-agent",
    .man_description = man_description,
    .man_tail = man_tail,
};

int main(int argc, char **argv) {
    if (strcmp(argv[0], REMOTE_SESSION_NAME) == 0) return remote_session_main(argc, argv);
    cr_keep_standard_files();
    cr_log_setup("crun-agent", cr_log_parse_level(getenv("LOGLEVEL"), CR_LOG_WARN));
    return cr_program_main(&program, argc, argv);
}
