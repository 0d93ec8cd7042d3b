/* Builds the environment and the arguments of workers, as torchrun does (docs/usage.md lists every
 * variable). Pure: no I/O; the launcher's own environment is passed in as a parameter.
 *
 * One attempt has one `struct environment`, which holds the variables that all its workers share.
 * Those that differ (LOCAL_RANK, RANK, ROLE_RANK, the error file, CUDA_VISIBLE_DEVICES) are written
 * for one worker at a time, or into one copy per worker if several workers are started at once. */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

#include "agent/agent_job.h"
#include "base/buffer.h"

struct environment {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    /* value of CUDA_VISIBLE_DEVICES in the launcher's environment, or NULL */
    const char *visible_devices;
    struct cr_buffer shared; /* variables that all workers share, each ended by a NUL */
    size_t env_count, argc;  /* entries of envp and of argv, without the NULL at the end */
    /* pointers to the worker's own variables, the shared ones and the inherited ones, in this
     * order */
    char **envp;
    struct cr_buffer own; /* the current worker's own variables, each ended by a NUL */
    char **argv;          /* the current worker's arguments; NULL if no argument has a '$' */
    struct cr_buffer argv_text;
};

/* Initialises an environment. `inherited` is the launcher's environment, NULL-terminated. All three
 * pointers must stay valid until environment_done(). Returns 0 or -ENOMEM. */
int environment_init(struct environment *e, char *const *inherited, const struct agent_job *job,
                     const struct rendezvous_round *round);
void environment_done(struct environment *e);

/* Copies `from`, so that variables of another worker can be written into the copy. The copy points
 * to the shared variables of `from`, which must live longer than the copy. Returns 0 or -ENOMEM. */
int environment_copy(const struct environment *from, struct environment *out);

/* Write the environment and the arguments of the worker `local_rank`, which are valid until the
 * next call of the same function with the same `e`. `error_file` is the path of its error file, or
 * ""; `link` is the variable CRUN_AGENT=… (worker_channel.h). Return 0, or a negative errno and set
 * err to a text: -ENOMEM, or -EINVAL if CUDA_VISIBLE_DEVICES has no entry for a worker with a
 * virtual local rank. */
int environment_for(struct environment *e, uint32_t local_rank, const char *error_file,
                    const char *channel, char *const **envp, struct cr_error *err);
int environment_arguments(struct environment *e, uint32_t local_rank, char *const **argv,
                          struct cr_error *err);

#endif
