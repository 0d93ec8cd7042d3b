/* The job description: everything that a front end can ask of an agent. It is a part of agent.h in
 * a header of its own without libuv, so that the agent's own files and pure code can include it. */
#ifndef AGENT_AGENT_JOB_H
#define AGENT_AGENT_JOB_H

#include "base/cpu_mask.h"
#include "rendezvous/types.h"

#include <stdint.h>

#define AGENT_WORKERS_MAX 4096 /* how many workers one node can have */

enum agent_stream { AGENT_STREAM_NONE = 0, AGENT_STREAM_OUT = 1, AGENT_STREAM_ERR = 2 };

/* The job description. The caller keeps it and all that it points to until on_done (agent.h). */
struct agent_job {
    struct rendezvous_options rendezvous;

    /* The program and its arguments, NULL-terminated. argv[0] is a path that was already looked up
     * in PATH. In the other arguments, ${local_rank} is replaced for each worker, and $$ by a
     * single $. */
    char *const *argv;
    const char *title; /* the program's name in the failure report */
    uint32_t max_restarts;

    /* GPU, CPUs and threads. */
    int virtual_local_rank;
    const struct cr_cpu_mask *cpus; /* one mask per local rank; an empty mask or NULL = not bound */
    /* 1 = set OMP_NUM_THREADS=1 for the workers. torchrun's rule: it is set if a node has more than
     * one worker and the launcher's environment does not have the variable. */
    int set_omp_num_threads;

    /* Logs. A mask has AGENT_STREAM_ bits; an array of masks has one per local rank. */
    const char *log_dir; /* NULL = a new folder in the temp directory; "/dev/null" = none */
    const uint8_t *redirects, *tee;
    const uint8_t *console; /* by local rank; 0 = hidden from the console; NULL = all are shown */
    /* template; NULL or "" = "[${role_name}${local_rank}]:" */
    const char *log_line_prefix_template;
    char *const *duplicate_stdout_filters, *const *duplicate_stderr_filters; /* NULL-terminated */

    /* Ending. */
    /* grace when the worker group is stopped for a new round or after a failure; torchrun's is
     * 30 s */
    int64_t stop_timeout_ms;
    int64_t shutdown_timeout_ms; /* grace after a signal to the launcher; --shutdown-timeout */

    /* where our own parent expects an error file (TORCHELASTIC_ERROR_FILE); or NULL */
    const char *own_error_file;
    /* where to list the workers that failed, for a program that has started crun; NULL = nowhere */
    const char *failures_file;
    const char *timer_file;     /* path of the timer watchdog's pipe; NULL = no watchdog */
    int64_t step_timeout_ms;    /* --step-timeout: longest time from step to step; 0 = no limit */
    int console_events;         /* 1 = write torchrun's events (--event-log-handler=console) */

    /* 1 = the launcher's own log (base/log.h) goes through the output relay, so that a full stderr
     * never blocks the loop. Main decides this, because it must call cr_log_flush() at the end. */
    int carries_log;
};

#endif
