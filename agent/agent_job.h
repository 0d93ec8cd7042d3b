/* The job description: what a front end can set for an agent. It is in a header of its own without
 * libuv, so that pure code can include it. */
#ifndef AGENT_AGENT_JOB_H
#define AGENT_AGENT_JOB_H

#include "base/process/cpu_mask.h"
#include "rendezvous/types.h"

#include <stdint.h>

#define AGENT_WORKERS_MAX 4096 /* largest number of workers that a node can have */

enum agent_stream { AGENT_STREAM_NONE = 0, AGENT_STREAM_OUT = 1, AGENT_STREAM_ERR = 2 };

/* What happens at the end of the job to processes that workers have started, if all workers have
 * ended well. DETACHED: processes that have left the Unix session of their worker live on, the
 * others are ended. END: all are ended. KEEP: all live on. */
enum agent_leftovers { AGENT_LEFTOVERS_DETACHED, AGENT_LEFTOVERS_END, AGENT_LEFTOVERS_KEEP };

/* Whether this node prints the table "where the time went" at its end. AUTO: it does if it has
 * group rank 0 and there was more than one round. */
enum agent_summary { AGENT_SUMMARY_AUTO, AGENT_SUMMARY_ALWAYS, AGENT_SUMMARY_NEVER };

/* The environment variables that make only some devices visible to a program. If workers have
 * virtual local ranks, each worker gets one entry of CUDA_VISIBLE_DEVICES, and one entry of each
 * other variable that is not empty in the launcher's environment. */
enum agent_visible {
    AGENT_VISIBLE_CUDA, AGENT_VISIBLE_HIP, AGENT_VISIBLE_INTEL, AGENT_VISIBLE_ASCEND,
    AGENT_VISIBLE_COUNT
};
#define AGENT_VISIBLE_VARIABLES                                                                    \
    {                                                                                              \
        "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",                         \
            "ASCEND_RT_VISIBLE_DEVICES"                                                            \
    }

/* What crun does when a worker of a program fails (--on-failure): it starts all workers of the job
 * again; it starts only this worker again; or it ends the job. agent/node/node.h has the rules. */
enum agent_on_failure { AGENT_RESTARTS_ALL, AGENT_RESTARTS_ALONE, AGENT_ENDS_JOB };

/* One program of a job with several programs (crun ... A : ... B). Local ranks are given in the
 * order of the programs: first to the workers of the first program, next to those of the second
 * one, and so on. */
struct agent_program {
    char *const *argv; /* program and arguments, as agent_job.argv */
    const char *title; /* the program as the user typed it */
    const char *role;
    uint32_t workers;  /* number of its workers on each node, at least 1 */
    enum agent_on_failure on_failure;
    uint32_t restarts; /* if AGENT_RESTARTS_ALONE: how often a worker is started again alone at
                        * most */
    bool is_service;   /* true if the job does not wait for the end of these workers */
};

/* How the job's status is reported to Kubeflow's TrainJob (agent/trainjob/trainjob.h). */
struct agent_trainjob {
    const char *url;        /* https URL of the status server; NULL if nothing is reported */
    const char *ca_cert;    /* file of the authorities to trust; "" for those of the system */
    const char *token_file; /* file of the token that the status server demands */
    uint32_t steps;         /* number of steps of the whole training; 0 if it is unknown */
    int64_t interval_ms;    /* time in ms from one report to the next */
};

/* The job description. The caller must keep it, and all that it points to, until on_done runs
 * (agent.h). */
struct agent_job {
    struct rendezvous_options rendezvous;

    /* The program and its arguments, NULL-terminated. argv[0] is a path; the caller has looked it
     * up in PATH. In the other arguments, ${local_rank} is replaced for each worker, and $$ by a
     * single $. */
    char *const *argv;
    const char *title; /* name of the program in the failure report */
    uint32_t max_restarts;
    /* [program_count]: the programs of a job with several. Their workers add up to
     * local_world_size, and `argv` is that of programs[0]. NULL if all workers run `argv` under one
     * role and each failure restarts all. If there are several programs, rendezvous.role names all
     * of their roles and numbers of workers, so that only nodes with the same programs have the
     * same rendezvous role. */
    const struct agent_program *programs;
    uint32_t program_count;

    /* ---- GPU, CPUs and threads ---- */
    int virtual_local_rank;
    /* Names of the modules that a fork server imports once, for workers that are started after a
     * failure (--preload); NULL-terminated. NULL if there are none. If set, argv[0] is a Python
     * interpreter. */
    char *const *preload;
    /* [number of workers], by local rank: the CPUs to which the worker is bound; an empty mask if
     * the worker is not bound. NULL if no worker is bound. */
    const struct cr_cpu_mask *cpus;
    /* 1 if the workers get OMP_NUM_THREADS=1. As in torchrun, they get it if a node has more than
     * one worker and the launcher's environment does not have the variable. */
    int set_omp_num_threads;

    /* ---- logs. A mask has AGENT_STREAM_ bits. An array of masks is indexed by local rank. ---- */
    const char *log_dir; /* folder for logs; NULL for a new folder in the temp directory;
                          * "/dev/null" for no logs */
    uint64_t log_max_size; /* size limit in bytes of each log file of a worker; 0 = no limit */
    const uint8_t *redirects, *tee;
    const uint8_t *console; /* by local rank: 0 if the output of the worker is not shown; NULL if
                             * the output of all workers is shown */
    /* template for the prefix of each line of a teed stream on the console; if it is NULL or "",
     * crun uses "[${role_name}${local_rank}]:" */
    const char *log_line_prefix_template;
    bool folds_lines; /* true if equal teed lines of several workers are shown once (--fold) */
    bool is_log_json; /* true if teed lines go to the console as JSON (--log-format) */
    char *const *duplicate_stdout_filters, *const *duplicate_stderr_filters; /* NULL-terminated */

    /* ---- ending ---- */
    /* grace in ms when the workers are stopped for a new round or after a failure; torchrun gives
     * 30 s */
    int64_t stop_timeout_ms;
    int64_t shutdown_timeout_ms; /* grace in ms after a signal to the launcher
                                  * (--shutdown-timeout) */
    enum agent_leftovers leftovers;

    /* path at which crun's parent expects an error file (TORCHELASTIC_ERROR_FILE), or NULL */
    const char *own_error_file;
    /* path of a file that lists the workers that failed, for the program that started crun
     * (CRUN_FAILURES_FILE), or NULL */
    const char *failures_file;
    const char *timer_file; /* path of the timer watchdog's pipe; NULL if there is no watchdog */
    int64_t step_timeout_ms;    /* longest time in ms from one step of a worker to its next
                                 * (--step-timeout); 0 if there is no limit */
    enum agent_summary summary; /* value of --summary */
    const char *event_log;      /* path of the event log (--event-log), or NULL */
    const char *cycle_info_dir; /* folder of NVRx's cycle info files (--cycle-info-dir), or NULL */
    struct agent_trainjob trainjob;
    const char *status_addr;    /* HOST:PORT or unix:PATH (--status-addr), or NULL */
    /* The node is silent if, for this time in ms, none of its workers writes output or uses the
     * processor (--hang-timeout); 0 if there is no limit. */
    int64_t hang_timeout_ms;
    /* If no worker of this node writes output or uses the processor for this time in ms, crun says
     * so and does nothing else (CRUN_HANG_NOTICE); 0 if it does not. */
    int64_t hang_notice_ms;
    bool hang_when_silent; /* true if the node also hangs when its workers use the processor but
                            * write no output (--hang-when) */
    /* Rules on what the workers write (agent/watchdog/log_rules.h): texts of --hang-rule and of
     * --value-rule, which log_rules_check() has accepted; NULL-terminated. NULL if there are
     * none. */
    char *const *hang_rules, *const *value_rules;
    const char *pair_command;   /* command of --pair-check, or NULL */
    int64_t pair_timeout_ms;    /* longest time of one paired test in ms (--pair-timeout) */
    const char *health_segments; /* folder of --health-segment-dir, or NULL */
    const char *health_service; /* value of --health-service, or NULL */
    const char *health_command; /* command of --health-check, or NULL */
    uint32_t health_builtin;    /* mask of built-in checks (agent/health/health.h); 0 if there are
                                 * none */
    int64_t health_timeout_ms;  /* longest time of one health check in ms (--health-timeout) */
    int console_events; /* 1 if torchrun's events are written (--event-log-handler=console) */

    /* 1 if the launcher's own log (base/log/log.h) is written through the output relay, so that a
     * full stderr never blocks the loop. A front end may set this only if its main calls
     * cr_log_flush() at the end. */
    int carries_log;
};

#endif
