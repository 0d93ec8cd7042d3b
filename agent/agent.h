/* The agent: one node's worker group. Starts, watches, logs, restarts, stops, reports.
 *
 * No command line and no process-global state: a front end fills a `struct agent_job`, runs the loop
 * and gets a result. Source of the behaviour: torchrun (docs/usage.md lists where we differ). */
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
    AGENT_FAILED,   /* workers failed, budget spent: `report` is the failure report */
    AGENT_SIGNALED, /* agent_signal() ended it */
    AGENT_LEFT,     /* agent_notice() did: `error` says why; the job may go on without this node */
    AGENT_ERROR,    /* could not go on: `error` says why */
};

struct agent_result {
    enum agent_outcome outcome;
    int signal;            /* AGENT_SIGNALED */
    int workers_started;   /* a worker was started at least once */
    struct cr_error error; /* AGENT_ERROR, AGENT_LEFT */
    const char *report;    /* AGENT_FAILED: text for stderr, ends in a newline; borrowed */
};

struct agent;

/* Makes this process fit to hold workers: sub-reaper of its descendants, SIGCHLD not ignored, the limit
 * of open files raised as far as it goes (workers get the old one back).
 * Process-wide, and therefore the choice of a front end, in main, before threads start. From then on
 * a child in a foreign session that nobody here started is taken for an orphan of a worker: reaped
 * when it dies and killed when the worker group ends. Children that this process already has by now,
 * and children in our own session (popen, uv_spawn), are never touched.
 * Returns 0, or a negative errno with a text. */
int agent_claim_process(struct cr_error *err);

/* Checks what can be checked before anything starts (log folder, program, ports) and begins.
 * on_done runs once, on the loop, when no worker and no handle of the agent is left.
 * Returns 0, or a negative errno with a text; then nothing was started and on_done never runs. */
int agent_start(uv_loop_t *loop, const struct agent_job *job,
                void (*on_done)(void *arg, const struct agent_result *result), void *arg,
                struct agent **out, struct cr_error *err);

/* The launcher got a handled signal: the workers get the same one, then SIGKILL after
 * shutdown_timeout_ms. A second call hastens: SIGTERM and the timeout anew. */
void agent_signal(struct agent *agent, int signum);

/* This node is to go away within left_ms (`kind`: LEAVE, PREEMPTION or MAINTENANCE). Workers that count
 * their steps stop together with those of all nodes and may save what they have; then all of this
 * node's workers are stopped and the others go on without it. */
void agent_notice(struct agent *agent, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why);

/* Asks the workers that have the worker runtime for their flight records. */
void agent_dump(struct agent *agent, const char *why);

void agent_free(struct agent *agent); /* after on_done */

#endif
