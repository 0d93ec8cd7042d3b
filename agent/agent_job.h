/* The job description: everything that a launcher can ask of an agent. It is part of agent.h, in a
 * file of its own without libuv, so that the agent's own files and pure code can use it. */
#ifndef AGENT_AGENT_JOB_H
#define AGENT_AGENT_JOB_H

#include "base/cpu_mask.h"
#include "rendezvous/types.h"

#include <stdint.h>

#define AGENT_WORKERS_MAX 4096 /* workers of one node */

enum agent_stream { AGENT_STREAM_NONE = 0, AGENT_STREAM_OUT = 1, AGENT_STREAM_ERR = 2 };

/* Borrowed, with everything that it points to, until on_done of agent_start(). Lists "by local
 * rank" have rendezvous.local_world_size elements. */
struct agent_job {
    struct rendezvous_options rendezvous;

    /* The program. argv[0] is a path; PATH is not searched. In all later arguments ${local_rank} is
     * replaced for each worker, and $$ is one '$'. NULL-terminated. */
    char *const *argv;
    const char *title; /* the program's name in the failure report */
    uint32_t max_restarts;

    /* GPUs, CPUs and threads. */
    int virtual_local_rank; /* 1: every worker sees its own GPU only, as LOCAL_RANK 0 */
    const struct cr_cpu_mask *cpus; /* by local rank; an empty mask or NULL: not bound */
    int set_omp_num_threads; /* 1: OMP_NUM_THREADS=1, as torchrun sets it for several workers */

    /* Logs. The masks consist of AGENT_STREAM_ bits, by local rank. */
    const char *log_dir; /* NULL: a new folder in the temporary directory; "/dev/null": no logs */
    const uint8_t *redirects, *tee; /* streams that go to files; to files and to the console */
    const uint8_t *console; /* by local rank; 0: no output to the console; NULL: 1 for all */
    const char *log_line_prefix_template; /* NULL or "" = "[${role_name}${local_rank}]:" */
    char *const *duplicate_stdout_filters, *const *duplicate_stderr_filters; /* NULL-terminated */

    /* Stopping. */
    int64_t stop_timeout_ms;     /* from SIGTERM to SIGKILL when workers are stopped; 30 s */
    int64_t shutdown_timeout_ms; /* the same after a signal to the launcher; --shutdown-timeout */

    const char *own_error_file; /* the launcher's own TORCHELASTIC_ERROR_FILE, or NULL */
    const char *timer_file;     /* the named pipe of the watchdog, or NULL: no watchdog */
    int64_t step_timeout_ms;    /* --step-timeout: longest time from step to step; 0 = no limit */
    int console_events;         /* 1: --event-log-handler=console */

    /* 1: the log of this process (base/log.h) is written like the workers' stderr, so that the loop
     * never waits for a full stderr. Then main has to call cr_log_flush() at the end. */
    int carries_log;
};

#endif
