/* crun-agent dump: requests the workers of a job to write their flight records, and prints which
 * rank others wait for. */
#include "operator/operator_internal.h"

enum { JOB, NODE, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = OPERATOR_OPTION_JOB,
    [NODE] = {.name = "node",
              .value_name = "HOST",
              .default_value = "",
              .help = "only the workers on nodes of this host name (default: all nodes)"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    /* order.kind stays 0, which requests flight records */
    struct rdzv_operate order = {.run_id = line->value[JOB],
                                 .host = line->value[NODE],
                                 .why = "asked for by an operator"};
    struct cr_endpoint where;
    if (order.run_id == NULL || order.run_id[0] == '\0') {
        return cr_complain_usage(command->name, "--job is missing: which job is meant?");
    }
    int status = operator_read_where(command, line, &where);
    return status != 0 ? status : operator_give_order(command, &where, &order);
}

const struct cr_command operator_dump = {
    .name = "crun-agent dump",
    .summary = "ask workers for their flight records, and say who is behind",
    .arguments = "HOST:PORT",
    .description =
        "Asks the workers of a job, on all nodes or on those of one host, to write their flight "
        "records.\n"
        "Workers without crun's worker runtime are left alone. Prints how many nodes were told, "
        "and at once which rank has not entered an operation of a process group in which others "
        "wait.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
