/* What a worker finds around it: its environment and its arguments, as torchrun computes them
 * (docs/usage.md lists every variable). Pure: the launcher's own environment comes in as a value.
 *
 * One attempt has one `struct environment`: what all its workers share is built once. What differs
 * (LOCAL_RANK, RANK, ROLE_RANK, the error file, a virtual GPU) is written over for each worker in
 * turn, or into a copy for each, where several are needed at once. */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

#include "agent/agent_job.h"
#include "base/buffer.h"

struct environment {
    const struct agent_job *job;
    const struct rendezvous_round *round;
    const char *visible_devices; /* the launcher's CUDA_VISIBLE_DEVICES, or NULL */
    struct cr_buffer shared;     /* texts of this attempt */
    size_t env_count, argc;      /* entries of the two lists, without the NULLs */
    char **envp;                 /* the own variables first, then the shared, then the inherited */
    struct cr_buffer own;        /* texts of the current worker */
    char **argv;                 /* the current worker's, or NULL: no argument has a '$' */
    struct cr_buffer argv_text;
};

/* `inherited` is the launcher's environment, NULL-terminated. All three are borrowed until
 * environment_done. 0 or -ENOMEM. */
int environment_init(struct environment *e, char *const *inherited, const struct agent_job *job,
                     const struct rendezvous_round *round);
void environment_done(struct environment *e);

/* Another one, that borrows what is shared from `from`, which must live longer. 0 or -ENOMEM. */
int environment_copy(const struct environment *from, struct environment *out);

/* Both are for the worker `local_rank`, valid until the next call for another; `error_file` is its
 * path, or "" for none; `link` is "CRUN_AGENT=…" (worker_channel.h). -ENOMEM, or -EINVAL: the virtual local rank has no entry in
 * CUDA_VISIBLE_DEVICES. */
int environment_for(struct environment *e, uint32_t local_rank, const char *error_file,
                    const char *link, char *const **envp, struct cr_error *err);
int environment_arguments(struct environment *e, uint32_t local_rank, char *const **argv,
                          struct cr_error *err);

#endif
