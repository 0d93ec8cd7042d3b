/* A worker's environment and arguments, as torchrun computes them (docs/usage.md lists every
 * variable). Pure: the launcher's own environment is a parameter.
 *
 * One attempt has one `struct environment`; the texts that all its workers share are built once.
 * What differs between workers (LOCAL_RANK, RANK, ROLE_RANK, the error file, the channel, a virtual
 * GPU) is written for one worker at a time, over those of the worker before. Where several are
 * needed at the same time, each worker gets a copy. */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

#include "agent/agent_job.h"
#include "base/buffer.h"

struct environment {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    const char *visible_devices; /* the launcher's CUDA_VISIBLE_DEVICES, or NULL */
    struct cr_buffer shared;     /* texts of the variables that all workers share */
    size_t env_count, argc;      /* elements of the two lists, without the NULLs */
    char **envp;                 /* the worker's own variables, the shared, the inherited */
    struct cr_buffer own;        /* texts of the current worker's own variables */
    char **argv;                 /* of the current worker; NULL: no argument has a '$' */
    struct cr_buffer argv_text;
};

/* `inherited` is the launcher's environment, NULL-terminated. All three pointers are borrowed until
 * environment_done(). Returns 0 or -ENOMEM. */
int environment_init(struct environment *e, char *const *inherited, const struct agent_job *job,
                     const struct rendezvous_round *round);
void environment_done(struct environment *e);

/* Makes a copy that borrows the shared texts of `from`; `from` must live longer. Returns 0 or
 * -ENOMEM. */
int environment_copy(const struct environment *from, struct environment *out);

/* Both write the list of the worker `local_rank`, which is valid until the next call. `error_file`
 * is its path, or "" for none. `channel` is "CRUN_AGENT=…" (worker_channel.h). Return 0, -ENOMEM,
 * or -EINVAL: CUDA_VISIBLE_DEVICES has no entry for this local rank. */
int environment_for(struct environment *e, uint32_t local_rank, const char *error_file,
                    const char *channel, char *const **envp, struct cr_error *err);
int environment_arguments(struct environment *e, uint32_t local_rank, char *const **argv,
                          struct cr_error *err);

#endif
