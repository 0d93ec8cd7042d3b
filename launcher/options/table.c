/* The table of crun's options, with the texts of --help, and options_parse(). This function calls
 * the parser of base/program/command_line.h, handles requests such as --help, and takes PROGRAM and
 * its arguments. */
#include "launcher/options/table.h"

#include "base/memory.h"
#include "launcher/options/programs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The sections of --help, in order. */
enum { WORKERS, HOSTS, PROGRAM, RENDEZVOUS, ENDING, LOGS, OTHER };

static const char *const groups[] = {
    [WORKERS] = "Workers",
    [HOSTS] = "Several hosts, without a scheduler",
    [PROGRAM] = "What is run",
    [RENDEZVOUS] = "Rendezvous (who takes part)",
    [ENDING] = "Restarting and ending",
    [LOGS] = "Output and logs",
    [OTHER] = "Other",
};

/* clang-format off */
static const struct cr_option table[OPTION_COUNT] = {
    [OPTION_NNODES] =
    {.name = "nnodes", .value_name = "N|MIN:MAX", .default_value = "1:1", .has_variable = true,
     .group = WORKERS,
     .words = "1 2 1:2",
     .help = "number of nodes; MIN:MAX is elastic, with the c10d backend"},
    [OPTION_NPROC] =
    {.name = "nproc-per-node", .value_name = "N|WORD", .default_value = "1", .has_variable = true,
     .word = "-ppn",
     .old_variable = "PET_N_PROC_PER_NODE", /* as Kubeflow's PyTorchJob v1 spells it */
     .group = WORKERS,
     .words = "auto cpu gpu xpu npu",
     .help = "workers on this node; cpu: one for each CPU that we may run on, gpu, xpu, npu: one "
             "for each that is visible, auto: the first of these, else CPUs"},
    [OPTION_NODE_RANK] =
    {.name = "node-rank", .value_name = "N", .default_value = "0", .has_variable = true,
     .group = WORKERS,
     .help = "rank of this node, for the static backend"},
    [OPTION_SCHEDULER] =
    {.name = "scheduler", .gives_way = true,
     .value_name = "WORD", .default_value = "auto", .has_variable = true,
     .group = WORKERS,
     .words = "auto none show",
     .help = "auto: take options that are not given from Slurm, Kubernetes, mpirun and others; "
             "none: do not; show: print the command line that results, and end"},
    [OPTION_ROLE] =
    {.name = "role", .value_name = "NAME", .default_value = "default", .has_variable = true,
     .group = WORKERS,
     .help = "role of this node's workers"},
    [OPTION_ON_FAILURE] =
    {.name = "on-failure", .value_name = "WORD", .default_value = "all", .gives_way = true,
     .group = WORKERS,
     .words = "all alone alone:3 end",
     .help = "what follows when a worker of PROGRAM fails: all: all workers are restarted (see "
             "--max-restarts); alone[:N]: only that worker, at most N times (3) in a round; end: "
             "the job ends"},
    [OPTION_SERVICE] =
    {.name = "service", .gives_way = true, .group = WORKERS,
     .help = "the job does not wait for the workers of PROGRAM: when all others have ended well, "
             "they are stopped"},
    [OPTION_VIRTUAL_LOCAL_RANK] =
    {.name = "virtual-local-rank", .has_variable = true, .group = WORKERS,
     .help = "each worker sees LOCAL_RANK=0 and one GPU of its own"},
    [OPTION_NUMA_BINDING] =
    {.name = "numa-binding", .value_name = "HOW", .group = WORKERS,
     .words = "node socket exclusive core-complex",
     .help = "bind each worker to the CPUs near its GPU"},
    [OPTION_HOSTS] =
    {.name = "hosts", .value_name = "HOST[:N],...", .gives_way = true, .group = HOSTS,
     .words = "localhost",
     .help = "start the job on these hosts by ssh, with N workers each (default: "
             "--nproc-per-node); [..] stands around an IPv6 address"},
    [OPTION_HOSTFILE] =
    {.name = "hostfile", .value_name = "FILE", .gives_way = true, .group = HOSTS,
     .help = "the same from a file: a line 'HOST slots=N', 'HOST:N' or 'HOST' for each host"},
    [OPTION_ON] =
    {.name = "on", .value_name = "HOST[:N],...|all", .gives_way = true, .group = HOSTS,
     .words = "all",
     .help = "like --hosts, but through the daemons (crun-agent jobs) of the hosts, without ssh; "
             "all: the hosts of /etc/crun/hosts"},
    [OPTION_WORLD_SIZE] =
    {.name = "world-size", .letter = 'n', .word = "-np", .value_name = "N", .gives_way = true,
     .group = HOSTS,
     .words = "1 2 8",
     .help = "workers of the whole job (also -np N): the hosts are filled in their order; without "
             "hosts, workers on this node"},
    [OPTION_EXPORT] =
    {.name = "export", .letter = 'x', .value_name = "NAME[=VALUE]", .gives_way = true,
     .repeats = true, .group = HOSTS,
     .words = "HF_HOME WANDB_MODE",
     .help = "pass this variable to the hosts; may be given several times"},
    [OPTION_RSH] =
    {.name = "rsh", .value_name = "COMMAND", .default_value = "ssh", .has_variable = true,
     .gives_way = true, .group = HOSTS,
     .words = "ssh rsh",
     .help = "command that starts crun on a host: COMMAND HOST CRUN ...; options may follow its "
             "name, as in 'ssh -p 2222'"},
    [OPTION_FAN_OUT] =
    {.name = "fan-out", .value_name = "N", .default_value = "32", .has_variable = true,
     .gives_way = true, .group = HOSTS,
     .words = "32 64",
     .help = "hosts that one host starts itself; of more hosts, these start the others"},
    [OPTION_COPY_CRUN] =
    {.name = "copy-crun", .has_variable = true, .gives_way = true, .group = HOSTS,
     .help = "copy crun to ~/.cache/crun of hosts that lack it or have another version"},
    [OPTION_PTY] =
    {.name = "pty", .gives_way = true, .group = HOSTS,
     .help = "give the workers of the first host a terminal of this terminal's size, as srun "
             "--pty and ssh -t do"},
    [OPTION_MODULE] =
    {.name = "module", .letter = 'm', .has_variable = true, .group = PROGRAM,
     .help = "PROGRAM is a Python module, as in python -m"},
    [OPTION_NO_PYTHON] =
    {.name = "no-python", .has_variable = true, .group = PROGRAM,
     .help = "PROGRAM is an executable, found through PATH; rarely needed: executables are "
             "recognised"},
    [OPTION_RUN_PATH] =
    {.name = "run-path", .has_variable = true, .group = PROGRAM,
     .help = "run PROGRAM with Python's runpy; an exception goes to its error file"},
    [OPTION_PMI] =
    {.name = "pmi", .has_variable = true, .gives_way = true, .group = PROGRAM,
     .help = "answer MPI programs of the MPICH family by PMI, so that they need no mpirun; without "
             "this option, only executables that are linked with such an MPI"},
    [OPTION_JAX] =
    {.name = "jax", .has_variable = true, .gives_way = true, .group = PROGRAM,
     .help = "set the variables with which jax.distributed.initialize() needs no arguments"},
    [OPTION_TF_CONFIG] =
    {.name = "tf-config", .has_variable = true, .gives_way = true, .group = PROGRAM,
     .help = "set TF_CONFIG, the cluster of TensorFlow's MultiWorkerMirroredStrategy"},
    [OPTION_START_METHOD] =
    {.name = "start-method", .value_name = "HOW", .default_value = "spawn", .has_variable = true,
     .group = PROGRAM,
     .words = "spawn fork forkserver",
     .help = "accepted for torchrun's sake; every worker is a new process"},
    [OPTION_STANDALONE] =
    {.name = "standalone", .has_variable = true, .group = RENDEZVOUS,
     .empty_is_on = true, /* PyTorchJob v1 sets PET_STANDALONE="" */
     .help = "one node, a free port, a random id, as if nothing else is asked for; the store "
             "listens on loopback only"},
    [OPTION_MASTER_ADDR] =
    {.name = "master-addr", .value_name = "HOST", .default_value = "127.0.0.1",
     .has_variable = true, .group = RENDEZVOUS,
     .words = "127.0.0.1 localhost",
     .help = "address of node 0, for the static backend"},
    [OPTION_MASTER_PORT] =
    {.name = "master-port", .value_name = "PORT", .default_value = "29500", .has_variable = true,
     .group = RENDEZVOUS,
     .words = "0 29500",
     .help = "port of node 0, for the static backend; giving it selects that backend; 0: any "
             "free one"},
    [OPTION_LOCAL_ADDR] =
    {.name = "local-addr", .value_name = "HOST", .has_variable = true, .group = RENDEZVOUS,
     .help = "address that this node tells the others (default: found out)"},
    [OPTION_PORT_RANGE] =
    {.name = "port-range", .gives_way = true,
     .value_name = "LO-HI", .has_variable = true, .group = RENDEZVOUS,
     .words = "29500-29600",
     .help = "ports at which this node may listen where no port is given, for firewalls (default: "
             "any free one)"},
    [OPTION_STORE_ALLOW] =
    {.name = "store-allow", .value_name = "WHO", .gives_way = true, .has_variable = true,
     .group = RENDEZVOUS,
     .words = "nodes any",
     .help = "whom the workers' store serves: nodes: its own machine and the nodes of the round; "
             "NETWORK,...: these, too, as in 10.0.0.0/8; any: everybody"},
    [OPTION_STORE_GATEWAY] =
    {.name = "store-gateway", .gives_way = true, .has_variable = true, .group = RENDEZVOUS,
     .help = "workers reach the store of another node through their own node, at 127.0.0.1; give "
             "it on all nodes"},
    [OPTION_RDZV_BACKEND] =
    {.name = "rdzv-backend", .value_name = "NAME", .default_value = "static",
     .has_variable = true, .group = RENDEZVOUS,
     .words = "c10d static etcd",
     .help = "how the nodes find each other: c10d, static or etcd"},
    [OPTION_RDZV_ENDPOINT] =
    {.name = "rdzv-endpoint", .value_name = "HOST[:PORT]", .default_value = "",
     .has_variable = true, .group = RENDEZVOUS,
     .words = "localhost:0 localhost:29400",
     .help = "where the rendezvous is; c10d: localhost:29400 if empty"},
    [OPTION_RDZV_ID] =
    {.name = "rdzv-id", .value_name = "ID", .default_value = "none", .has_variable = true,
     .group = RENDEZVOUS,
     .help = "job id; empty: a random one"},
    [OPTION_RDZV_CONF] =
    {.name = "rdzv-conf", .value_name = "K=V,...", .default_value = "", .has_variable = true,
     .group = RENDEZVOUS,
     .words = "join_timeout= last_call_timeout= close_timeout= heartbeat_timeout= "
              "keep_alive_interval= keep_alive_max_attempt= change_notice= coordinator_wait= "
              "stop_limit= read_timeout= max_losses= restart_backoff= restart_refill= "
              "flap_limit= flap_window= flap_refusal= aside_after= aside_time= "
              "slow_percent= slow_time= slow_notice= "
              "is_host= keep_coordinator= "
              "timeout= candidate= protocol= ca_cert= ssl_cert= "
              "ssl_cert_key= user= password_file= etcd_prefix= auth= relay=",
     .help = "settings, in seconds: join_timeout=600, last_call_timeout=30, close_timeout=30, "
             "keep_alive_interval=5, keep_alive_max_attempt=3 and others"},
    [OPTION_RDZV_TOKEN_FILE] =
    {.name = "rdzv-token-file", .gives_way = true,
     .value_name = "FILE", .has_variable = true, .group = RENDEZVOUS,
     .help = "file with the job's secret: only nodes and operators that have it take part "
             "(default: CRUN_RDZV_TOKEN_FILE)"},
    [OPTION_MAX_RESTARTS] =
    {.name = "max-restarts", .value_name = "N", .default_value = "0", .has_variable = true,
     .group = ENDING,
     .words = "0 1 3",
     .help = "failures after which all workers are started again"},
    [OPTION_MONITOR_INTERVAL] =
    {.name = "monitor-interval", .value_name = "SECONDS", .default_value = "0.1",
     .has_variable = true, .group = ENDING,
     .help = "accepted for torchrun's sake; nothing polls, every exit is an event"},
    [OPTION_SHUTDOWN_TIMEOUT] =
    {.name = "shutdown-timeout", .value_name = "SECONDS", .has_variable = true, .group = ENDING,
     .words = "0 30",
     .help = "from a handled signal to SIGKILL (default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else "
             "30)"},
    [OPTION_SIGNALS] =
    {.name = "signals-to-handle", .value_name = "SIG,...",
     .default_value = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", .has_variable = true, .group = ENDING,
     .words = "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2",
     .help = "signals that end the job; the workers get the same one"},
    [OPTION_PREEMPTION_SIGNALS] =
    {.name = "preemption-signals", .gives_way = true,
     .value_name = "SIG,...", .default_value = "SIGUSR1",
     .has_variable = true, .group = ENDING,
     .words = "SIGUSR1 SIGUSR2 SIGTERM",
     .help = "signals that announce this node's end: workers may save, then the node leaves the "
             "job"},
    [OPTION_PREEMPTION_NOTICE] =
    {.name = "preemption-notice", .gives_way = true, .value_name = "SECONDS", .default_value = "30",
     .has_variable = true, .group = ENDING,
     .words = "30 60 120",
     .help = "from such a signal to the node's end"},
    [OPTION_STEP_TIMEOUT] =
    {.name = "step-timeout", .gives_way = true,
     .value_name = "SECONDS", .default_value = "0", .has_variable = true,
     .group = ENDING,
     .words = "0 600",
     .help = "end a worker that makes no step for so long (workers that call crunrt_step); 0: "
             "no limit"},
    [OPTION_HANG_TIMEOUT] =
    {.name = "hang-timeout", .gives_way = true,
     .value_name = "SECONDS", .default_value = "0", .has_variable = true,
     .group = ENDING,
     .words = "0 600 1800",
     .help = "end the round if for so long no worker of the job writes output or uses the "
             "processor, and report where each one is; 0: no limit"},
    [OPTION_HANG_WHEN] =
    {.name = "hang-when", .value_name = "WORD", .default_value = "idle", .gives_way = true,
     .has_variable = true,
     .group = ENDING,
     .words = "idle silent",
     .help = "what --hang-timeout waits for: idle: no output and no use of the processor; silent: "
             "no output, for workers that wait in a loop, as NCCL's do"},
    [OPTION_HANG_RULE] =
    {.name = "hang-rule", .value_name = "FIRST:EVERY:REGEX", .gives_way = true, .repeats = true,
     .has_variable = true,
     .group = ENDING,
     .words = "120:300: end:",
     .help = "end the round, as --hang-timeout does, unless a line that matches REGEX comes within "
             "FIRST seconds from the start, and then one every EVERY seconds; one of them may be "
             "empty; end:REGEX: a line after which no rule holds; may be given several times"},
    [OPTION_VALUE_RULE] =
    {.name = "value-rule", .value_name = "TEST:COUNT:REGEX", .gives_way = true, .repeats = true,
     .has_variable = true,
     .group = ENDING,
     .words = "nan:3:",
     .help = "the round has failed if COUNT matching lines of a worker in a row show a bad value: "
             "the first group of REGEX is no finite number, or TEST is true: nan, >N, >=N, <N or "
             "<=N; may be given several times"},
    [OPTION_HEALTH_CHECK] =
    {.name = "health-check", .value_name = "COMMAND", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .help = "run COMMAND with /bin/sh before this node joins a round; if it fails, the node gets "
             "no place, and its last line is the reason"},
    [OPTION_HEALTH_BUILTIN] =
    {.name = "health-builtin", .value_name = "LIST", .default_value = "none", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .words = "none all clock shm memlock files disk gpu link segment service",
     .help = "built-in checks that run before COMMAND: all, none, or some of clock, shm, memlock, "
             "files, disk, gpu, link, segment, service, with commas between them"},
    [OPTION_HEALTH_TIMEOUT] =
    {.name = "health-timeout", .value_name = "SECONDS", .default_value = "30", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .words = "10 30 120",
     .help = "a health check that takes longer has failed"},
    [OPTION_PAIR_CHECK] =
    {.name = "pair-check", .value_name = "COMMAND", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .help = "run COMMAND with /bin/sh on two nodes at a time, before a round, to test the network "
             "between them; a node that fails with two others gets no place"},
    [OPTION_PAIR_TIMEOUT] =
    {.name = "pair-timeout", .value_name = "SECONDS", .default_value = "30", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .words = "10 30 120",
     .help = "a paired test that takes longer has failed"},
    [OPTION_HEALTH_SEGMENT_DIR] =
    {.name = "health-segment-dir", .value_name = "DIR", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .help = "folder in which NVRx's segment health files mark Slurm allocations as unavailable; "
             "a node of such an allocation gets no place"},
    [OPTION_HEALTH_SERVICE] =
    {.name = "health-service", .value_name = "SOCKET", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .help = "Unix socket of a node health service of NVRx's kind (nvhcd.proto), then, if wanted, "
             "arguments for it; a node that it finds unwell gets no place"},
    [OPTION_EXIT_CODES] =
    {.name = "exit-codes", .value_name = "WORD", .default_value = "torchrun", .gives_way = true,
     .has_variable = true,
     .group = ENDING,
     .words = "torchrun distinct",
     .help = "torchrun: every failure of a job is 1; distinct: 81 restarts used up, 82 rendezvous "
             "lost, 83 left with notice, 84 out of memory, 85 hung, 86 refused by the machine, 93 "
             "do not requeue, 128+n ended by signal n"},
    [OPTION_LEFTOVERS] =
    {.name = "leftovers", .gives_way = true,
     .value_name = "WORD", .default_value = "detached", .has_variable = true,
     .group = ENDING,
     .words = "detached end keep",
     .help = "processes that workers which ended well have left: those with a session of their "
             "own live on (detached), none (end) or all (keep)"},
    [OPTION_PRELOAD] =
    {.name = "preload", .value_name = "MODULE,...", .gives_way = true,
     .has_variable = true, .group = ENDING,
     .words = "torch",
     .help = "import these Python modules in one process, of which the workers that are started "
             "after a failure are forks, so that they need not import them again"},
    [OPTION_LOG_DIR] =
    {.name = "log-dir", .value_name = "FOLDER", .has_variable = true, .group = LOGS,
     .help = "where logs and error files go (default: a new folder in the temp directory); "
             "/dev/null: none at all"},
    [OPTION_LOG_MAX_SIZE] =
    {.name = "log-max-size", .gives_way = true,
     .value_name = "SIZE", .default_value = "0", .has_variable = true,
     .group = LOGS,
     .words = "0 10M 1G",
     .help = "limit of each log file, such as 100M; the first and the last part are kept; 0: none"},
    [OPTION_REDIRECTS] =
    {.name = "redirects", .letter = 'r', .value_name = "MASK|MAP", .default_value = "0",
     .has_variable = true, .group = LOGS,
     .words = "0 1 2 3",
     .help = "worker output to files only: 0 none, 1 stdout, 2 stderr, 3 both; or for some "
             "local ranks, as in 0:3,1:2"},
    [OPTION_TEE] =
    {.name = "tee", .letter = 't', .value_name = "MASK|MAP", .default_value = "0",
     .has_variable = true, .group = LOGS,
     .words = "0 1 2 3",
     .help = "the same, to files and to the console"},
    [OPTION_LINE_PREFIX] =
    {.name = "log-line-prefix-template", .value_name = "TEXT", .has_variable = true,
     .group = LOGS,
     .help = "prefix of teed lines; ${role_name}, ${local_rank}, ${rank} and ${hostname} are "
             "replaced (default: $TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
             "[${role_name}${local_rank}]:)"},
    [OPTION_LOG_FORMAT] =
    {.name = "log-format", .value_name = "WORD", .default_value = "text", .has_variable = true,
     .group = LOGS,
     .words = "text json",
     .help = "of teed lines on the console and of crun's own lines: text, or json: one object a "
             "line"},
    [OPTION_FOLD] =
    {.name = "fold", .gives_way = true, .has_variable = true, .group = LOGS,
     .help = "show a line that several workers of this node write once, with the set of their "
             "ranks; teed as with -t 3, unless -t or -r is given"},
    [OPTION_LOCAL_RANKS_FILTER] =
    {.name = "local-ranks-filter", .value_name = "I,J,...", .default_value = "",
     .has_variable = true, .group = LOGS,
     .words = "0",
     .help = "only these local ranks may write to the console (default: all)"},
    [OPTION_STDOUT_FILTERS] =
    {.name = "duplicate-stdout-filters", .value_name = "TEXT,...", .has_variable = true,
     .group = LOGS,
     .help = "copy teed stdout lines that hold one of the texts to filtered_stdout.log; ,, is a "
             "comma"},
    [OPTION_STDERR_FILTERS] =
    {.name = "duplicate-stderr-filters", .value_name = "TEXT,...", .has_variable = true,
     .group = LOGS,
     .help = "the same for stderr, to filtered_stderr.log"},
    [OPTION_LOGS_SPECS] =
    {.name = "logs-specs", .value_name = "NAME", .group = LOGS,
     .help = "a Python plug-in of torchrun: refused"},
    [OPTION_EVENT_LOG_HANDLER] =
    {.name = "event-log-handler", .value_name = "NAME", .default_value = "null",
     .has_variable = true, .group = LOGS,
     .words = "null console",
     .help = "where events go: null (nowhere), or console, one JSON object an event on stderr"},
    [OPTION_EVENT_LOG] =
    {.name = "event-log", .value_name = "FILE", .has_variable = true, .needs_whole_name = true,
     .group = LOGS,
     .help = "append what happens to the job, one JSON object a line, with where the time went"},
    [OPTION_CYCLE_INFO_DIR] =
    {.name = "cycle-info-dir", .value_name = "FOLDER", .gives_way = true,
     .has_variable = true, .group = LOGS,
     .help = "write a cycle_info file there for each round, as NVRx does, for nvrx-watch"},
    [OPTION_SUMMARY] =
    {.name = "summary", .gives_way = true,
     .value_name = "WORD", .default_value = "auto", .has_variable = true,
     .group = LOGS,
     .words = "auto always never",
     .help = "print where the time went at the end: auto (if there was a restart), always, never"},
    [OPTION_STATUS_ADDR] =
    {.name = "status-addr", .value_name = "HOST:PORT|unix:PATH", .gives_way = true,
     .has_variable = true,
     .group = LOGS,
     .words = "127.0.0.1:0 127.0.0.1:9400",
     .help = "serve the state of the job by HTTP: a page at /, /status.json, /metrics, /healthz, "
             "/readyz; port 0: any free one"},
    [OPTION_USE_ENV] =
    {.name = "use-env", .group = OTHER,
     .help = "accepted for torch.distributed.launch's sake; always so"},
    [OPTION_PRINT_COMPLETION] =
    {.name = "print-completion", .value_name = "SHELL", .is_request = true, .group = OTHER,
     .words = "bash",
     .help = "print a completion script for the shell (bash)"},
    [OPTION_PRINT_MANUAL] =
    {.name = "print-manual", .is_request = true, .is_hidden = true, .group = OTHER,
     .help = "print crun(1); for the build"},
    [OPTION_PMI_WORKER] =
    {.name = "pmi-worker", .is_request = true, .is_hidden = true, .group = OTHER,
     .help = "execute PROGRAM with a helper that answers it by PMI; see --pmi"},
    [OPTION_FRAMEWORK_WORKER] =
    {.name = "framework-worker", .is_request = true, .is_hidden = true, .group = OTHER,
     .help = "set the variables of a framework and execute PROGRAM; see --jax and --tf-config"},
    [OPTION_DEPUTY] =
    {.name = "deputy", .is_request = true, .is_hidden = true, .group = OTHER,
     .help = "obey the crun that has started this one on a host; see --hosts"},
    [OPTION_CALL] =
    {.name = "call", .is_request = true, .is_hidden = true, .group = OTHER,
     .help = "execute a command on a host through its daemon; see --on"},
    [OPTION_HELP] =
    {.name = "help", .letter = 'h', .is_request = true, .group = OTHER,
     .help = "a summary of the options"},
    [OPTION_VERSION] =
    {.name = "version", .is_request = true, .group = OTHER,
     .help = "version, and which crun this is"},
};
/* clang-format on */

static const char help_tail[] =
    "Names may be written with _ for -, and shortened while they stay unique. PET_<NAME> sets an\n"
    "option's default, as in PET_NPROC_PER_NODE=4. A PROGRAM that is no executable is run with\n"
    "$PYTHON_EXEC, else the Python of the environment whose bin holds crun, else python3.\n"
    "${local_rank} in an argument becomes the local rank.\n"
    "\n"
    "Exit status: 0 all workers ended well; "
    "1 workers failed, a signal ended the job, or the machine\n"
    "refused (port in use, log folder not writable); "
    "2 the command line is wrong, nothing was started;\n"
    "more with --exit-codes=distinct.\n"
    "\n"
    "  crun --nproc-per-node=4 --max-restarts=3 train.py --epochs 10\n"
    "  crun --nproc-per-node=gpu ./train_digits\n"
    "  crun --hosts=node1:8,node2:8 train.py\n"
    "  crun run --detach --on=all train.py\n"
    "  crun run --detach --name=night train.py; crun ps; crun attach night; crun stop night\n"
    "  crun --nproc-per-node=2 trainer.py : --nproc-per-node=6 --role=rollout rollout.py\n"
    "\n"
    "More: man crun";

const struct cr_command crun_command = {
    .name = "crun",
    .arguments = "PROGRAM [arguments...]",
    .description =
        "Starts PROGRAM once for each rank, watches all of them, restarts or ends them together.\n"
        "A drop-in for torchrun, for programs in any language. (Not the OCI runtime of the same "
        "name.)",
    .help_tail = help_tail,
    .options = table,
    .option_count = OPTION_COUNT,
    .groups = groups,
    .group_count = CR_ARRAY_LEN(groups),
    .max_arguments = INT_MAX,
    .options_end_after = 1, /* further words belong to PROGRAM */
    .has_short_options = true,
    .variable_prefix = "PET_",
    .unknown_option = "unrecognized arguments:", /* the beginning of torchrun's error text */
    .unknown_advice = "--help lists the options, and what is meant for the program stands after it",
};

const char *option_label(const struct options *o, enum option_id id,
                         char out[CR_OPTION_LABEL_MAX]) {
    if (o->source[id] == CR_FROM_VARIABLE) return cr_option_variable(&crun_command, (int) id, out);
    (void) snprintf(out, CR_OPTION_LABEL_MAX, "--%s", table[id].name);
    return out;
}

static int check_shell(const char *shell, struct cr_error *err) {
    if (strcmp(shell, "bash") == 0) return 0;
    return cr_fail(err, -EINVAL, "--print-completion: there is none for '%.200s'; give bash",
                   shell);
}

/* Sets o->wanted to what the option `request`, such as --help, asks crun to do. Returns 0; or
 * -EINVAL, and sets err, if a completion for another shell than bash is requested. */
static int take_request(struct options *o, int request, struct cr_error *err) {
    switch (request) {
    case OPTION_HELP: o->wanted = OPTIONS_HELP; return 0;
    case OPTION_VERSION: o->wanted = OPTIONS_VERSION; return 0;
    case OPTION_PRINT_MANUAL: o->wanted = OPTIONS_MANUAL; return 0;
    case OPTION_FRAMEWORK_WORKER: o->wanted = OPTIONS_FRAMEWORK_WORKER; return 0;
    case OPTION_PMI_WORKER: o->wanted = OPTIONS_PMI_WORKER; return 0;
    case OPTION_CALL: o->wanted = OPTIONS_CALL; return 0;
    case OPTION_DEPUTY: o->wanted = OPTIONS_DEPUTY; return 0;
    default:
        o->wanted = OPTIONS_COMPLETION;
        return check_shell(o->value[OPTION_PRINT_COMPLETION], err);
    }
}

/* Sets o->program and o->args from the arguments. Only one "--" of a command line is dropped: one
 * before the program or, if there is none, one directly after the program. */
static int take_program(struct options *o, const struct cr_command_line *line,
                        struct cr_error *err) {
    if (line->argument_count == 0) {
        return cr_fail(err, -EINVAL,
                       "the following arguments are required: PROGRAM; usage: [options] PROGRAM "
                       "[arguments] (--help lists the options)");
    }
    o->program = line->arguments[0];
    o->args = line->arguments + 1;
    o->more = programs_split(line->arguments + 1);
    if (!line->dashes_seen && *o->args != NULL && strcmp(*o->args, "--") == 0) o->args++;
    return 0;
}

int options_parse(char **argv, cr_getenv_fn lookup, void *lookup_arg, struct options *out,
                  struct cr_error *err) {
    *out = (struct options){.wanted = OPTIONS_RUN};
    struct cr_command_line line = {.value = out->value,
                                   .source = out->source,
                                   .repeated = out->repeated,
                                   .repeated_of = out->repeated_of,
                                   .repeated_max = OPTIONS_REPEATED_MAX};
    int rc = cr_command_line_parse(&crun_command, argv, lookup, lookup_arg, &line, err);
    if (rc < 0) return rc;
    out->repeated_count = line.repeated_count;
    return line.request < 0 ? take_program(out, &line, err) : take_request(out, line.request, err);
}
