/* What the files of rendezvous/coordinator share.
 *
 *     coordinator.c   the phases, the messages of nodes with a seat, and coordinator_reconcile()
 *     joining.c       checks a JOIN, and gives the node a seat
 *     resuming.c      nodes that lose their connection, and a new coordinator of a running round
 *     settings.c      the settings of the job, and nodes that have others
 *     incarnation.c   tells the runs of one run id apart
 *     seats.c         the list of seats
 *     seat_table.c    hash tables that find a seat by instance or node rank
 *     forming.c       when a round forms, with which nodes and ranks (assignment.c)
 *     change.c        the end of a round with notice
 *     budget.c        how many restarts the job has left
 *     charge.c        whether a failed round costs a restart
 *     limits.c        leases, time limits, and the next deadline
 *     waiting.c       what nodes that wait for a round are told
 *     view.c          the state that operators, tests and the simulator can read */
#ifndef RENDEZVOUS_COORDINATOR_INTERNAL_H
#define RENDEZVOUS_COORDINATOR_INTERNAL_H

#include "rendezvous/coordinator/budget_internal.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/coordinator/seat_table_internal.h"
#include "rendezvous/types.h"

#define COORDINATOR_NEVER (-1)
#define SEAT_NAME_MAX     320

/* What a node has done in the change that is announced. */
enum seat_change {
    CHANGE_NONE,  /* the node was not sent CHANGE */
    CHANGE_ASKED, /* CHANGE was sent, CHANGE_ANSWER has not come yet */
    CHANGE_RUNS,  /* the node has answered CHANGE; its workers run until the agreed step */
    CHANGE_READY, /* the node's workers have made the agreed step, or count no steps */
    SEAT_CHANGE_COUNT
};

/* The change that is announced. There is at most one at a time. */
struct coordinator_change {
    bool open;         /* true: a change is announced */
    bool is_set;       /* true: the agreed step was sent to the nodes */
    bool is_hard;      /* true: a node leaves, so workers cannot get more time */
    uint32_t kind;     /* enum rendezvous_change_kind */
    uint64_t id;
    int64_t notice_ms; /* end of the notice; an answer before it can extend until_ms */
    int64_t until_ms;  /* time at which the round is stopped, even if nodes are not ready */
    int64_t step;      /* steps of the furthest worker in the answers so far; -1 = none */
};

/* The decision whether the failure that ended the last round costs a restart (charge.c). */
struct coordinator_charge {
    bool open;             /* true: a worker has failed, and the decision is not made yet */
    bool charged;          /* true: the failure was charged; the charge is refunded if a killed node
                            * goes soon */
    bool excused;          /* true: a node of the round is gone, which explains the failure */
    int64_t failed_ms;     /* time of the round's first FAILED */
    uint32_t unheard;      /* number of nodes of the round that may not know yet that it is over */
    /* until when a node whose worker was killed may go and so excuse the failure;
     * COORDINATOR_NEVER if no worker was killed */
    int64_t killed_until_ms;
    char what[RDZV_TEXT_MAX]; /* the failure, as the first FAILED described it */
};

/* What a new coordinator has heard of the round of an earlier coordinator (resuming.c). */
struct coordinator_rebuild {
    bool is_over;         /* that round was ended, so its nodes are stopped when they resume */
    bool has_change;      /* a change was announced in the earlier round */
    /* end of the lease of each node that has not been heard of; 0 = there is no earlier round */
    int64_t until_ms;
    uint64_t rounds_seen; /* number of the earlier round, plus 1 */
    uint32_t group_size;  /* how many nodes it has; 0 = unknown */
    uint32_t world_size;
    uint32_t counted;     /* how many of them have resumed */
    bool *is_counted;     /* by group rank: the node has resumed */
};

/* The tries to open the store of the next round, after the first one has failed. */
struct store_retry {
    int64_t first_ms;   /* time of the first try; COORDINATOR_NEVER = no try has failed */
    int64_t next_ms;    /* time of the next try */
    int64_t backoff_ms; /* how long to wait after the next try */
};

struct coordinator_seat {
    void *peer; /* its connection; NULL = the seat is suspended */
    uint32_t index; /* position in coordinator.seats */
    enum seat_state state;
    enum seat_change change;
    /* true if the node has not received ROUND for the running round; its JOIN is still to come, and
     * ROUND answers it */
    bool missed_round;
    bool local;
    bool unheard;   /* true: the seat is counted in charge.unheard */
    bool is_killed; /* true: one of the node's workers was killed in the failed round */
    char *host, *addr, *role;
    uint64_t pid, instance, connection;
    /* with fixed ranks, if a second node of its host has its node rank: that node, which is QUEUED;
     * and in the seat of that node: the seat that it waits for */
    struct coordinator_seat *next, *waits_for;
    uint64_t incarnation; /* as the node's JOIN named it; 0 = none */
    int64_t node_rank;
    uint32_t local_world_size;
    uint16_t store_port;  /* port of the store that the node offers; 0 = none */
    int64_t group_rank;   /* group rank in this coordinator's last round; -1 = it was not in it */
    int64_t old_rank;     /* group rank in an earlier round, as the node remembers it; -1 = none */
    uint32_t first_rank, first_role_rank, role_world_size; /* of the last round */
    int64_t stop_limit_ms; /* longest time in the states STOPPING and LEAVING */
    int64_t since_ms;     /* time at which the seat entered its state */
    uint32_t told;        /* number of WAITING messages since then */
    bool told_spare;      /* the last of them said that the node is a spare */
    int64_t heard_ms;     /* time of the node's last message */
    /* time at which limits.c first found the lease over, or COORDINATOR_NEVER */
    int64_t suspected_ms;
};

struct coordinator {
    const struct coordinator_actions *actions;
    void *arg;
    char *run_id;
    uint64_t id; /* 0 = it has none */

    /* settings of the job, from the JOIN of its first node */
    uint32_t min_nodes, max_nodes;
    bool fixed_ranks;
    bool skips_last_call; /* only the first round of a run has a last call */
    int64_t join_timeout_ms, last_call_timeout_ms, interval_ms, lease_ms, notice_ms;
    uint64_t digest;       /* of the first node's program and arguments; 0 = unknown */
    char digest_role[RENDEZVOUS_ROLE_MAX]; /* the role of that node */
    uint32_t warnings;     /* how many nodes with other settings have joined */

    /* number of this run of the job, see incarnation.c; 0 in phase EMPTY */
    uint64_t incarnation;
    bool is_drawn;         /* true: this coordinator has drawn the incarnation; no node has brought
                            * it */
    bool has_formed;       /* true: this coordinator has formed a round of this run */

    enum coordinator_phase phase;
    uint64_t round;        /* number of the last round; valid if group_size is not 0 */
    uint64_t next_round;   /* number that the next round will have */
    struct budget budget;
    bool follows_another;  /* an older coordinator of the job may still have a running round */
    /* before this time no round forms, because of such a round; 0 = at once */
    int64_t quiet_until_ms;
    bool may_form;         /* the coordinator has the right to form rounds */
    bool is_held;          /* a round would form now if it had that right */
    bool stands_by;        /* the host has closed all connections, the job is remembered */
    struct coordinator_charge charge;
    /* time since which nodes only wait for other nodes; join_timeout counts from it */
    int64_t forming_ms;
    /* a node was still stopping its workers when coordinator_reconcile_forming() last ran */
    bool had_stopping;
    /* end of the last call; COORDINATOR_NEVER while there are fewer than min_nodes */
    int64_t last_call_ms;
    bool members_changed;  /* true: a node has come or gone since the last round formed */
    uint32_t group_size;   /* number of nodes in the last round */
    uint32_t world_size;   /* number of workers in the last round */
    struct coordinator_store store; /* of the last round, if this coordinator has formed it */
    uint32_t suspended;    /* number of suspended seats */
    bool is_rebuilt;       /* the last round was formed by an earlier coordinator */
    struct coordinator_rebuild rebuild;
    struct coordinator_change change;
    struct store_retry store_retry;
    /* nodes of the round that have succeeded and closed their connection */
    uint32_t gone_after_success;
    int outcome;           /* an enum rendezvous_outcome, valid in phase ENDED */
    char why[RDZV_TEXT_MAX]; /* why the last round was stopped, or the job ended */

    struct coordinator_seat **seats;
    uint32_t seat_count, seat_cap;
    struct seat_table by_instance;  /* the seats of remote nodes */
    struct seat_table by_node_rank; /* with fixed ranks: all seats; else empty */
    uint32_t in_state[SEAT_STATE_COUNT], in_change[SEAT_CHANGE_COUNT];
    /* by group rank: the host whose node had this rank last, if no node has it now; else NULL */
    char **departed;
    uint32_t departed_count;
    int64_t wake_ms; /* the next deadline; CR_FOREVER = none */
};

/* ---- coordinator.c ---- */

/* Compares the state with the rules and takes the step that is due: forms a round, announces a
 * change, stops a round, or ends the job. Every event calls it at its end. */
void coordinator_reconcile(struct coordinator *c, int64_t now_ms);

/* Sets the phase, and logs the change. No other function writes `phase`. */
void coordinator_enter(struct coordinator *c, enum coordinator_phase next, const char *why);
void coordinator_start_forming(struct coordinator *c, int64_t now_ms, const char *why);
/* Ends the running round: sends STOP with the reason c->why to its nodes, which stop their workers
 * and join again. */
void coordinator_stop_round(struct coordinator *c, int64_t now_ms);
/* Ends the job: sends END with the reason c->why to all nodes. Their seats stay until their
 * connections are gone. */
void coordinator_end_job(struct coordinator *c, enum rendezvous_outcome outcome);

/* Frees the seat of a node that is gone, and stops the round if the node was running in it. The
 * reason is logged as "<node> <how>: <why>", for example "node 'n1' was lost: …". */
void coordinator_vacate(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *how, const char *why);
/* The same without coordinator_reconcile(), for a node that gets another seat at once: no round may
 * form without it in between, and if it was the last node, the job must not be forgotten. */
void coordinator_take_seat(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                           const char *how, const char *why);

void coordinator_log(struct coordinator *c, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void coordinator_set_why(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void coordinator_send_end(struct coordinator *c, void *peer, int outcome, const char *why);

/* ---- seats.c ---- */

/* Adds a seat in state JOINED. Returns NULL when memory is short. */
struct coordinator_seat *seat_new(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                  const struct rdzv_join *join);
/* Removes the seat from the table and frees it. c->departed keeps the host of its group rank. */
void seat_remove(struct coordinator *c, struct coordinator_seat *s);
void seats_free(struct coordinator *c);

/* Sets the seat's state, and its part in the change to CHANGE_NONE. No other function writes
 * `state`. */
void seat_enter(struct coordinator *c, struct coordinator_seat *s, enum seat_state next,
                int64_t now_ms);
/* Makes a new seat wait until `first`, which has its node rank, is gone. */
void seat_queue(struct coordinator *c, struct coordinator_seat *s, struct coordinator_seat *first,
                int64_t now_ms);
/* Sets the seat's part in the change. No other function writes `change`. */
void seat_take_part(struct coordinator *c, struct coordinator_seat *s, enum seat_change next);
/* Writes host, address and process id of the node to `out`, for a log line; the host alone is not
 * enough, because several nodes may have the same. */
void seat_name(const struct coordinator_seat *s, char out[SEAT_NAME_MAX]);

/* Sends a message to the node of the seat, unless the seat is suspended. */
void seat_send(struct coordinator *c, const struct coordinator_seat *s,
               const struct rdzv_message *m);

/* ---- joining.c ---- */

/* Sends REFUSED with the formatted text as the reason. Returns -EINVAL. */
int coordinator_refuse(struct coordinator *c, void *peer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Call this when a node has sent a message although another node waits for its node rank. It is not
 * gone, so the other node is refused. */
void coordinator_refuse_next(struct coordinator *c, struct coordinator_seat *s);
/* Returns 0 if the node may have a seat. If a silent node has its node rank, stores that node's
 * seat in *first, else NULL. Otherwise sends it the reason and returns a negative errno. The
 * settings in the first JOIN become the job's. */
int joining_admit(struct coordinator *c, int64_t now_ms, void *peer, const struct rdzv_join *j,
                  struct coordinator_seat **first);
/* Gives an admitted node a seat in state JOINED, behind the seat `first` if that is not NULL, and
 * sends it ACCEPTED. When memory is short, sends it the reason and returns NULL. */
struct coordinator_seat *joining_seat(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                      const struct rdzv_join *j, struct coordinator_seat *first);
/* Sends ACCEPTED. `differs` says in which settings the node differs from the job; "" = in none. */
void joining_accept(struct coordinator *c, void *peer, const char *differs);
/* Call this when a node was not admitted. Its older connection may have had the last seat. */
void joining_failed(struct coordinator *c, int64_t now_ms);

/* ---- resuming.c ---- */

/* Call this when the JOIN of a node has come that has missed ROUND of the running round. It sends
 * ROUND again, and the change that is announced, if there is one. */
void resuming_repeat_round(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s);
/* Call this with the JOIN of a node. If the node has a seat from an earlier connection that it can
 * keep, gives it that seat and returns it. That is a node whose workers are gone after STOP, or one
 * that has missed its ROUND. */
struct coordinator_seat *resuming_join(struct coordinator *c, int64_t now_ms, void *peer,
                                       const struct rdzv_join *j);
/* Call this when a node that was admitted shows which round it was in. If this coordinator is new,
 * it waits for the other nodes of that round. */
void resuming_heard_of_round(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j);
/* Returns whether no round may form yet, because nodes of an earlier coordinator's round may have
 * workers that run. */
bool resuming_must_wait(const struct coordinator *c, int64_t now_ms);
/* Call this in phase REBUILDING. It lets the earlier round go on, or ends it, once that is
 * decided. */
void resuming_reconcile(struct coordinator *c, int64_t now_ms);
/* Call this in phase REBUILDING with a message of a node, before it is handled as usual. */
void resuming_hear(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_message *m);
/* Forgets what was heard of an earlier round. */
void resuming_forget(struct coordinator *c);

/* ---- settings.c ---- */

/* Makes the settings in a node's JOIN those of the job. */
void settings_take(struct coordinator *c, const struct rdzv_join *j);
/* Writes to `text` in which settings the node differs from the job, each by name; "" = in none.
 * Logs a warning if there are any. */
void settings_compare(struct coordinator *c, const struct rdzv_join *j, char text[RDZV_TEXT_MAX]);

/* ---- incarnation.c ---- */

/* Call this when the first node joins. It takes over the incarnation that the node brings, or draws
 * that of a new run. */
void incarnation_begin(struct coordinator *c, const struct rdzv_join *j);
/* Returns 0 if the node is of this run or of none, or if its run is taken over. Otherwise sends it
 * REFUSED and returns -ESTALE. */
int incarnation_check(struct coordinator *c, void *peer, const struct rdzv_join *j);
/* Returns the incarnation for ACCEPTED: 0 while the coordinator may still take over another one. */
uint64_t incarnation_to_tell(const struct coordinator *c);
void incarnation_take_memories(struct coordinator *c, const struct rdzv_join *j);
/* Call this when a seat is gone. If it was the last one and the job has not ended, the coordinator
 * becomes EMPTY, as if it was new. */
void incarnation_end_if_empty(struct coordinator *c);

/* ---- forming.c ---- */

/* Sends the node its part of the last round. */
void coordinator_send_round(struct coordinator *c, const struct coordinator_seat *s);
/* Makes c->departed long enough for the group ranks 0 to n - 1. Returns 0 or -ENOMEM. */
int coordinator_reserve_departed(struct coordinator *c, uint32_t n);

void coordinator_reconcile_forming(struct coordinator *c, int64_t now_ms);
/* Call this when the first node has joined. */
void forming_wait_for_older_round(struct coordinator *c, int64_t now_ms);

/* ---- charge.c ---- */

/* Call this with the first FAILED of the running round, before the round is stopped. It opens the
 * decision whether the round costs a restart. */
void charge_open(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                 const struct rdzv_failed *f);
/* Call this with each FAILED of the round, the first one included. If the worker was killed, its
 * node may leave soon, which excuses the failure. */
void charge_killed(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_failed *f);
/* Call this with each message of a node. Returns true if it was the last node of a failed round
 * that might not have known yet that the round is over. */
bool charge_heard(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_message *m);
/* Stops waiting for the node; its seat is being removed. */
void charge_forget(struct coordinator *c, struct coordinator_seat *s);
/* Call this when a node leaves, or its connection is lost. If that explains the failure, the failed
 * round costs nothing. since_ms is the last time at which the node was there for certain. */
void charge_node_gone(struct coordinator *c, int64_t since_ms, const struct coordinator_seat *s);
/* Returns whether a round may form. If the failure has to be charged and the budget is spent, none
 * may, and the job ends as soon as no node can excuse the failure any more. */
bool charge_allows_round(struct coordinator *c, int64_t now_ms);
/* Call this when a round forms. Charges the failure of the last round, unless a node that is gone
 * explains it. */
void charge_close(struct coordinator *c);

/* ---- change.c ---- */

/* Announces to the nodes of the round that it ends within left_ms, with the reason c->why. `kind`
 * is an enum rendezvous_change_kind. */
void coordinator_announce(struct coordinator *c, int64_t now_ms, uint32_t kind, int64_t left_ms);
/* Repeats the messages of the announced change that the node has not answered. */
void coordinator_repeat_change(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s);
void coordinator_reconcile_change(struct coordinator *c, int64_t now_ms);
void coordinator_got_answer(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_change_answer *a);
void coordinator_got_ready(struct coordinator *c, struct coordinator_seat *s, uint64_t id);
void coordinator_got_notice(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_notice *n);

/* ---- waiting.c ---- */

/* Sends WAITING to the nodes whose time for it has come. */
void coordinator_tell_waiting(struct coordinator *c, int64_t now_ms);
/* Returns the time at which the node gets its next WAITING; CR_FOREVER = none. */
int64_t coordinator_waiting_due(const struct coordinator *c, const struct coordinator_seat *s);
/* Writes the hosts of the nodes that are here, as far as they fit; "none" if there are none. */
void coordinator_list_hosts(const struct coordinator *c, char *out, size_t room);
/* If ranks are fixed, writes "; missing: node rank 1, 3", as far as it fits; else "". */
void coordinator_list_missing(const struct coordinator *c, char *out, size_t room);

/* ---- limits.c ---- */

/* Returns the time at which the seat must have left its state, CR_FOREVER = no limit. See
 * SEAT_STATES in coordinator.h. */
int64_t coordinator_state_limit(const struct coordinator *c, const struct coordinator_seat *s);

/* Moves the next deadline to when_ms if it is later than that. */
void coordinator_wake_by(struct coordinator *c, int64_t when_ms);
/* Computes the next deadline from all time limits of the job and its seats. */
void coordinator_find_deadline(struct coordinator *c, int64_t now_ms);

#endif
