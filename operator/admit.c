/* crun-agent admit: orders a coordinator to forget what went wrong on a host, so that the nodes of
 * this host take part in the job again. */
#include "operator/operator_internal.h"

#include <stdio.h>

enum { JOB, NODE, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = OPERATOR_OPTION_JOB,
    [NODE] = {.name = "node",
              .value_name = "HOST",
              .help = "name of the host to admit, as status shows it"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    const char *job = line->value[JOB], *host = line->value[NODE];
    struct cr_endpoint where;
    struct cr_error err = {0};
    if (job == NULL || job[0] == '\0') {
        return cr_complain_usage(command->name, "--job is missing: which job is meant?");
    }
    if (host == NULL || host[0] == '\0') {
        return cr_complain_usage(command->name, "--node is missing: which host is to be admitted?");
    }
    int status = operator_read_where(command, line, &where);
    if (status != 0) return status;
    if (rendezvous_admit(&where, OPERATOR_TIMEOUT_MS, job, host, &err) < 0) {
        cr_complain(command->name, "%s", err.text);
        return CR_EXIT_FAILED;
    }
    (void) printf("admitted: %s\n", host);
    return 0;
}

const struct cr_command operator_admit = {
    .name = "crun-agent admit",
    .summary = "let a host take part again that is slowed, refused or set aside",
    .arguments = "HOST:PORT",
    .description =
        "Asks the coordinator of a job to forget what went wrong on HOST: how often its nodes were "
        "lost soon after they had joined, and how many failures began there. Its nodes are not "
        "refused, slowed or set aside any more, until the same happens again.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
