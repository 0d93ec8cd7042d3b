/* Chooses the exit status of crun. */
#include "launcher/exit_status.h"

#include <errno.h>

static int failure_status(enum agent_cause cause) {
    switch (cause) {
    case AGENT_CAUSE_WORKER: return EXIT_FAILED;
    case AGENT_CAUSE_BUDGET: return EXIT_BUDGET;
    case AGENT_CAUSE_OOM: return EXIT_OOM;
    case AGENT_CAUSE_HANG: return EXIT_HANG;
    case AGENT_CAUSE_NO_REQUEUE: return EXIT_NO_REQUEUE;
    case AGENT_CAUSE_RENDEZVOUS: return EXIT_RENDEZVOUS;
    case AGENT_CAUSE_MACHINE: return EXIT_MACHINE;
    }
    return EXIT_FAILED;
}

int exit_status_of(const struct agent_result *result, bool distinct) {
    if (result->outcome == AGENT_SUCCEEDED) return EXIT_OK;
    if (!distinct) return EXIT_FAILED;
    switch (result->outcome) {
    case AGENT_SUCCEEDED: return EXIT_OK;
    case AGENT_SIGNALED: return 128 + result->signal;
    case AGENT_LEFT: return EXIT_LEFT;
    case AGENT_FAILED:
    case AGENT_ERROR: return failure_status(result->cause);
    }
    return EXIT_FAILED;
}

int exit_status_of_start(int rc, bool distinct) {
    if (!distinct) return EXIT_FAILED;
    /* -EINVAL means that the rendezvous has found options that contradict each other */
    return rc == -EINVAL ? EXIT_USAGE : EXIT_MACHINE;
}
