/* The agent supervises one node's worker group: it starts the workers, watches them, writes their
 * logs, restarts and stops them, and reports how they ended.
 *
 * The agent reads no command line: a front end, such as the launcher, fills in a struct agent_job,
 * calls agent_start(), runs the loop, and gets the result in on_done. The agent behaves like
 * torchrun's (docs/usage.md lists the differences). */
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
    AGENT_FAILED,   /* workers failed and the budget is spent; `report` is the failure report */
    AGENT_SIGNALED, /* agent_signal() has ended the job on this node */
    /* this node has left the job because of agent_notice(), and the job may go on without it;
     * `error` has the reason */
    AGENT_LEFT,
    AGENT_ERROR, /* the agent could not go on; `error` has the reason */
};

/* Why the job failed. */
enum agent_cause {
    AGENT_CAUSE_WORKER, /* a worker failed, and the job has no restarts */
    AGENT_CAUSE_BUDGET, /* a worker failed, and all restarts are used up */
    AGENT_CAUSE_OOM,    /* the kernel killed the worker that failed first, for lack of memory */
    AGENT_CAUSE_HANG,   /* workers hung */
    /* the worker that failed first has said by its exit code, 93, that a restart is of no use; or
     * its program could not be run (126, 127) */
    AGENT_CAUSE_NO_REQUEUE,
    AGENT_CAUSE_RENDEZVOUS, /* the coordinator is gone, or not enough nodes came */
    AGENT_CAUSE_MACHINE,    /* the system refused something: a port in use, no memory left */
};

struct agent_result {
    enum agent_outcome outcome;
    enum agent_cause cause; /* valid if outcome is AGENT_FAILED or AGENT_ERROR */
    int signal;            /* signal that ended the job, if outcome is AGENT_SIGNALED */
    bool gives_up_console; /* true if a signal has requested that crun does not wait for a console
                            * that takes no output */
    int workers_started;   /* 1 if a worker was ever started, else 0 */
    struct cr_error error; /* reason, if outcome is AGENT_ERROR or AGENT_LEFT */
    /* table "where the time went" for stderr, or NULL if the job wants none; it ends with a newline
     * and is valid until agent_free() */
    const char *summary;
    /* failure report for stderr, if outcome is AGENT_FAILED; it ends with a newline and is valid
     * until agent_free() */
    const char *report;
};

struct agent;

/* Prepares this process to have workers: makes it the sub-reaper of its descendants, sets SIGCHLD
 * to its default if it was ignored, and raises the limit of open files as far as possible (workers
 * get the old limit). Returns 0; or a negative errno, and sets err to a text that says what failed.
 *
 * These settings affect the whole process, so the front end decides about them: it calls this
 * function in main, before it starts threads. After the call, a child in another Unix session that
 * crun did not start itself counts as an orphan of a worker: it is reaped when it dies, and killed
 * when the worker group ends. Children that exist at the time of the call, and children in crun's
 * own Unix session (popen, uv_spawn), are never touched. */
int agent_claim_process(struct cr_error *err);

/* Checks what can be checked before workers start (log folder, ports), and starts the agent. `job`
 * must stay valid until on_done. on_done runs once, on the loop, when no worker and no handle of
 * the agent is left. Returns 0; or a negative errno, and sets err to a text that says what failed.
 * After an error nothing is running, and on_done never runs. */
int agent_start(uv_loop_t *loop, const struct agent_job *job,
                void (*on_done)(void *arg, const struct agent_result *result), void *arg,
                struct agent **out, struct cr_error *err);

/* Call this when the launcher has received a signal that ends it. The first call stops the workers:
 * it sends them the same signal, and SIGKILL after shutdown_timeout_ms. Calls less than 1 s after
 * the first call shorten nothing, because they may report copies of the same signal. The next call
 * sends SIGTERM, and SIGKILL after 5 s at most. The call after that one sends SIGKILL at once.
 * These last two calls also discard output that the console has not taken yet. */
void agent_signal(struct agent *agent, int signum);

/* Call this when this node has to leave the job within left_ms (`kind`: LEAVE, PREEMPTION or
 * MAINTENANCE). Workers that count their steps stop at the agreed step, together with the workers
 * of the other nodes, and can save. After that, all workers of this node are stopped, and the other
 * nodes go on without this node. */
void agent_notice(struct agent *agent, enum rendezvous_change_kind kind, int64_t left_ms,
                  const char *why);

/* Call this when the terminal has another size. Gives the size to the workers' pseudo terminals,
 * and sends SIGWINCH to all workers; a worker without a handler ignores it. */
void agent_resized(struct agent *agent);

/* Requests a flight record from each worker that uses the worker runtime. */
void agent_dump(struct agent *agent, const char *why);

void agent_free(struct agent *agent); /* frees the agent; only allowed after on_done has run */

#endif
