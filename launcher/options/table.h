/* Parses the command line of crun, which has the grammar of torchrun.
 *
 * Options stand before the program; all words after the program are passed to it. One "--" is
 * dropped, either before the program or directly after it. The value of an option comes from the
 * command line; if the option is not there, from the environment variable PET_<NAME>; if this
 * variable is not set, from the table.
 *
 * Parsing is pure. All values stay texts. launcher/job.h later converts them to numbers; if a text
 * is wrong, its error can name the option or the variable from which the text came. */
#ifndef LAUNCHER_TABLE_H
#define LAUNCHER_TABLE_H

#include "base/program/command_line.h"
#include "base/program/program.h"

/* clang-format off */
/* The index of each option in the table in table.c. */
enum option_id {
    OPTION_NNODES, OPTION_NPROC, OPTION_NODE_RANK, OPTION_SCHEDULER, OPTION_ROLE,
    OPTION_ON_FAILURE, OPTION_SERVICE,
    OPTION_VIRTUAL_LOCAL_RANK,
    OPTION_NUMA_BINDING, OPTION_HOSTS, OPTION_HOSTFILE, OPTION_ON, OPTION_WORLD_SIZE,
    OPTION_EXPORT,
    OPTION_RSH, OPTION_FAN_OUT, OPTION_COPY_CRUN, OPTION_PTY, OPTION_MODULE, OPTION_NO_PYTHON,
    OPTION_RUN_PATH, OPTION_PMI, OPTION_JAX, OPTION_TF_CONFIG,
    OPTION_START_METHOD,
    OPTION_STANDALONE, OPTION_MASTER_ADDR, OPTION_MASTER_PORT, OPTION_LOCAL_ADDR,
    OPTION_PORT_RANGE, OPTION_STORE_ALLOW, OPTION_STORE_GATEWAY,
    OPTION_RDZV_BACKEND, OPTION_RDZV_ENDPOINT, OPTION_RDZV_ID, OPTION_RDZV_CONF,
    OPTION_RDZV_TOKEN_FILE,
    OPTION_MAX_RESTARTS, OPTION_MONITOR_INTERVAL, OPTION_SHUTDOWN_TIMEOUT, OPTION_SIGNALS,
    OPTION_PREEMPTION_SIGNALS, OPTION_PREEMPTION_NOTICE, OPTION_STEP_TIMEOUT, OPTION_HANG_TIMEOUT,
    OPTION_HANG_WHEN, OPTION_HANG_RULE, OPTION_VALUE_RULE,
    OPTION_HEALTH_CHECK, OPTION_HEALTH_BUILTIN, OPTION_HEALTH_TIMEOUT,
    OPTION_PAIR_CHECK, OPTION_PAIR_TIMEOUT,
    OPTION_HEALTH_SEGMENT_DIR,
    OPTION_HEALTH_SERVICE,
    OPTION_EXIT_CODES, OPTION_LEFTOVERS, OPTION_PRELOAD,
    OPTION_LOG_DIR, OPTION_LOG_MAX_SIZE,
    OPTION_REDIRECTS, OPTION_TEE, OPTION_LINE_PREFIX, OPTION_LOCAL_RANKS_FILTER,
    OPTION_STDOUT_FILTERS, OPTION_STDERR_FILTERS, OPTION_LOGS_SPECS, OPTION_EVENT_LOG_HANDLER,
    OPTION_EVENT_LOG, OPTION_CYCLE_INFO_DIR, OPTION_SUMMARY, OPTION_STATUS_ADDR, OPTION_LOG_FORMAT,
    OPTION_FOLD,
    OPTION_USE_ENV, OPTION_PRINT_COMPLETION, OPTION_PRINT_MANUAL, OPTION_DEPUTY, OPTION_PMI_WORKER,
    OPTION_FRAMEWORK_WORKER, OPTION_CALL,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_COUNT
};
/* clang-format on */

enum options_wanted {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_COMPLETION,
    OPTIONS_MANUAL,
    /* this process prepares a worker, and becomes its program (launcher/frameworks/) */
    OPTIONS_FRAMEWORK_WORKER,
    OPTIONS_PMI_WORKER, /* this process becomes a worker's program, with a helper for PMI
                         * (launcher/pmi/pmi.h) */
    OPTIONS_DEPUTY, /* this process is a deputy (launcher/hosts/hosts.h) */
    OPTIONS_CALL /* execute a command on another host (remote/remote.h) */
};

#define OPTIONS_REPEATED_MAX 64 /* largest number of values of all options that can be given several
                                 * times: --export, --hang-rule, --value-rule */

/* The result of options_parse(). All texts in it point into argv, the environment or the table. */
struct options {
    enum options_wanted wanted;
    const char *value[OPTION_COUNT]; /* of a flag: "1" if it is on, else NULL; of another option:
                                      * its text, or NULL if it has none */
    enum cr_option_source source[OPTION_COUNT];
    /* the values of all options that can be given several times, and the option of each */
    const char *repeated[OPTIONS_REPEATED_MAX];
    int repeated_of[OPTIONS_REPEATED_MAX];
    size_t repeated_count;
    const char *program; /* PROGRAM as the user typed it */
    char *const *args;   /* arguments of PROGRAM; NULL-terminated */
    char **more;         /* the words behind the first ":" that begins another program
                          * (launcher/options/programs.h); NULL if there is only one program */
};

/* The table of options, with the other texts of --help and of the manual page, in the form that
 * base/program/program.h reads. */
extern const struct cr_program crun_program;
extern const struct cr_command crun_command;

/* Parses the command line in argv, and may change the order of its words. At an option that
 * requests a text, such as --help, parsing ends; later words are not checked. Returns 0; or
 * -EINVAL, and sets err to a text that names the wrong argument and the remedy. */
int options_parse(char **argv, cr_getenv_fn lookup, void *lookup_arg, struct options *out,
                  struct cr_error *err);

/* Writes to `out` where the user must correct the option's value: the environment variable, such as
 * "PET_RDZV_CONF", if the value came from there; otherwise the option, such as "--rdzv-conf".
 * Returns `out`. */
const char *option_label(const struct options *o, enum option_id id,
                         char out[CR_OPTION_LABEL_MAX]);

#endif
