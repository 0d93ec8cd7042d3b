/* The job description: everything that a launcher can ask of an agent. Part of agent.h; separate, and
 * without libuv, so that the agent's own files and pure code can use it. */
#ifndef AGENT_AGENT_JOB_H
#define AGENT_AGENT_JOB_H

#include "base/cpu_mask.h"
#include "rendezvous/types.h"

#include <stdint.h>

#define AGENT_WORKERS_MAX 4096 /* workers on one node */

enum agent_stream { AGENT_STREAM_NONE = 0, AGENT_STREAM_OUT = 1, AGENT_STREAM_ERR = 2 };

/* The job description: everything a launcher can ask for. Borrowed until agent_run's on_done. */
struct agent_job {
    struct rendezvous_options rendezvous;

    /* What is started. argv[0] is an absolute or relative path, already looked up in PATH; all later
     * arguments go through the $-template (${local_rank}, $$) for each worker. NULL-terminated. */
    char *const *argv;
    const char *title; /* what the failure report calls the program */
    uint32_t max_restarts;

    /* GPU, CPUs and threads */
    int virtual_local_rank;
    const struct cr_cpu_mask *cpus; /* one a local rank; empty: not bound; NULL: none is */
    int set_omp_num_threads; /* 1: OMP_NUM_THREADS=1 for the workers (torchrun's rule has fired) */

    /* Logs. Masks are AGENT_STREAM_ bits, one a local rank, local_world_size of them. */
    const char *log_dir; /* NULL: a new folder in the temp directory; "/dev/null": none at all */
    const uint8_t *redirects, *tee;
    const uint8_t *console; /* 0 = this local rank is kept off the console; NULL = all are shown */
    const char *log_line_prefix_template; /* NULL or "" = "[${role_name}${local_rank}]:" */
    char *const *duplicate_stdout_filters, *const *duplicate_stderr_filters; /* NULL-terminated */

    /* Ending. */
    int64_t stop_timeout_ms;     /* SIGTERM to SIGKILL when the group is stopped; 30 s */
    int64_t shutdown_timeout_ms; /* the same after a signal to the launcher; --shutdown-timeout */

    const char *own_error_file; /* the launcher's TORCHELASTIC_ERROR_FILE, or NULL */
    const char *timer_file;     /* the pipe of the timer watchdog, or NULL: there is none */
    int64_t step_timeout_ms;    /* --step-timeout: longest time from step to step; 0 = no limit */
    int console_events;         /* --event-log-handler=console */

    /* 1: the process' log (base/log.h) takes the way of the workers' stderr, so that a stderr that is
     * full never stops the loop. A choice of main, which calls cr_log_flush() at the end. */
    int carries_log;
};

#endif
