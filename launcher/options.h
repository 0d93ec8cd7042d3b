/* The command line of crun: its table of options, and what torchrun's grammar adds to
 * base/command_line.h.
 *
 * Options stand before the program; all words behind the program are the program's. One "--" is
 * dropped, in front of the program or directly behind it. The value of an option comes from the
 * command line, else from the variable PET_<NAME>, else from the table.
 *
 * Parsing is pure and converts nothing: launcher/job.h turns the texts into numbers, so that an
 * error can name the option or the variable that a text came from. */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include "base/command_line.h"
#include "base/program.h"

/* clang-format off */
/* The index of each option in the table, options.c. */
enum option_id {
    OPTION_NNODES, OPTION_NPROC, OPTION_NODE_RANK, OPTION_ROLE, OPTION_VIRTUAL_LOCAL_RANK,
    OPTION_NUMA_BINDING, OPTION_MODULE, OPTION_NO_PYTHON, OPTION_RUN_PATH, OPTION_START_METHOD,
    OPTION_STANDALONE, OPTION_MASTER_ADDR, OPTION_MASTER_PORT, OPTION_LOCAL_ADDR,
    OPTION_RDZV_BACKEND, OPTION_RDZV_ENDPOINT, OPTION_RDZV_ID, OPTION_RDZV_CONF,
    OPTION_MAX_RESTARTS, OPTION_MONITOR_INTERVAL, OPTION_SHUTDOWN_TIMEOUT, OPTION_SIGNALS,
    OPTION_PREEMPTION_SIGNALS, OPTION_PREEMPTION_NOTICE, OPTION_STEP_TIMEOUT, OPTION_LOG_DIR,
    OPTION_REDIRECTS, OPTION_TEE, OPTION_LINE_PREFIX, OPTION_LOCAL_RANKS_FILTER,
    OPTION_STDOUT_FILTERS, OPTION_STDERR_FILTERS, OPTION_LOGS_SPECS, OPTION_EVENT_LOG_HANDLER,
    OPTION_USE_ENV, OPTION_PRINT_COMPLETION, OPTION_PRINT_MANUAL, OPTION_HELP, OPTION_VERSION,
    OPTION_COUNT
};
/* clang-format on */

enum options_wanted {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_COMPLETION,
    OPTIONS_MANUAL
};

/* All texts belong to argv, the environment or the table. */
struct options {
    enum options_wanted wanted;
    const char *value[OPTION_COUNT]; /* flags: "1" or NULL; values: text or NULL */
    enum cr_option_source source[OPTION_COUNT];
    const char *program; /* as typed */
    char *const *args;   /* what follows it; NULL-terminated */
};

/* The table with the prose around it, for the texts of base/program.h. */
extern const struct cr_program crun_program;
extern const struct cr_command crun_command;

/* Reads the command line; reorders argv. Returns 0, or -EINVAL with a text that names the
 * argument and the remedy. Once --help, --version or --print-completion is read, nothing else is
 * checked. */
int options_parse(char **argv, cr_getenv_fn lookup, void *lookup_arg, struct options *out,
                  struct cr_error *err);

/* Where the user gave a value: "--rdzv-conf" or "PET_RDZV_CONF". */
const char *option_label(const struct options *o, enum option_id id,
                         char out[CR_OPTION_LABEL_MAX]);

#endif
