/* The exit status of crun. Pure: no I/O. */
#ifndef LAUNCHER_EXIT_STATUS_H
#define LAUNCHER_EXIT_STATUS_H

#include "agent/agent.h"

#include <stdbool.h>

/* The exit statuses with --exit-codes=distinct. With --exit-codes=torchrun, which is the default,
 * crun uses only the first three. docs/usage.md describes them. */
enum exit_status {
    EXIT_OK = 0,
    EXIT_FAILED = 1, /* workers failed and no restart was allowed, or crun failed for a reason that
                      * has no status of its own */
    EXIT_USAGE = 2,  /* the command line is wrong or the program cannot be run */
    EXIT_BUDGET = 81,
    EXIT_RENDEZVOUS = 82,
    EXIT_LEFT = 83,
    EXIT_OOM = 84,
    EXIT_HANG = 85,
    EXIT_MACHINE = 86,
    EXIT_NO_REQUEUE = 93, /* NVIDIA's NVRx uses this number, too */
};

/* Returns the exit status that crun has for the result of a job. `distinct` is true with
 * --exit-codes=distinct. */
int exit_status_of(const struct agent_result *result, bool distinct);

/* Returns the exit status that crun has if the agent could not be started; `rc` is the negative
 * errno. */
int exit_status_of_start(int rc, bool distinct);

#endif
