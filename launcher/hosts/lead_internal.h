/* Decides, for the starter, when a job on several hosts starts and how it ends. Pure.
 *
 * Each host is in one of these states:
 *
 *     STARTING ─ready─► READY ─go─► RUNNING ─ended─► ENDED
 *         └───────────────┴────────────┴───lost────► LOST
 *
 * A host leaves STARTING when its deputy is ready or cannot be started; this file sets no time
 * limit for that, because ssh has limits of its own. It leaves READY when the job starts, at the
 * latest last_call_ms after min_nodes hosts are ready. It leaves RUNNING when its launcher ends,
 * which has time limits of its own.
 *
 * If all hosts are needed, the job starts when the first host of the list, which hosts the
 * rendezvous, is ready. Otherwise the job starts when all hosts are ready or lost, or when
 * last_call_ms have passed since min_nodes hosts were ready. A host that becomes ready after the
 * start of the job gets the order to start at once, and its launcher joins the running job.
 *
 * The job cannot go on when fewer than min_nodes hosts are left. If a launcher has failed, the
 * other launchers usually learn this by the rendezvous, and end. The launchers that still run
 * LEAD_GRACE_MS after the failure are stopped. */
#ifndef LAUNCHER_HOSTS_LEAD_H
#define LAUNCHER_HOSTS_LEAD_H

#include <stdbool.h>
#include <stdint.h>

#define LEAD_GRACE_MS INT64_C(5000)
#define LEAD_USAGE    2 /* exit status of a launcher that has refused its command line */

enum lead_state { LEAD_STARTING, LEAD_READY, LEAD_RUNNING, LEAD_ENDED, LEAD_LOST, LEAD_STATES };

enum lead_action {
    LEAD_WAIT,   /* wait for the next event, or until lead_deadline() */
    LEAD_GO,     /* start the launchers of all ready hosts, and call lead_went() */
    LEAD_STOP,   /* end the launchers in order, and call lead_stopped() */
    LEAD_GIVE_UP, /* too few hosts can be reached, so no worker runs: end everything at once */
    LEAD_FINISH  /* the job is over on all hosts that took part */
};

struct lead {
    uint8_t *states; /* [hosts]: enum lead_state; owned by the caller, who sets it to 0 */
    uint32_t hosts, min_nodes;
    int64_t last_call_ms;
    uint32_t count[LEAD_STATES]; /* number of hosts in each state */
    uint32_t succeeded;          /* number of launchers that ended with 0 */
    int status;                  /* exit status of the first launcher that failed; 1 if too many
                                  * hosts were lost before any launcher failed; 0 if neither has
                                  * happened */
    bool has_begun;              /* true after lead_went() */
    bool had_enough;             /* true once min_nodes launchers have run at the same time; before,
                                  * no worker can have started */
    bool is_stopping;            /* true after lead_stopped() */
    /* time in ms at which min_nodes hosts were ready; CR_FOREVER if this has not happened yet */
    int64_t enough_ms;
    /* time in ms at which the launchers that still run are stopped, because too few hosts are left;
     * CR_FOREVER if enough hosts are left */
    int64_t short_ms;
};

void lead_init(struct lead *l, uint8_t *states, uint32_t hosts, uint32_t min_nodes,
               int64_t last_call_ms);

/* Call lead_ready() when the deputy of a host waits for the order to start its launcher;
 * lead_ended() when the host's launcher has ended; lead_lost() when the deputy could not be started
 * or the link to it is gone. If the host has ended or is lost, the calls have no effect. */
void lead_ready(struct lead *l, uint32_t host, int64_t now_ms);
void lead_ended(struct lead *l, uint32_t host, int status, int64_t now_ms);
void lead_lost(struct lead *l, uint32_t host, int64_t now_ms);

/* Returns what the starter must do now. Call this after each event, carry out the result, and call
 * it again until it returns LEAD_WAIT, LEAD_GIVE_UP or LEAD_FINISH. */
enum lead_action lead_next(const struct lead *l, int64_t now_ms);

/* Returns the time in ms at which lead_next() must be called even if no event has come, or
 * CR_FOREVER if there is no such time. */
int64_t lead_deadline(const struct lead *l);

void lead_went(struct lead *l);    /* moves all READY hosts to RUNNING */
void lead_stopped(struct lead *l);
/* Returns the host that shall host the rendezvous: the first one in the list that is ready. Call
 * this before lead_went(). */
uint32_t lead_hosting(const struct lead *l);
/* Returns the exit status of the starter. Call this when lead_next() has returned LEAD_FINISH. */
int lead_status(const struct lead *l);

#endif
