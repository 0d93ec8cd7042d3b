/* Builds the environment and the arguments of workers, as torchrun does (docs/usage.md lists every
 * variable). Pure: no I/O; the launcher's own environment is a parameter.
 *
 * One attempt has one `struct environment` with the variables that all its workers share. Variables
 * that differ between workers (LOCAL_RANK, RANK, ROLE_RANK, the error file, CUDA_VISIBLE_DEVICES)
 * are written for one worker at a time; if several workers are started at once, each gets a copy of
 * the struct. */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

#include "agent/agent_job.h"
#include "base/buffer.h"

#include <stdbool.h>

/* name of the socket of torch's worker server in the worker's log folder */
#define ENVIRONMENT_TORCH_SOCKET "torch.sock"

struct environment {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    /* Two arrays, indexed by enum agent_visible. narrows: true if each worker gets only one entry
     * of this variable. visible: the value of the variable in the launcher's environment, or
     * NULL. */
    bool narrows[AGENT_VISIBLE_COUNT];
    const char *visible[AGENT_VISIBLE_COUNT];
    /* True if workers get the variables that let crun look into torch. torch ends a worker that
     * cannot make its pipe, so set this only if the workers have log folders in which pipes can be
     * made, and after environment_init(). */
    bool has_torch_files;
    bool keeps_torch_files;  /* true if the user has chosen the path of torch's pipe or record; crun
                              * sets neither in this case */
    struct cr_buffer shared; /* variables that all workers share, each ended by a NUL */
    size_t env_count, argc;  /* number of entries of envp, and of argv; the NULL at the end is not
                              * counted */
    /* pointers to variables: first the worker's own, then the shared ones, then the inherited
     * ones */
    char **envp;
    struct cr_buffer own; /* the current worker's own variables, each ended by a NUL */
    char **argv;          /* the current worker's arguments; NULL if no argument has a '$' */
    struct cr_buffer argv_text;
};

/* Initialises an environment. `inherited` is the launcher's environment, NULL-terminated.
 * `inherited`, `job` and `round` must stay valid until environment_done(). Returns 0 or -ENOMEM. */
int environment_init(struct environment *e, char *const *inherited, const struct agent_job *job,
                     const struct rendezvous_round *round);
void environment_done(struct environment *e);

/* Makes *out a copy of `from`, into which the own variables of another worker can be written. The
 * copy points to the shared variables of `from`, so it is valid only until environment_done() is
 * called for `from`. Returns 0 or -ENOMEM. */
int environment_copy(const struct environment *from, struct environment *out);

/* environment_for() makes the environment of the worker `local_rank` and sets *envp to it;
 * environment_arguments() makes its arguments and sets *argv. Each result is valid until the next
 * call of the same function with the same `e`. `error_file` is the path of the worker's error file,
 * or ""; `channel` is the variable CRUN_AGENT=… (worker_channel.h). Both return 0; or a negative
 * errno, and set err: -ENOMEM, or -EINVAL if a list such as CUDA_VISIBLE_DEVICES has no entry for a
 * worker with a virtual local rank. */
int environment_for(struct environment *e, uint32_t local_rank, const char *error_file,
                    const char *channel, char *const **envp, struct cr_error *err);
int environment_arguments(struct environment *e, uint32_t local_rank, char *const **argv,
                          struct cr_error *err);

#endif
