/* What the files of the agent's shell share: agent.c (events and actions), attempt.c (starting the
 * workers of a round), change.c (changes with notice, workers that stay), case_file.c (who failed). */
#ifndef AGENT_AGENT_INTERNAL_H
#define AGENT_AGENT_INTERNAL_H

#include "agent/agent.h"
#include "agent/output/log_relay.h"
#include "agent/process/nursery.h"
#include "agent/report/report.h"
#include "agent/watchdog/watchdog.h"
#include "agent/worker_group.h"
#include "agent/worker_channel.h"
#include "base/buffer.h"

/* A worker of the current attempt, or of the last one until the next begins. */
struct worker {
    struct agent *agent;
    uint32_t local_rank;
    struct worker_process *process; /* NULL: not started, or ended */
    int started, ended;
    uint32_t attempt; /* its log folder's: of its start, not of its round */
    int64_t started_ns;
    int timer_expired; /* the watchdog sent it a signal */
    int64_t hung_ms;   /* it was ended for making no step for so long; 0 = it was not */
    uint64_t hung_step;
    struct worker_exit how; /* once ended */

    int stays;      /* spared while the others are stopped: it has asked to be in the next round … */
    int parked;     /* … and waits for it */
    int takes_part; /* in the announced change: it stops after a certain step */
    int made_way;   /* … and has done so */
};

/* The change that the rendezvous has announced. */
struct change {
    uint64_t id; /* 0 = none */
    int is_set;  /* the step after which it takes place is known */
    int told_ready;
};

/* This node's own notice. */
struct leaving {
    int given;
    char why[256];
    uv_timer_t deadline;
};

struct agent {
    uv_loop_t *loop;
    const struct agent_job *job;
    char host[256];
    struct worker_group group;
    struct rendezvous_round round; /* the current one, or the last */
    int rounds;
    struct worker *workers;  /* [local_world_size] */
    struct nursery *nursery; /* NULL until opened */
    int nursery_is_empty;    /* since it was last told to end: nothing but workers that stay */
    struct rendezvous *rendezvous;
    struct worker_channels *links;
    struct change change;
    struct leaving leaving;
    uv_timer_t patience; /* with workers that ask for another round though nobody failed */
    uv_timer_t stay;     /* how long those that may stay have to say so */
    uv_timer_t dump;     /* how long a hung worker has for its flight record */
    uint64_t dumps;      /* asked for so far */
    struct log_dir logs;
    struct log_relay *relay;
    struct watchdog *watchdog; /* NULL: nobody asked for one */
    uint64_t oom_kills;        /* counted before the attempt */
    char broken[512];          /* the attempt ended because of this, no worker having failed; or "" */
    int64_t began_ms;
    struct cr_error error; /* of a start that failed, or the rendezvous' last words */
    struct cr_buffer report;
    struct agent_result result;
    int open_parts; /* nursery, rendezvous, links, timers, relay, watchdog: still to be closed */
    int failed_start;
    void (*on_done)(void *arg, const struct agent_result *result);
    void *arg;
};

static inline uint32_t worker_count(const struct agent *a) {
    return a->job->rendezvous.local_world_size;
}

/* What the agent's events (report.h) have in common. */
static inline struct event_source event_source(const struct agent *a) {
    return (struct event_source){.enabled = a->job->console_events,
                                 .run_id = a->job->rendezvous.run_id,
                                 .role = a->job->rendezvous.role,
                                 .backend = a->job->rendezvous.backend,
                                 .entry_point = a->job->title,
                                 .host = a->host};
}

/* ---- agent.c ---- */

/* Feeds the policy and does what it answers. */
void agent_step(struct agent *a, enum group_event_type type, uint32_t count, int64_t ms);
/* Something ended or was parked: perhaps the attempt is over. */
void agent_look_if_empty(struct agent *a);

/* ---- case_file.c: the evidence on the attempt's failures, and what to say of it ---- */

/* The failure report and the error file for whoever started us. */
void case_write_report(struct agent *a);
/* One line about the first failure so far; `out` stays empty if memory is short or none is known. */
void case_write_first(struct agent *a, struct cr_buffer *out);

/* ---- attempt.c ---- */

/* Starts the round's workers, and hands the round to those that stayed. *running of them are there
 * now. Returns 0, or -1 if one could not be started: a->error says why. */
int attempt_start(struct agent *a, uint32_t *running);

/* ---- change.c ---- */

/* Announced by the rendezvous; see rendezvous.h. */
void change_announced(struct agent *a, const struct rendezvous_change *change);
void change_set(struct agent *a, uint64_t id, uint64_t step, int64_t left_ms);
/* A worker says, or shows by its end, that it has done what the change asked for. */
void change_made_way(struct agent *a, struct worker *w);
/* The worker that has just ended had stopped for the announced change. */
int change_was_reason(const struct agent *a, const struct worker *w);
void change_over(struct agent *a); /* with its round */

/* Stops the workers, but for those that may stay. */
void stop_workers(struct agent *a, int signum, int64_t grace_ms);
/* The job ends: nobody stays. */
void stop_stayers(struct agent *a);
/* Nothing of the round lives any more but parked workers? */
int only_parked_live(const struct agent *a);

/* What workers say through their links. */
extern const struct worker_channel_events agent_channel_events;

#define CHANGE_TIMERS 4
void change_timers_init(struct agent *a);
void change_timers_close(struct agent *a, uv_close_cb on_closed);

#endif
