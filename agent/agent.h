/* The agent supervises the workers of one node: it starts, watches, restarts, stops and reports
 * them, and relays their output. It parses no command line: a launcher fills in a `struct
 * agent_job`, runs the loop and receives a result. agent_claim_process() is the only function here
 * that changes process-wide state. Source of the behaviour: torchrun; docs/usage.md lists the
 * differences. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "agent/agent_job.h"
#include "base/error.h"
#include "rendezvous/rendezvous.h"

#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

enum agent_outcome {
    AGENT_SUCCEEDED,
    AGENT_FAILED,   /* workers failed and the budget is spent: see `report` */
    AGENT_SIGNALED, /* after agent_signal() */
    AGENT_LEFT,     /* after agent_notice(): see `error`; the job may go on without this node */
    AGENT_ERROR,    /* the agent could not go on: see `error` */
};

struct agent_result {
    enum agent_outcome outcome;
    int signal;            /* AGENT_SIGNALED: the first signal */
    int workers_started;   /* 1: a worker was started at least once */
    struct cr_error error; /* AGENT_ERROR, AGENT_LEFT */
    const char *report;    /* AGENT_FAILED: the failure report for stderr, ends in a newline;
                              borrowed until agent_free() */
};

struct agent;

/* Prepares this process to hold workers: it becomes the sub-reaper of its descendants, no longer
 * ignores SIGCHLD, and raises its limit of open files to the maximum (workers get the old limit
 * back). The effect is process-wide, so main calls it, before it starts threads. From then on an
 * adopted child that leads a session of its own counts as an orphan of a worker: it is reaped when
 * it dies and killed when the worker group ends. Children that exist already, and children in our
 * own session (of popen() or uv_spawn(), for example) are never touched. Returns 0, or a negative
 * errno with a text. */
int agent_claim_process(struct cr_error *err);

/* Checks everything that can be checked before a start (log folder, program, ports), and joins the
 * job. `job` is borrowed until on_done. on_done runs once, on the loop, when no worker and no
 * handle of the agent is left. Returns 0, or a negative errno with a text; then nothing was
 * started, and on_done never runs. */
int agent_start(uv_loop_t *loop, const struct agent_job *job,
                void (*on_done)(void *arg, const struct agent_result *result), void *arg,
                struct agent **out, struct cr_error *err);

/* The launcher has received a signal. The workers receive the same signal, and SIGKILL after
 * shutdown_timeout_ms. A second call sends SIGTERM and starts the timeout again. */
void agent_signal(struct agent *agent, int signum);

/* This node has to leave within left_ms (`kind`: LEAVE, PREEMPTION or MAINTENANCE). Workers that
 * count their steps stop together with those of all other nodes, and may save. Then all workers of
 * this node are stopped, and the other nodes go on without it. */
void agent_notice(struct agent *agent, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why);

/* Asks the workers that use the worker runtime for their flight records. */
void agent_dump(struct agent *agent, const char *why);

void agent_free(struct agent *agent); /* after on_done; NULL is fine */

#endif
