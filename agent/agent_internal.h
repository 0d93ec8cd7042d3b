/* The agent, as its two files see it: agent.c (its life, and the node's actions) and agent_events.c
 * (events for the node). */
#ifndef AGENT_INTERNAL_H
#define AGENT_INTERNAL_H

#include "agent/agent.h"
#include "agent/answers.h"
#include "agent/attempt.h"
#include "agent/case_file.h"
#include "agent/hang.h"
#include "agent/history.h"
#include "agent/node/node.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/report/report.h"
#include "agent/role.h"
#include "agent/status.h"
#include "agent/suspension.h"
#include "agent/watchdog/watchdog.h"
#include "agent/worker_channel.h"
#include "base/log_limit.h"
#include "rendezvous/rendezvous.h"
#include "status/status.h"

#include <stdint.h>

struct agent {
    uv_loop_t *loop;
    const struct agent_job *job;
    char host[256];
    struct node node;
    uv_timer_t timer; /* libuv timer for the next node_tick(), which is due at node_deadline() */
    /* time at which the timer expires (ms, monotonic clock); CR_FOREVER if the timer is stopped */
    int64_t timer_ms;

    struct rendezvous_round round;     /* the current round; between two rounds, the last one */
    const char **roles; /* [number of workers], by local rank: roles; NULL if all have one role */
    int rounds;                        /* number of rounds that this agent has begun */
    struct worker_process **processes; /* [number of workers], by local rank; NULL for a worker that
                                        * is not started or has ended */
    /* this pointer and the pointers below are NULL until their objects are opened */
    struct nursery *nursery;
    struct rendezvous *rendezvous;
    struct worker_channels *channels;
    struct log_dir logs;
    struct log_relay *relay;
    struct watchdog *watchdog; /* NULL if the job has no timer file */
    struct suspension_watch suspension;
    struct hang *hang; /* NULL if the job has no hang timeout */
    struct answers answers;
    struct case_file case_file;
    struct cr_log_limit node_lines; /* log lines that workers can cause */
    struct history history;
    struct status_server *status; /* NULL if the job has no status address */
    enum ledger_cause change; /* kind of the change that was announced last in this round */

    /* time (ms, monotonic clock) at which this node's lease ends: the warden then ends the workers,
     * because other nodes may get their ranks; CR_FOREVER if no other node can get them */
    int64_t lease_end_ms;
    int64_t began_ms;
    /* why workers could not be started, or why the rendezvous has ended the job */
    struct cr_error error;
    struct cr_buffer report, summary;
    struct agent_result result;
    int open_parts; /* while the agent closes: number of its parts (nursery, timer …) that are not
                     * closed yet; else 0 */
    int failed_start;
    void (*on_done)(void *arg, const struct agent_result *result);
    void *arg;
};

static inline uint32_t agent_worker_count(const struct agent *a) {
    return a->job->rendezvous.local_world_size;
}

/* ---- agent.c ---- */

/* Returns the fields that all events of this agent (agent/report/events.h) have in common. */
struct event_source agent_event_source(const struct agent *a);
/* Starts the timer for the node's next deadline. Call this at the end of every callback that passes
 * an event to the node. */
void agent_arm_timer(struct agent *a);
/* Sets the time at which the warden ends the workers if this process stands still. While workers
 * may have ranks, this is the end of this node's lease; otherwise there is no such time. */
void agent_set_fence(struct agent *a);

/* ---- agent_events.c: what the agent's parts call; the argument is the agent ---- */

extern const struct nursery_events agent_nursery_events;
extern const struct watchdog_events agent_watchdog_events;
extern const struct hang_calls agent_hang_calls;
extern const struct rendezvous_events agent_rendezvous_events;
extern const struct worker_channel_events agent_channel_events;
extern const struct status_source agent_status_source; /* without its argument */

/* Call this when this machine was suspended. The clock of the rendezvous did not run during the
 * suspension, so this function passes its length: the lease may be over, and other nodes may run
 * with the ranks of this node's workers. */
void agent_on_resumed(void *arg, int64_t slept_ms);

#endif
