/* Converts the texts of options and environment variables into the description of a job: the
 * agent's options, and the signals that crun handles. (launcher/program.h decides which program is
 * executed.) All facts about the machine come from the functions of `struct job_world`, which tests
 * replace. */
#ifndef LAUNCHER_JOB_H
#define LAUNCHER_JOB_H

#include "agent/agent.h"
#include "launcher/devices/devices.h"
#include "launcher/options/options.h"

#include <signal.h>

#define JOB_WARNINGS_MAX 8

/* Where job_build() gets environment variables and facts about the machine from. */
struct job_world {
    cr_getenv_fn lookup; /* returns an environment variable */
    void *arg;           /* first parameter of every function in this struct */
    uint32_t (*cpu_count)(void *arg);
    int (*gpu_count)(void *arg, const char *visible_devices, uint32_t *count, struct cr_error *err);
    /* Returns the number of accelerators of this kind; it is accelerator_count() of
     * launcher/devices/accelerators.h. If the pointer is NULL, the machine counts as one without
     * accelerators. */
    uint32_t (*accelerator_count)(void *arg, enum accelerator kind);
    /* Chooses the CPUs of each worker; it is numa_bind_workers() of launcher/devices/numa.h. */
    int (*bind)(void *arg, enum numa_mode mode, const char *visible_devices, uint32_t workers,
                struct cr_cpu_mask *masks, struct cr_error *err);
    /* Fills out[] with random bytes; returns 0 or a negative errno. */
    int (*random)(void *arg, unsigned char out[16]);
};

struct job {
    bool distinct_exit_codes;         /* --exit-codes=distinct */
    /* crun.c sets argv and title; job_build() sets all other fields. */
    struct agent_job agent;
    /* [agent.program_count]: the array to which agent.programs points; crun.c sets argv and title
     * of its elements. NULL if agent.programs is NULL. */
    struct agent_program *programs;
    struct program_line *lines;       /* [agent.program_count]: the command line of each program
                                       * behind a ":"; element 0 is not used */
    sigset_t signals;                 /* --signals-to-handle */
    sigset_t preemption_signals;      /* --preemption-signals */
    int64_t preemption_notice_ms;     /* --preemption-notice, in milliseconds */
    const char *signals_text;         /* value of --signals-to-handle, which is exported to the
                                       * workers */
    char *warnings[JOB_WARNINGS_MAX]; /* one line each; crun.c logs them after agent_start() */
    unsigned warning_count;
    struct job_block *memory;         /* private to job.c: memory that other fields point to */
};

/* Fills in *out. The texts in *out point into the options and the environment, so these must stay
 * valid until job_done(). Returns 0; or a negative errno, and sets err to a text that names the
 * option or its variable, the value, and the remedy. Call job_done() after an error, too. */
int job_build(const struct options *options, const struct job_world *world, struct job *out,
              struct cr_error *err);
void job_done(struct job *job);

#endif
