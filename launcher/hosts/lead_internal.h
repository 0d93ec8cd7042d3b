/* Decides, for the starter, when a job on several hosts starts and how it ends. Pure.
 *
 * Each host is in one of these states:
 *
 *     STARTING ─ready─► READY ─go─► RUNNING ─ended─► ENDED
 *         └───────────────┴────────────┴───lost────► LOST
 *
 * Nothing in this file limits the time in STARTING: ssh's own time limits do. READY ends when the
 * job starts, at the latest last_call_ms after enough hosts are ready. The launchers' own time
 * limits end RUNNING.
 *
 * If all hosts are needed, the job starts when the first host of the list, which hosts the
 * rendezvous, is ready. Otherwise the job starts when all hosts are ready or lost, or when
 * last_call_ms have passed since min_nodes hosts were ready. A host that is ready after the start
 * of the job gets the order to start at once, and its launcher joins the running job.
 *
 * The job cannot go on when fewer than min_nodes hosts are left. If a launcher has failed, the
 * rendezvous usually tells the other launchers, which end by themselves. Those that still run
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
    LEAD_GIVE_UP, /* too few hosts can be reached: end everything at once */
    LEAD_FINISH  /* the job is over on all hosts that took part */
};

struct lead {
    uint8_t *states; /* [hosts]: enum lead_state; owned by the caller, who sets it to 0 */
    uint32_t hosts, min_nodes;
    int64_t last_call_ms;
    uint32_t count[LEAD_STATES]; /* number of hosts in each state */
    uint32_t succeeded;          /* number of launchers that ended with 0 */
    int status;                  /* exit status of the first launcher that failed; 1 if too many
                                  * hosts were lost before a launcher failed; 0 if neither has
                                  * happened */
    bool has_begun;              /* true after lead_went() */
    bool had_enough;             /* true once min_nodes launchers ran at the same time: before
                                  * that, no worker can have been started */
    bool is_stopping;            /* true after lead_stopped() */
    int64_t enough_ms; /* time at which min_nodes hosts were ready; CR_FOREVER before that */
    int64_t short_ms;  /* time at which the remaining launchers are stopped because too few hosts
                        * are left; CR_FOREVER if enough are left */
};

void lead_init(struct lead *l, uint8_t *states, uint32_t hosts, uint32_t min_nodes,
               int64_t last_call_ms);

/* Call lead_ready() when a host waits for the order to start its launcher, lead_ended() when its
 * launcher has ended, and lead_lost() when its deputy could not be started or the link to it is
 * gone. If the host has ended or is lost already, the last two calls have no effect. */
void lead_ready(struct lead *l, uint32_t host, int64_t now_ms);
void lead_ended(struct lead *l, uint32_t host, int status, int64_t now_ms);
void lead_lost(struct lead *l, uint32_t host, int64_t now_ms);

/* Returns what shall be done now. Call it after each event, until it returns LEAD_WAIT,
 * LEAD_GIVE_UP or LEAD_FINISH. */
enum lead_action lead_next(const struct lead *l, int64_t now_ms);

/* Returns the time at which lead_next() must be called even if no event comes; CR_FOREVER if there
 * is no such time. */
int64_t lead_deadline(const struct lead *l);

void lead_went(struct lead *l);    /* moves all READY hosts to RUNNING */
void lead_stopped(struct lead *l);
/* Returns the host that shall host the rendezvous: the first one that is ready. Call it before
 * lead_went(). */
uint32_t lead_hosting(const struct lead *l);
/* Returns the exit status of the starter, after LEAD_FINISH. */
int lead_status(const struct lead *l);

#endif
