/* The command line: one table that feeds parsing, PET_* defaults, --help, the man page and the
 * shell completion, so that none of them can say something that another does not.
 *
 * Parsing is pure: texts in, texts out, no conversion, nothing looked up. launcher/job.h turns the
 * texts into numbers, so that an error can name where a text came from: the option or its variable.
 *
 * Grammar (torchrun's, argparse under it): options stand before the program; all that follows the
 * program is the program's. Dashes and underscores are alike; `--name value`, `--name=value`,
 * unique prefixes; `-r 3`, `-r3`, `-r=3`; the last value wins; exactly one `--` is swallowed,
 * before the program or directly after it. Precedence: command line, then PET_<NAME>, then the default. */
#ifndef LAUNCHER_OPTIONS_H
#define LAUNCHER_OPTIONS_H

#include "base/buffer.h"
#include "base/error.h"

enum option_kind { OPTION_FLAG, OPTION_VALUE };

/* Sections of --help, in its order. */
#define OPTION_GROUPS(X)                                                                           \
    X(WORKERS, "Workers")                                                                          \
    X(PROGRAM, "What is run")                                                                      \
    X(RENDEZVOUS, "Rendezvous (who takes part)")                                                   \
    X(ENDING, "Restarting and ending")                                                             \
    X(LOGS, "Output and logs")                                                                     \
    X(OTHER, "Other")

/* X(id, name, letter, kind, what the value is, default, has a PET_ variable, group,
 *   words that complete the value, help). `name` is dashed; NULL default = none. */
#define OPTIONS(X)                                                                                 \
    X(NNODES, "nnodes", 0, VALUE, "N|MIN:MAX", "1:1", 1, WORKERS, "1 2 1:2",                       \
      "number of nodes; MIN:MAX is elastic, with the c10d backend")                                \
    X(NPROC, "nproc-per-node", 0, VALUE, "N|WORD", "1", 1, WORKERS, "auto cpu gpu",                \
      "workers on this node; cpu: one for each CPU that we may run on, gpu: one for each "         \
      "visible GPU, auto: GPUs, else CPUs")                                                        \
    X(NODE_RANK, "node-rank", 0, VALUE, "N", "0", 1, WORKERS, NULL,                                \
      "rank of this node, for the static backend")                                                 \
    X(ROLE, "role", 0, VALUE, "NAME", "default", 1, WORKERS, NULL, "role of this node's workers")  \
    X(VIRTUAL_LOCAL_RANK, "virtual-local-rank", 0, FLAG, NULL, NULL, 1, WORKERS, NULL,             \
      "each worker sees LOCAL_RANK=0 and one GPU of its own")                                      \
    X(NUMA_BINDING, "numa-binding", 0, VALUE, "HOW", NULL, 0, WORKERS,                             \
      "node socket exclusive core-complex", "bind each worker to the CPUs near its GPU")           \
    X(MODULE, "module", 'm', FLAG, NULL, NULL, 1, PROGRAM, NULL,                                   \
      "PROGRAM is a Python module, as in python -m")                                               \
    X(NO_PYTHON, "no-python", 0, FLAG, NULL, NULL, 1, PROGRAM, NULL,                               \
      "PROGRAM is an executable, found through PATH; rarely needed: executables are recognised")   \
    X(RUN_PATH, "run-path", 0, FLAG, NULL, NULL, 1, PROGRAM, NULL,                                 \
      "run PROGRAM with Python's runpy; an exception goes to its error file")                      \
    X(START_METHOD, "start-method", 0, VALUE, "HOW", "spawn", 1, PROGRAM, "spawn fork forkserver", \
      "accepted for torchrun's sake; every worker is a new process")                               \
    X(STANDALONE, "standalone", 0, FLAG, NULL, NULL, 1, RENDEZVOUS, NULL,                          \
      "one node, a free port, a random id; what happens anyway if nothing else is asked for")      \
    X(MASTER_ADDR, "master-addr", 0, VALUE, "HOST", "127.0.0.1", 1, RENDEZVOUS,                    \
      "127.0.0.1 localhost", "address of node 0, for the static backend")                          \
    X(MASTER_PORT, "master-port", 0, VALUE, "PORT", "29500", 1, RENDEZVOUS, "0 29500",             \
      "port of node 0, for the static backend; giving it selects that backend; 0: any free one")   \
    X(LOCAL_ADDR, "local-addr", 0, VALUE, "HOST", NULL, 1, RENDEZVOUS, NULL,                       \
      "address that this node tells the others (default: found out)")                              \
    X(RDZV_BACKEND, "rdzv-backend", 0, VALUE, "NAME", "static", 1, RENDEZVOUS, "c10d static etcd", \
      "how the nodes find each other: c10d, static or etcd")                                       \
    X(RDZV_ENDPOINT, "rdzv-endpoint", 0, VALUE, "HOST[:PORT]", "", 1, RENDEZVOUS,                  \
      "localhost:0 localhost:29400", "where the rendezvous is; c10d: localhost:29400 if empty")    \
    X(RDZV_ID, "rdzv-id", 0, VALUE, "ID", "none", 1, RENDEZVOUS, NULL,                             \
      "job id; empty: a random one")                                                               \
    X(RDZV_CONF, "rdzv-conf", 0, VALUE, "K=V,...", "", 1, RENDEZVOUS,                              \
      "join_timeout= last_call_timeout= close_timeout= heartbeat_timeout= keep_alive_interval= "   \
      "keep_alive_max_attempt= change_notice= coordinator_wait= read_timeout= is_host= timeout=",  \
      "settings, in seconds: join_timeout=600, last_call_timeout=30, close_timeout=30, "           \
      "keep_alive_interval=5, keep_alive_max_attempt=3 and others")                                \
    X(MAX_RESTARTS, "max-restarts", 0, VALUE, "N", "0", 1, ENDING, "0 1 3",                        \
      "failures after which all workers are started again")                                        \
    X(MONITOR_INTERVAL, "monitor-interval", 0, VALUE, "SECONDS", "0.1", 1, ENDING, NULL,           \
      "accepted for torchrun's sake; nothing polls, every exit is an event")                       \
    X(SHUTDOWN_TIMEOUT, "shutdown-timeout", 0, VALUE, "SECONDS", NULL, 1, ENDING, "0 30",          \
      "from a handled signal to SIGKILL (default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)")       \
    X(SIGNALS, "signals-to-handle", 0, VALUE, "SIG,...", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", 1,       \
      ENDING, "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2",                                     \
      "signals that end the job; the workers get the same one")                                    \
    X(PREEMPTION_SIGNALS, "preemption-signals", 0, VALUE, "SIG,...", "SIGUSR1", 1, ENDING,         \
      "SIGUSR1 SIGUSR2 SIGTERM",                                                                   \
      "signals that announce this node's end: workers may save, then the node leaves the job")     \
    X(PREEMPTION_NOTICE, "preemption-notice", 0, VALUE, "SECONDS", "30", 1, ENDING, "30 60 120",   \
      "from such a signal to the node's end")                                                      \
    X(STEP_TIMEOUT, "step-timeout", 0, VALUE, "SECONDS", "0", 1, ENDING, "0 600",                  \
      "end a worker that makes no step for so long (workers that call crunrt_step); 0: no limit")  \
    X(LOG_DIR, "log-dir", 0, VALUE, "FOLDER", NULL, 1, LOGS, NULL,                                 \
      "where logs and error files go (default: a new folder in the temp directory); "              \
      "/dev/null: none at all")                                                                    \
    X(REDIRECTS, "redirects", 'r', VALUE, "MASK|MAP", "0", 1, LOGS, "0 1 2 3",                     \
      "worker output to files only: 0 none, 1 stdout, 2 stderr, 3 both; or for some local ranks, " \
      "as in 0:3,1:2")                                                                             \
    X(TEE, "tee", 't', VALUE, "MASK|MAP", "0", 1, LOGS, "0 1 2 3",                                 \
      "the same, to files and to the console")                                                     \
    X(LINE_PREFIX, "log-line-prefix-template", 0, VALUE, "TEXT", NULL, 1, LOGS, NULL,              \
      "prefix of teed lines; ${role_name}, ${local_rank}, ${rank} and ${hostname} are replaced "   \
      "(default: $TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else [${role_name}${local_rank}]:)")      \
    X(LOCAL_RANKS_FILTER, "local-ranks-filter", 0, VALUE, "I,J,...", "", 1, LOGS, "0",             \
      "only these local ranks may write to the console (default: all)")                            \
    X(STDOUT_FILTERS, "duplicate-stdout-filters", 0, VALUE, "TEXT,...", NULL, 1, LOGS, NULL,       \
      "copy teed stdout lines that hold one of the texts to filtered_stdout.log; ,, is a comma")   \
    X(STDERR_FILTERS, "duplicate-stderr-filters", 0, VALUE, "TEXT,...", NULL, 1, LOGS, NULL,       \
      "the same for stderr, to filtered_stderr.log")                                               \
    X(LOGS_SPECS, "logs-specs", 0, VALUE, "NAME", NULL, 0, LOGS, NULL,                             \
      "a Python plug-in of torchrun: refused")                                                     \
    X(EVENT_LOG_HANDLER, "event-log-handler", 0, VALUE, "NAME", "null", 1, LOGS, "null console",   \
      "where events go: null (nowhere), or console, one JSON object an event on stderr")           \
    X(USE_ENV, "use-env", 0, FLAG, NULL, NULL, 0, OTHER, NULL,                                     \
      "accepted for torch.distributed.launch's sake; always so")                                   \
    X(PRINT_COMPLETION, "print-completion", 0, VALUE, "SHELL", NULL, 0, OTHER, "bash",             \
      "print a completion script for the shell (bash)")                                            \
    X(HELP, "help", 'h', FLAG, NULL, NULL, 0, OTHER, NULL, "a summary of the options")             \
    X(VERSION, "version", 0, FLAG, NULL, NULL, 0, OTHER, NULL, "version, and which crun this is")

enum option_id {
#define X(id, ...) OPTION_##id,
    OPTIONS(X)
#undef X
        OPTION_COUNT
};

struct option_spec {
    const char *name; /* dashed, without "--" */
    char letter;      /* 0 = none */
    enum option_kind kind;
    const char *value_name;    /* NULL for flags */
    const char *default_value; /* NULL = none */
    int has_variable;          /* PET_<NAME> */
    int group;
    const char *words; /* blank-separated, for completion; NULL = none */
    const char *help;
};
extern const struct option_spec option_specs[OPTION_COUNT];

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_VARIABLE, OPTION_FROM_LINE };

enum options_wanted { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_COMPLETION };

/* Everything points into argv, the environment or the table: borrowed. */
struct options {
    enum options_wanted wanted;
    const char *value[OPTION_COUNT]; /* flags: "1" or NULL; values: text or NULL */
    enum option_source source[OPTION_COUNT];
    const char *program; /* as typed */
    char *const *args;   /* what follows it; NULL-terminated */
};

/* Looks a variable up; NULL = not set. getenv() behind a pointer, so that tests bring their own. */
typedef const char *(*options_getenv_fn)(void *arg, const char *name);

/* Returns 0, or -EINVAL with a text that names the argument and the remedy. With --help, --version
 * or --print-completion on the line nothing else is checked. */
int options_parse(char *const *argv, options_getenv_fn lookup, void *lookup_arg,
                  struct options *out, struct cr_error *err);

/* How the user spelt the origin of a value: "--rdzv-conf" or "PET_RDZV_CONF". */
#define OPTION_LABEL_MAX 64
const char *option_label(const struct options *o, enum option_id id, char out[OPTION_LABEL_MAX]);

/* "PET_NPROC_PER_NODE" for "nproc-per-node". */
void option_variable(enum option_id id, char out[OPTION_LABEL_MAX]);

/* The text of --help, and the parts of crun(1) and of the bash completion that the table decides.
 * Each appends to `b`; 0 or -ENOMEM. */
int options_write_help(struct cr_buffer *b);
int options_write_man(struct cr_buffer *b);
int options_write_completion(struct cr_buffer *b);

#endif
