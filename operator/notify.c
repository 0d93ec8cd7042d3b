/* crun-agent notify: requests the nodes of one host to leave their job after some time. */
#include "operator/operator_internal.h"

#include "base/change_kind.h"
#include "base/text/parse.h"

#define NOTICE_MAX_S 1000000

enum { JOB, NODE, KIND, LEFT, WHY, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = OPERATOR_OPTION_JOB,
    [NODE] = {.name = "node",
              .value_name = "HOST",
              .help = "host name of the nodes that are to leave, as status shows it"},
    [KIND] = {.name = "kind",
              .value_name = "KIND",
              .default_value = "maintenance",
              .words = "leave preemption maintenance",
              .help = "reason for workers and logs: leave, preemption or maintenance"},
    [LEFT] = {.name = "in",
              .value_name = "SECONDS",
              .default_value = "60",
              .words = "30 60 120",
              .help = "the time until the nodes must be gone; whole seconds"},
    [WHY] = {.name = "why",
             .value_name = "TEXT",
             .default_value = "asked for by an operator",
             .help = "a sentence for the logs"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

/* Fills in *order from the options. Returns 0. If an option is wrong, prints the reason and returns
 * the exit status. */
static int read_order(const struct cr_command *command, const struct cr_command_line *line,
                      struct rdzv_operate *order) {
    int64_t seconds;
    const char *kind = line->value[KIND], *left = line->value[LEFT];
    order->run_id = line->value[JOB];
    order->host = line->value[NODE];
    order->why = line->value[WHY];
    order->kind = cr_change_kind_parse(kind);
    if (!cr_change_kind_is_leave(order->kind)) {
        return cr_complain_usage(command->name,
                                 "--kind: '%s' is not known; give leave, preemption or "
                                 "maintenance",
                                 kind);
    }
    if (cr_parse_i64(left, 0, NOTICE_MAX_S, &seconds) < 0) {
        return cr_complain_usage(command->name,
                                 "--in: '%s' is not a time; give whole seconds, 0 to %d", left,
                                 NOTICE_MAX_S);
    }
    order->left_ms = seconds * 1000;
    if (order->run_id == NULL || order->run_id[0] == '\0') {
        return cr_complain_usage(command->name, "--job is missing: which job is meant?");
    }
    if (order->host == NULL || order->host[0] == '\0') {
        return cr_complain_usage(command->name, "--node is missing: which node is to leave?");
    }
    return 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct rdzv_operate order = {0};
    struct cr_endpoint where;
    int status = read_order(command, line, &order);
    if (status == 0) status = operator_read_where(command, line, &where);
    return status != 0 ? status : operator_give_order(command, &where, &order);
}

const struct cr_command operator_notify = {
    .name = "crun-agent notify",
    .summary = "ask nodes to leave their job; its workers may save first",
    .arguments = "HOST:PORT",
    .description =
        "Asks the nodes of a job whose host name is HOST to leave it within SECONDS. Workers "
        "that count their steps stop after the same step on all nodes of the job and may save; "
        "other workers are stopped at once. Then the nodes leave, and the others go on without "
        "them. The job's restarts stay as they are. Prints how many nodes were told.",
    .options = options,
    .option_count = OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
