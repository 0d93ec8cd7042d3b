/* Arguments and environment in, a job description out. Pure but for what `struct job_world` lets it
 * ask, which tests replace; what is executed is program.h's question. */
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
    /* numa.h's numa_bind_workers */
    int (*bind)(void *arg, enum numa_mode mode, const char *visible_devices, uint32_t workers,
                struct cr_cpu_mask *masks, struct cr_error *err);
    int (*random)(void *arg, unsigned char out[16]); /* 0 or a negative errno */
};

struct job {
    struct agent_job agent;           /* all but argv and title, which program.h gives */
    sigset_t signals;                 /* --signals-to-handle */
    sigset_t preemption_signals;      /* --preemption-signals */
    int64_t preemption_notice_ms;     /* --preemption-notice */
    const char *signals_text;         /* as given: the workers' TORCHELASTIC_SIGNALS_TO_HANDLE */
    char *warnings[JOB_WARNINGS_MAX]; /* one line each, to be printed once the job has begun */
    unsigned warning_count;
    struct job_block *memory; /* private: what the fields above point into */
};

/* Returns 0; or a negative errno with a text that names the option (or its variable), the value and
 * the remedy. Borrows from the options and the environment until job_done(), which is fine after a
 * failure too. */
int job_build(const struct options *options, const struct job_world *world, struct job *out,
              struct cr_error *err);
void job_done(struct job *job);

#endif
