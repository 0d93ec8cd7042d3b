/* Turns options and environment into the description of a job: the agent's options, and which
 * signals main handles. What is executed is decided in launcher/program.h. All that depends on
 * the machine is asked through `struct job_world`, so that tests can replace the machine. */
#ifndef LAUNCHER_JOB_H
#define LAUNCHER_JOB_H

#include "agent/agent.h"
#include "launcher/numa_binding.h"
#include "launcher/options.h"

#include <signal.h>

#define JOB_WARNINGS_MAX 8

/* What a job depends on besides its options. */
struct job_world {
    cr_getenv_fn lookup;
    void *arg; /* for every function here */
    uint32_t (*cpu_count)(void *arg);
    int (*gpu_count)(void *arg, const char *visible_devices, uint32_t *count, struct cr_error *err);
    /* As numa_bind_workers() of launcher/numa.h. */
    int (*bind)(void *arg, enum numa_mode mode, const char *visible_devices, uint32_t workers,
                struct cr_cpu_mask *masks, struct cr_error *err);
    int (*random)(void *arg, unsigned char out[16]); /* 0 or a negative errno */
};

struct job {
    struct agent_job agent;           /* all but argv and title, which launcher/program.h sets */
    sigset_t signals;                 /* --signals-to-handle */
    sigset_t preemption_signals;      /* --preemption-signals */
    int64_t preemption_notice_ms;     /* --preemption-notice */
    const char *signals_text;         /* --signals-to-handle as given, for the workers */
    char *warnings[JOB_WARNINGS_MAX]; /* a line each, for main to log once the job has begun */
    unsigned warning_count;
    struct job_block *memory;         /* private: the memory that the fields point to */
};

/* Returns 0, or a negative errno with a text that names the option or its variable, the value,
 * and the remedy. *out points into the options and the environment. Call job_done() in both
 * cases. */
int job_build(const struct options *options, const struct job_world *world, struct job *out,
              struct cr_error *err);
void job_done(struct job *job);

#endif
