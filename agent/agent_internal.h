/* Declarations that the agent's two files share: agent.c (opens and closes the agent, and carries
 * out the node's actions) and agent_events.c (passes events to the node). */
#ifndef AGENT_INTERNAL_H
#define AGENT_INTERNAL_H

#include "agent/agent.h"
#include "agent/attempt/attempt.h"
#include "agent/channel/worker_channel.h"
#include "agent/health/health.h"
#include "agent/inspection/inspection.h"
#include "agent/node/node.h"
#include "agent/output/log_relay.h"
#include "agent/preload.h"
#include "agent/process/nursery.h"
#include "agent/record/record.h"
#include "agent/report/report.h"
#include "agent/status.h"
#include "agent/suspension.h"
#include "agent/trainjob/trainjob.h"
#include "agent/watchdog/watchdog.h"
#include "base/log/log_limit.h"
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
    /* the pointers from `nursery` to `status` are NULL until their objects are opened */
    struct nursery *nursery;
    struct rendezvous *rendezvous;
    struct worker_channels *channels;
    struct preload preload;
    struct log_dir logs;
    struct log_relay *relay;
    struct watchdog *watchdog; /* NULL if the job has no timer file */
    struct suspension_watch suspension;
    bool is_hung_told; /* true if some pieces of a report that the job hangs have come, but not the
                        * last one */
    struct hang *hang; /* NULL if the job has no hang timeout, no rules on output and no notice */
    struct health *health; /* NULL if the job has no health check */
    struct health_options health_options;
    struct paired *paired; /* NULL if the job has no paired tests */
    bool is_unfit; /* true if the job ends because this node is not fit */
    bool joins; /* true while this node waits for the result of a health check, to join then */
    struct answers answers;
    struct case_file case_file;
    struct cr_log_limit node_lines; /* log lines that workers can cause */
    struct history history;
    struct cycle_info cycle_info;
    struct status_server *status; /* NULL if the job has no status address */
    struct trainjob *trainjob; /* NULL if nothing is reported to TrainJob */
    enum ledger_cause change; /* kind of the change that was announced last in this round */

    /* Time (ms, monotonic clock) at which this node's lease ends; CR_FOREVER if no other node can
     * get the ranks of this node's workers. At this time the warden ends the workers, because other
     * nodes may get their ranks. */
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
/* Tells the warden at which time it must end the workers if this process stands still. While this
 * node is in a round, this time is the end of the node's lease. Otherwise there is no such time. */
void agent_set_fence(struct agent *a);

/* ---- agent_events.c: callbacks for the agent's parts; `arg` is the agent ---- */

extern const struct nursery_events agent_nursery_events;
extern const struct watchdog_events agent_watchdog_events;
extern const struct hang_calls agent_hang_calls;
extern const struct rendezvous_events agent_rendezvous_events;
extern const struct worker_channel_events agent_channel_events;
extern const struct status_source agent_status_source; /* its field `arg` is set later */

/* Call this when a worker has written a line. */
void agent_on_line(void *arg, uint32_t local_rank, const char *line, size_t len);

/* Stores in *out what TrainJob's status server is told about this node's round; `arg` is the agent.
 * The caller sets out->is_done. */
void agent_read_progress(void *arg, struct trainjob_progress *out);

/* Call this when this machine was suspended for slept_ms. Passes this time to the rendezvous, whose
 * clock stood still during the suspension: the lease may be over, and other nodes may run with the
 * ranks of this node's workers. */
void agent_on_resumed(void *arg, int64_t slept_ms);

#endif
