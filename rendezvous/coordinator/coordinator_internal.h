/* What the files of rendezvous/coordinator share.
 *
 *     coordinator.c   the phases, the messages of nodes with a seat, and coordinator_reconcile()
 *     joining.c       checks a JOIN, and gives the node a seat
 *     resuming.c      nodes that lose their connection, and a new coordinator of a running round
 *     settings.c      the settings of the job, and nodes that have other settings
 *     incarnation.c   tells the runs of one run id apart
 *     seats.c         the list of seats
 *     seat_table.c    hash tables that find a seat by instance or node rank
 *     succession.c    heirs, and whether this coordinator may decide (rules/electorate.c)
 *     forming.c       when a round forms, with which nodes and ranks (rules/assignment.c)
 *     change.c        the end of a round with notice
 *     aside.c         nodes of hosts on which something goes wrong again and again
 *                     (rules/standing.c)
 *     charge.c        whether a failed round costs a restart (rules/budget.c)
 *     limits.c        leases, time limits, and the next deadline
 *     waiting.c       the messages to nodes that wait for a round
 *     inquiry.c       asks nodes what their workers are in, to find who holds up the others
 *                     (rules/behind.c)
 *     ranks.c         asks nodes what their workers do, to show it, and to find slow ranks
 *                     (rules/slow.c)
 *     hang.c          whether the job hangs, and which rank is the odd one (inspect/inspect.h)
 *     pairs.c         paired tests between the nodes before a round (rules/pairs.c)
 *     view.c          the state that operators, tests and the simulator can read */
#ifndef RENDEZVOUS_COORDINATOR_INTERNAL_H
#define RENDEZVOUS_COORDINATOR_INTERNAL_H

#include "rendezvous/coordinator/coordinator.h"
#include "inspect/inspect.h"
#include "rendezvous/coordinator/seat_table_internal.h"
#include "rendezvous/rules/rules.h"
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
    bool is_hard;      /* true: a node leaves and cannot wait, so no answer extends until_ms */
    uint32_t kind;     /* enum rendezvous_change_kind */
    uint64_t id;
    /* end of the time that was announced; answers after it do not extend until_ms */
    int64_t notice_ms;
    int64_t until_ms;  /* time at which the round is stopped, even if nodes are not ready */
    int64_t step;      /* largest step in the answers so far; -1 = no answer named a step */
};

/* The decision whether the failure that ended the last round costs a restart (charge.c). */
struct coordinator_charge {
    bool open;             /* true: a worker has failed, and the decision is not made yet */
    /* true: the failure was charged; the restart is refunded if a node whose worker was killed is
     * gone by killed_until_ms */
    bool charged;
    /* true: the failure costs nothing, because a node of the round is gone, or because an earlier
     * coordinator of the round was lost */
    bool excused;
    bool is_counted;       /* true: standing.c has counted the failure for `host` */
    uint64_t round;        /* number of the failed round */
    char host[CR_HOST_MAX]; /* host of the node that sent the first FAILED */
    bool is_final;         /* true: the failure ends the job even if the budget has a restart */
    int64_t failed_ms;     /* time of the round's first FAILED */
    uint32_t unheard;      /* number of nodes that may not know yet that the round is over */
    /* a node whose worker was killed excuses the failure if the node is gone by this time;
     * COORDINATOR_NEVER if no worker was killed */
    int64_t killed_until_ms;
    char what[RDZV_TEXT_MAX]; /* the failure, as the first FAILED described it */
};

/* What a new coordinator has heard of the round of an earlier coordinator (resuming.c). */
struct coordinator_rebuild {
    bool is_over;         /* true: the earlier round is over; nodes that resume in it are stopped */
    bool has_change;      /* true: a change was announced in the earlier round */
    /* by this time the lease of every node that has not come back is over; 0 = no node has named an
     * earlier round */
    int64_t until_ms;
    uint64_t rounds_seen; /* number of the earlier round, plus 1; 0 = not known */
    uint64_t formed_by;   /* id of the coordinator that has formed that round; 0 = not known */
    uint32_t group_size;  /* number of nodes of the earlier round; 0 = unknown */
    uint32_t world_size;
    uint32_t counted;     /* number of nodes of the earlier round that have resumed */
    /* indexed by group rank: true if the node with this rank has resumed; NULL if none has */
    bool *is_counted;
};

/* What this coordinator knows for the case that a coordinator is lost: who takes over, and whether
 * this coordinator may decide (succession.c). */
struct coordinator_succession {
    /* true: this is an heir's coordinator, which forms no round before it has won an electorate */
    bool is_heir;
    bool allows_heirs;     /* true: the rounds of this coordinator have heirs */
    uint64_t own_instance; /* instance of the launcher in whose process this coordinator runs */
    /* `now` is the electorate of the last round. `before` is that of the round before it, and ends
     * when the last round is settled. */
    struct electorate now, before;
    struct rdzv_heirs heirs; /* heirs of the last round */
    char heirs_text[RDZV_HEIRS_TEXT_MAX];
    int64_t leader;        /* group rank of this coordinator's own node; -1 = none */
    /* group rank of the earlier coordinator's own node if that coordinator has formed the round of
     * `now`; else -1 */
    int64_t old_leader;
    /* true: so many nodes are silent that another coordinator may have been elected */
    bool lacks_majority;
    int64_t lacks_since_ms;
    int64_t away_ms; /* if lacks_majority is true: time at which all connections are closed next */
    /* if lacks_majority is false, it stays false until this time, unless a seat is added or
     * removed */
    int64_t check_ms;
};

/* The coordinator's inquiry. At most one is open at a time. */
struct coordinator_inquiry {
    bool is_open;
    uint64_t id;      /* number of the last inquiry; 0 = there was none */
    int64_t until_ms; /* end of the time for answers */
    /* the `count` entries that nodes have sent; there is memory for `room` entries */
    struct behind_entry *entries;
    size_t count, room;
};

/* What is known of the workers of all nodes (ranks.c). */
struct coordinator_ranks {
    /* the rule about slow ranks (types.h); slow_percent = 0 means that the job has none */
    uint32_t slow_percent;
    int64_t slow_ms, notice_ms;
    int64_t watch_until_ms; /* until this time, the nodes are asked for the sake of snapshots */
    /* Times of the next actions; CR_FOREVER = there is none. ask_ms: the nodes are asked for the
     * sake of snapshots. window_ms: a window of the rule ends, and the nodes are asked. judge_ms:
     * the answers at the end of a window are compared. */
    int64_t ask_ms, window_ms, judge_ms;
    int64_t asked_ms;             /* end of the last window */
    char slow[RDZV_TEXT_MAX / 2]; /* ranks that were slow in the last window, or "" */
};

/* The inspection that the coordinator has ordered because the job hangs (hang.c). */
struct coordinator_hang {
    bool is_open;     /* true: the inspection was ordered, and its result is still to come */
    bool is_told;     /* true: HUNG was sent in this round, and the job has hung since */
    uint64_t reporter; /* instance of the node that has to report the last hang; 0 = none */
    /* true: the round was ended because the job hung, and no rank differed from the others, so that
     * the failure does not count for a host */
    bool is_unblamed;
    uint32_t reports; /* number of QUIET in this round in which a reason was broken */
    uint64_t id;      /* id of the last inspection; 0 = there was none */
    int64_t until_ms; /* end of the time for its answers */
    uint64_t reasons; /* mask of the reasons (struct rendezvous_quiet) */
    int64_t quiet_ms; /* this and `what`: from the QUIET of a node on which a reason is broken */
    char what[512];
    struct inspect_row *rows; /* the `count` rows that have come; there is memory for `room` rows */
    size_t count, room;
};

/* The paired tests between nodes (pairs.c). */
struct coordinator_pairs {
    uint64_t id;      /* id of the tests that were begun last; 0 = there were none */
    uint32_t awaited; /* number of nodes whose PAIRED is still to come */
    int64_t until_ms; /* end of the time for the answers */
};

/* The last RANK of one worker. */
struct rank_report {
    uint64_t round;
    int64_t seen_ms;       /* time at which it came, in ms; 0 = none has come */
    bool has_before;       /* true: steps_before is the number of steps at the last window's end */
    uint64_t steps_before;
    struct rdzv_rank rank; /* its texts are invalid; the next three fields have them */
    char state[16], kernel_state[4], last_line[256];
};

/* The tries to open the store of the next round, after the first one has failed. */
struct store_retry {
    int64_t first_ms;   /* time of the first try; COORDINATOR_NEVER = no try has failed */
    int64_t next_ms;    /* time of the next try */
    int64_t backoff_ms; /* how long to wait if the next try fails, in ms */
};

/* length limit, in bytes with the NUL, of the reason why a node is not fit */
#define SEAT_UNFIT_MAX 256
/* What a node's JOIN says about the node's last round. This decides which ballots the node has. */
struct seat_vote {
    uint64_t rounds_seen, formed_by, before_seen, before_by; /* as in JOIN (message.h) */
    /* group ranks in the last round, and in the round before it; -1 = none. Both are -1 if the last
     * round has no heirs. */
    int64_t rank, before_rank;
};

/* For which reasons the workers of a node may hang (struct rendezvous_quiet in types.h): those that
 * the node watches for, and its last report in this round. */
struct seat_hang {
    uint64_t watches, silent, broken;
    int64_t quiet_ms;
    char *what; /* NULL if `broken` is 0 */
};

/* The paired tests of one node. */
struct seat_pair {
    struct pairs_node node;           /* what its tests have shown */
    struct coordinator_seat *partner; /* the other node of the test that runs; NULL = none runs */
    uint16_t port;                    /* pair_port in the node's JOIN */
    int64_t timeout_ms;               /* pair_timeout_ms in the node's JOIN */
    bool is_answered;                 /* true: PAIRED of the test that runs has come */
    bool is_out;                   /* true: the node is UNFIT because of its paired tests */
    bool lacks_third; /* true: it is UNFIT because no third node has shown who is at fault */
    int64_t again_ms; /* if is_out is true: the node may be tested again from this time */
    /* the last test that has failed: host of the partner, and the reason */
    char with[CR_HOST_MAX], why[160];
};

struct coordinator_seat {
    void *peer; /* the connection of the node; NULL = the seat is suspended */
    uint32_t index; /* position in coordinator.seats */
    enum seat_state state;
    enum seat_change change;
    /* true: the node has not received ROUND of the running round; when the node's JOIN comes, ROUND
     * is sent again */
    bool missed_round;
    bool local;
    bool unheard;   /* true: the seat is counted in charge.unheard */
    bool is_killed; /* true: one of the node's workers was killed in the failed round */
    bool gave_notice; /* true: the node has said that it will leave */
    bool is_unfit;  /* true: the node's health check or its paired tests have failed */
    bool owes_progress; /* true: ASK_PROGRESS was sent, and the last PROGRESS is still to come */
    bool asked_to_yield; /* true: a SPARE with `yields` was sent for the present electorates */
    bool told_spare;    /* true: the last WAITING said that the node is a spare */
    bool was_in;        /* true: the node was in the last round; set by choose_seats() */
    /* true: the node waited for a round when it sent LEAVE, so it has no workers to stop */
    bool left_idle;
    /* true: the node's process has ended, or takes no further part in the job */
    bool is_ended;
    /* true: the node has sent ABANDON, or its connection was reset or has timed out, so the end of
     * its connection does not mean that its process has ended */
    bool abandons;
    /* in state ASIDE: true if the seat becomes JOINED earlier than at aside_until_ms when too few
     * other nodes wait */
    bool may_recall;
    /* true: the host is set aside or slowed, so other nodes are chosen first; set by
     * choose_seats() */
    bool comes_last;
    /* true: if the node is soon lost, this counts as a short life, because the node was just
     * started, or was at this coordinator before; false: it does not count, because the node had
     * another coordinator before */
    bool counts_life;
    int64_t joined_ms; /* time at which the seat was made */
    int64_t aside_until_ms; /* in state ASIDE: the time at which the seat becomes JOINED */
    struct rank_report *reports; /* [local_world_size] what its workers do; NULL = not known */
    struct seat_pair *pair; /* its paired tests; NULL = it makes none */
    struct seat_hang *hang; /* the node's reports about a hang; NULL = it watches for none */
    /* if ASK_INSPECT was sent because the job hangs, and INSPECTED has not come: 1 plus the number
     * of ranks about which the node may still send rows; else 0 */
    uint32_t owed_rows;
    const char *host, *addr, *role; /* these lie in `texts` */
    /* if is_unfit is true: why the node is not fit; NULL = memory was short. seat_unfit() returns
     * the text. */
    char *unfit;
    uint64_t pid, instance, connection;
    /* With fixed ranks, a second node of the same host may join with the node rank of this seat.
     * `next` is the seat of this second node, which is QUEUED until this seat is removed. In the
     * seat of the second node, `waits_for` is the seat whose removal it waits for. Both are NULL
     * otherwise. */
    struct coordinator_seat *next, *waits_for;
    uint64_t incarnation; /* the incarnation in the node's JOIN; 0 = none */
    int64_t node_rank;
    uint32_t local_world_size;
    /* 1 plus the number of workers that the node keeps for the next round; 0 = unknown */
    uint32_t kept;
    uint16_t store_port;  /* port of the store that the node offers; 0 = none */
    uint16_t heir_port;   /* port at which the node would host as an heir; 0 = none */
    int64_t group_rank;   /* group rank in this coordinator's last round; -1 = none */
    int64_t old_rank;     /* group rank that the node had in an earlier round; -1 = none */
    uint32_t first_rank, first_role_rank, role_world_size; /* in the last round */
    /* number of the next WAITING, which is due at since_ms + cr_waiting_line_ms(told) */
    uint32_t told;
    int64_t stop_limit_ms; /* time limit of the states STOPPING and LEAVING; 0 = unknown */
    int64_t since_ms;     /* time at which the seat entered its state */
    int64_t heard_ms;     /* time of the node's last message */
    /* largest heard_at_ms that the node has sent; COORDINATOR_NEVER = the node has sent none */
    int64_t confirmed_ms;
    struct seat_vote vote;
    /* index of the node's ballot in the electorate succession.now (`ballot`) and in
     * succession.before (`ballot_before`), which is its group rank in the round of that electorate;
     * -1 = the node has no ballot there */
    int64_t ballot, ballot_before;
    /* time of the check that found the node's lease over (limits.c); COORDINATOR_NEVER if no check
     * has found that since the node's last message */
    int64_t suspected_ms;
    char texts[]; /* host, address and role of the node, each with its NUL */
};

/* number of discarded runs that a coordinator remembers: nodes of a run can come back after nodes
 * that knew nothing of it have begun another one, and have gone */
#define DISCARDED_MAX 4
struct discarded_run {
    uint64_t run;    /* its incarnation */
    uint64_t rounds; /* number that its next round would have had */
};

struct coordinator {
    const struct coordinator_actions *actions;
    void *arg;
    char *run_id;
    uint64_t id; /* 0 = it has none */

    /* settings of the job, from the JOIN of its first node */
    uint32_t min_nodes, max_nodes;
    bool fixed_ranks;
    bool store_gateway; /* true: the nodes of this job were started with --store-gateway */
    bool skips_last_call; /* true: only the first round of a run has a last call */
    int64_t join_timeout_ms, last_call_timeout_ms, interval_ms, lease_ms, notice_ms;
    uint64_t digest;       /* hash of the first node's program and arguments; 0 = unknown */
    char digest_role[RENDEZVOUS_ROLE_MAX]; /* the role of the first node */
    /* number of nodes that have joined with other settings than the first node */
    uint32_t warnings;

    /* number of this run of the job, see incarnation.c; 0 in phase EMPTY */
    uint64_t incarnation;
    /* true: this coordinator has drawn the incarnation; false: a JOIN named it */
    bool is_drawn;
    bool has_formed;       /* true: this coordinator has formed or rebuilt a round of this run */
    /* the runs that this coordinator has discarded after it had formed a round of them, the last
     * one first; run 0 = there are no more */
    struct discarded_run discarded[DISCARDED_MAX];

    enum coordinator_phase phase;
    uint64_t round;        /* number of the last round; valid if group_size is not 0 */
    uint64_t next_round;   /* number that the next round will have */
    uint64_t formed_by;    /* id of the coordinator that has formed the last round; 0 = unknown */
    struct budget budget;
    struct standings standings; /* hosts on which something goes wrong again and again */
    int64_t round_ms;           /* time at which the last round formed */
    /* no round forms before this time, unless the last failure is excused; 0 = there is no wait */
    int64_t backoff_until_ms;
    bool follows_another;  /* true: a round of an earlier leader may still run */
    /* no round forms before this time, because a round of an earlier leader may still run; 0 = a
     * round may form at once */
    int64_t quiet_until_ms;
    bool may_form;         /* true: the coordinator has the right to form rounds */
    int64_t right_until_ms; /* time in ms at which that right ends; CR_FOREVER = never */
    bool is_held;          /* true: a round would form now if may_form was true */
    bool keeps_job;        /* true: the job is not discarded when the last node is gone */
    bool retires;          /* true: this coordinator forms no further round, an heir will */
    bool stands_by;        /* true: all connections were closed, but the job stays in memory */
    struct coordinator_charge charge;
    /* join_timeout counts from this time: when the phase FORMING began, or, if that was later, when
     * the last node had stopped its workers */
    int64_t forming_ms;
    /* number of nodes that were sent away since forming_ms because their join_timeout was over */
    uint32_t gave_up;
    /* true: a node was still stopping its workers when coordinator_reconcile_forming() last ran */
    bool had_stopping;
    /* end of the last call; COORDINATOR_NEVER while fewer than min_nodes wait */
    int64_t last_call_ms;
    bool members_changed;  /* true: a node has come or gone since the last round formed */
    uint32_t group_size;   /* number of nodes in the last round */
    uint32_t world_size;   /* number of workers in the last round */
    uint32_t kept;         /* 1 plus how many of them were kept; 0 = unknown */
    /* store of the last round; its port is 0 if an earlier coordinator has formed the round */
    struct coordinator_store store;
    uint32_t suspended;    /* number of suspended seats */
    bool is_rebuilt;       /* true: the last round was formed by an earlier coordinator */
    struct coordinator_rebuild rebuild;
    struct coordinator_change change;
    struct coordinator_succession succession;
    struct coordinator_inquiry inquiry;
    struct coordinator_ranks ranks;
    struct coordinator_hang hang;
    struct coordinator_pairs pairs;
    struct store_retry store_retry;
    /* number of nodes of the round that have succeeded and then closed their connection */
    uint32_t gone_after_success;
    int outcome;           /* an enum rendezvous_outcome, valid in phase ENDED */
    char why[RDZV_TEXT_MAX]; /* why the last round was stopped, or the job ended */

    struct coordinator_seat **seats;
    uint32_t seat_count, seat_cap;
    struct seat_table by_instance;  /* the seats of remote nodes */
    struct seat_table by_node_rank; /* with fixed ranks: all seats; else empty */
    uint32_t in_state[SEAT_STATE_COUNT], in_change[SEAT_CHANGE_COUNT];
    uint32_t left_idle; /* number of seats whose left_idle is true */
    /* departed[r] is the host whose node had group rank r last, or NULL if a node has this rank
     * now */
    char **departed;
    uint32_t departed_count;
    int64_t wake_ms; /* the next deadline; CR_FOREVER if there is none */
};

/* ---- coordinator.c ---- */

/* Does what is due in the present state: forms a round, announces a change, stops the round or ends
 * the job, or nothing. Every event that may change what is due calls this at its end. */
void coordinator_reconcile(struct coordinator *c, int64_t now_ms);

/* Sets the phase, and logs the change. No other function writes `phase`. */
void coordinator_enter(struct coordinator *c, enum coordinator_phase next, const char *why);
void coordinator_start_forming(struct coordinator *c, int64_t now_ms, const char *why);
/* Call this with each event, before the event is handled. Sets may_form to false if the right to
 * form rounds has ended since the last event. */
void coordinator_expire_right(struct coordinator *c, int64_t now_ms);
/* Sends STOP with the reason c->why. The time limit in STOP depends on whether this coordinator has
 * the right to form rounds, and on whether it lacks the majority. */
void coordinator_send_stop(struct coordinator *c, struct coordinator_seat *s);
/* Ends the running round: sends STOP with the reason c->why to its nodes, which stop their workers
 * and join again. */
void coordinator_stop_round(struct coordinator *c, int64_t now_ms);
/* Ends the job: sends END with the reason c->why to all nodes. Each node keeps its seat until its
 * connection is gone. */
void coordinator_end_job(struct coordinator *c, enum rendezvous_outcome outcome);

/* Frees the seat of a node that is gone, and stops the round if the node was running in it. The
 * reason is logged as "<node> <how>: <why>", for example "node 'n1' was lost: …". */
void coordinator_vacate(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                        const char *how, const char *why);
/* Call this when a node is lost, before its seat is removed. It counts the loss for the node's
 * host, and excuses the last failure if the loss explains that failure. */
void coordinator_count_lost(struct coordinator *c, int64_t now_ms,
                            const struct coordinator_seat *s);
/* Frees the seat like coordinator_vacate(), but does not call coordinator_reconcile(), and does not
 * discard a job that has no seat left. Call this if the node gets another seat at once, or if
 * several nodes are lost at once: a round that formed before the caller is done would lack the
 * node, or contain a node that is lost. */
void coordinator_take_seat(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                           const char *how, const char *why);

void coordinator_log(struct coordinator *c, enum cr_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void coordinator_set_why(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void coordinator_send_end(struct coordinator *c, void *peer, int outcome, const char *why);

/* ---- aside.c ---- */

/* Call this when a node is lost or leaves. If the node was in the round and has given no notice,
 * this may count as a short life for the node's host. since_ms is the time of the node's last sign
 * of life. */
void aside_node_gone(struct coordinator *c, int64_t now_ms, int64_t since_ms,
                     const struct coordinator_seat *s);
/* Call this when a seat has become JOINED, or when its host has been slowed or set aside. If the
 * host is slowed or set aside, the seat becomes ASIDE; if it is ASIDE, it gets the time limit that
 * the host has now. Does nothing in other states. */
void aside_place(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s);
/* Call this when all nodes of a failed round are back or gone. If the failure will be charged,
 * counts it for the host on which it began. If that host is set aside now, its seats become
 * ASIDE. */
void aside_count_failure(struct coordinator *c, int64_t now_ms);
/* Puts each seat whose time in the state ASIDE is over into the state JOINED. */
void aside_release(struct coordinator *c, int64_t now_ms);
/* Call this when the next round could form. If fewer than min_nodes wait, puts the seats of hosts
 * that are set aside into the state JOINED. */
void aside_recall(struct coordinator *c, int64_t now_ms);
/* Returns the time at which the next seat leaves the state ASIDE; CR_FOREVER if no seat is
 * ASIDE. */
int64_t aside_deadline(const struct coordinator *c);
/* Returns whether the host of this seat is slowed or set aside, so that other nodes that wait come
 * before this node. */
bool aside_comes_last(const struct coordinator *c, int64_t now_ms,
                      const struct coordinator_seat *s);
/* If nodes of this host are refused, writes the reason to `why` and returns for how many more ms
 * they are refused. Otherwise returns 0. */
int64_t aside_refuses(const struct coordinator *c, int64_t now_ms, const char *host,
                      char why[RDZV_TEXT_MAX]);
/* Writes to `out`, of `room` bytes, why the node of this seat, which is ASIDE, waits. The text
 * continues a phrase that begins with "waiting". */
void aside_describe(const struct coordinator *c, int64_t now_ms, const struct coordinator_seat *s,
                    char *out, size_t room);

/* ---- inquiry.c ---- */

/* Begins an inquiry, unless one is open. */
void coordinator_inquire(struct coordinator *c, int64_t now_ms);
void inquiry_got_progress(struct coordinator *c, struct coordinator_seat *s,
                          const struct rdzv_progress *p);
/* Ends the inquiry if its time is over. */
void inquiry_tick(struct coordinator *c, int64_t now_ms);

/* ---- hang.c ---- */

/* Call this when a seat is made. If the node watches for a hang (JOIN.watches), allocates s->hang;
 * if memory is short, the node counts as one that does not watch. */
void hang_seat_made(struct coordinator_seat *s, uint64_t watches);
void hang_seat_done(struct coordinator_seat *s); /* frees s->hang */
/* Call this when a round forms. Forgets the reports of the last round. */
void hang_round_begins(struct coordinator *c);
void hang_got_quiet(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_quiet *q,
                    int64_t now_ms);
void hang_got_row(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_row *row);
void hang_got_inspected(struct coordinator *c, struct coordinator_seat *s, uint64_t id);
/* Checks whether the job hangs. Call this when the state of a node of the round has changed. */
void hang_judge(struct coordinator *c, int64_t now_ms);
/* Call this when the workers of a node have ended well. If the node had to report the hang, it will
 * not do so: HUNG has come too late. So the next hang_judge() may order another inspection. */
void hang_node_succeeded(struct coordinator *c, const struct coordinator_seat *s);
/* Call this when a connection of a node of the round is lost, or was replaced by a new one, or when
 * the round is another coordinator's. ASK_INSPECT and HUNG may be lost with the connection, so the
 * inspection is dropped, and the next hang_judge() may order another one. */
void hang_connection_lost(struct coordinator *c);
/* Ends the inspection if its time is over. */
void hang_tick(struct coordinator *c, int64_t now_ms);
void hang_done(struct coordinator *c); /* frees the rows */

/* ---- pairs.c ---- */

/* Call this when a seat is made. If the node makes paired tests (JOIN.pair_port), allocates
 * s->pair; if memory is short, the node is not tested. */
void pairs_seat_made(struct coordinator_seat *s, const struct rdzv_join *join);
/* Call this when the node of `s` leaves or has a new connection, or when `s` is removed. Ends the
 * test of its partner without a result. */
void pairs_seat_gone(struct coordinator *c, struct coordinator_seat *s);
/* Call this when a worker of the node has failed: the node is tested again before the next
 * round. */
void pairs_distrust(struct coordinator_seat *s);
/* Call this when a round could form. Begins the tests that are needed. Returns true if none runs
 * and none is needed; false if the round has to wait, or if nodes have become UNFIT. */
bool pairs_allow_round(struct coordinator *c, int64_t now_ms);
/* Call this when the next round could form. If fewer than min_nodes wait, puts nodes that are UNFIT
 * because of their paired tests into the state JOINED, so that they are tested again. */
void pairs_recall(struct coordinator *c, int64_t now_ms);
void pairs_got(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_paired *m);
/* Returns whether the node is UNFIT because of its paired tests. */
bool pairs_made_unfit(const struct coordinator_seat *s);
/* Ends the tests if their time is over: a node that has not answered has failed. */
void pairs_tick(struct coordinator *c, int64_t now_ms);
/* Returns the next time after now_ms at which pairs_tick() or pairs_recall() has something to do;
 * CR_FOREVER if there is none. */
int64_t pairs_deadline(const struct coordinator *c, int64_t now_ms);

/* ---- ranks.c ---- */

/* Call this when a round has begun: no rank of it is known yet to be slow. */
void ranks_round_begins(struct coordinator *c, int64_t now_ms);
void ranks_got(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_rank *r,
               int64_t now_ms);
void ranks_tick(struct coordinator *c, int64_t now_ms);
int64_t ranks_deadline(const struct coordinator *c); /* CR_FOREVER if there is no deadline */

/* ---- seats.c ---- */

/* Adds a seat in state JOINED. Returns NULL when memory is short. */
struct coordinator_seat *seat_new(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                  const struct rdzv_join *join);
/* Removes the seat from the list and frees it. If the seat has a group rank, stores the node's host
 * in c->departed. */
void seat_remove(struct coordinator *c, struct coordinator_seat *s);
void seats_free(struct coordinator *c);

/* Sets the seat's state, and its part in the change to CHANGE_NONE. No other function writes
 * `state`. */
void seat_enter(struct coordinator *c, struct coordinator_seat *s, enum seat_state next,
                int64_t now_ms);
/* Call this with each JOIN of a node that has no workers. Puts the seat into the state JOINED; or,
 * if the JOIN says that the node is not fit, into the state UNFIT, and logs a warning. */
void seat_join(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_join *join,
               int64_t now_ms);
/* Puts the new seat `s` into state QUEUED: it waits until the seat `first`, which has the same node
 * rank, is removed. */
void seat_queue(struct coordinator *c, struct coordinator_seat *s, struct coordinator_seat *first,
                int64_t now_ms);
/* Sets the seat's part in the change. No other function writes `change`. */
void seat_take_part(struct coordinator *c, struct coordinator_seat *s, enum seat_change next);
/* Writes host, address and process id of the node to `out`, for a log line. The host alone does not
 * identify a node, because several nodes may share a host. */
void seat_name(const struct coordinator_seat *s, char out[SEAT_NAME_MAX]);
/* Returns whether the rank was one of the node's ranks in its last round. */
static inline bool seat_has_rank(const struct coordinator_seat *s, int64_t rank) {
    int64_t local_rank = rank - (int64_t) s->first_rank;
    return local_rank >= 0 && local_rank < (int64_t) s->local_world_size;
}

/* Returns why the node's health check has failed; "" if the node is fit. */
const char *seat_unfit(const struct coordinator_seat *s);
/* Notes that a node which waits for a round is not fit, for the reason `why`, or that it is fit if
 * `why` is "". The seat becomes UNFIT or JOINED. */
void seat_set_unfit(struct coordinator *c, struct coordinator_seat *s, const char *why,
                    int64_t now_ms);
/* Returns whether the node waits for a round and has no workers: it is JOINED, ASIDE or UNFIT. */
bool seat_awaits_round(const struct coordinator_seat *s);
/* Returns whether seat_awaits_round() is true, or was true when the node sent LEAVE. */
bool seat_waits(const struct coordinator_seat *s);
/* Returns the number of nodes that are stopping their workers. */
uint32_t seats_stopping(const struct coordinator *c);
/* Sends a message to the node of the seat, unless the seat is suspended. */
void seat_send(struct coordinator *c, const struct coordinator_seat *s,
               const struct rdzv_message *m);

/* ---- joining.c ---- */

/* Sends REFUSED with the formatted text as the reason. Returns -EINVAL. */
int coordinator_refuse(struct coordinator *c, void *peer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Refuses the node of the seat s->next, which waits for the node rank of the seat `s`, and removes
 * its seat. Call this if s->next is not NULL and the node of `s` has sent something: so that node
 * is alive, and keeps its node rank. */
void coordinator_refuse_next(struct coordinator *c, struct coordinator_seat *s);
/* Checks whether a node that joins may have a seat. If so, returns 0, and sets *first to the seat
 * whose node rank the node waits for, or to NULL if the node need not wait. If not, sends the node
 * the reason and returns a negative errno. In phase EMPTY the settings in the JOIN become the
 * job's. */
int joining_admit(struct coordinator *c, int64_t now_ms, void *peer, const struct rdzv_join *j,
                  struct coordinator_seat **first);
/* Gives an admitted node a seat, and sends it ACCEPTED. The seat is JOINED if `first` is NULL, else
 * it is QUEUED until `first` is removed. If memory is short, sends the node the reason and returns
 * NULL. */
struct coordinator_seat *joining_seat(struct coordinator *c, int64_t now_ms, void *peer, bool local,
                                      const struct rdzv_join *j, struct coordinator_seat *first);
/* Sends ACCEPTED. `differs` lists the settings in which the node differs from the job; it is "" if
 * there are none. */
void joining_accept(struct coordinator *c, void *peer, const char *differs);
/* Call this when a node was not admitted. The check may have removed the node's old seat, so this
 * discards the job if no seat is left, and calls coordinator_reconcile(). */
void joining_failed(struct coordinator *c, int64_t now_ms);

/* ---- resuming.c ---- */

/* Call this when a node that has missed ROUND of the running round has sent JOIN. It sends ROUND
 * again, and the change that is announced, if there is one. */
void resuming_repeat_round(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s);
/* Call this with each JOIN on a new connection. A node keeps its seat of an earlier connection if
 * its workers are gone after STOP, or if it has missed ROUND: in these cases gives the seat to the
 * new connection and returns the seat. In all other cases returns NULL. */
struct coordinator_seat *resuming_join(struct coordinator *c, int64_t now_ms, void *peer,
                                       const struct rdzv_join *j);
/* Call this with the JOIN of an admitted node. If this coordinator has had no round yet, and the
 * node was in a round of an earlier coordinator, delays the first round until the other nodes of
 * that earlier round have come back or their leases are over. */
void resuming_heard_of_round(struct coordinator *c, int64_t now_ms, const struct rdzv_join *j);
/* Returns the time before which no round may form, because nodes of an earlier coordinator's round
 * may have workers that run; 0 = there is no such time, or all these nodes have come back. */
int64_t resuming_until(const struct coordinator *c, int64_t now_ms);
/* Returns true if the time of resuming_until() is still to come, so that no round may form yet. */
bool resuming_must_wait(const struct coordinator *c, int64_t now_ms);
/* Call this in phase REBUILDING. If all nodes of the earlier round have resumed, that round goes
 * on. If the round cannot go on, or the time for resuming is over, the round is ended. Otherwise
 * does nothing. */
void resuming_reconcile(struct coordinator *c, int64_t now_ms);
/* Call this in phase REBUILDING with each message of a node, before the message is handled as in
 * other phases. It makes FAILED and SUCCEEDED count for the round that is being rebuilt. */
void resuming_hear(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_message *m);
/* Discards c->rebuild (what nodes have said about an earlier coordinator's round) and c->store (the
 * address of the last round's store). */
void resuming_forget(struct coordinator *c);

/* ---- succession.c ---- */

/* Returns whether this coordinator may form rounds and end the job: it has the right to form
 * rounds, and does not lack the majority. */
bool succession_may_decide(const struct coordinator *c);
/* Call this when a seat was made for the node that has sent the JOIN `j`. Notes which last round
 * `j` names, and gives the seat the node's ballots. If that round is newer than all rounds that
 * this coordinator knows, its electorate begins. */
void succession_seat_new(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                         const struct rdzv_join *j);
/* Makes the node's ballots held. Call this with the fields heard_at_ms and rounds_seen of each
 * BEAT, JOIN and RESUME: heard_at_ms shows until when the node certainly joins no other
 * coordinator, and rounds_seen shows whether it has received the last ROUND. */
void succession_heard(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                      int64_t heard_at_ms, uint64_t rounds_seen);
/* Call this before a seat is removed. If s->is_ended is true, the node's ballots become void,
 * because the node can elect no heir; else they become free. */
void succession_seat_gone(struct coordinator *c, const struct coordinator_seat *s);
/* Call this when a round has formed, and before ROUND is sent. Chooses the round's heirs. */
void succession_round_formed(struct coordinator *c);
/* Call this with each event, before the event is handled. Calls coordinator_expire_right(); and if
 * this coordinator does not lack the majority, calls succession_check(). A ballot may have been
 * held until a time that has passed; this must be noticed before the event makes the ballot held
 * again. */
void succession_expire(struct coordinator *c, int64_t now_ms);
/* Call this when the node of the seat begins to wait, and for each seat when a round has formed. If
 * the node waits while a round of this coordinator runs, sends SPARE, which names the heirs. */
void succession_tell_spare(struct coordinator *c, const struct coordinator_seat *s);
/* Call this when no node stops its workers and succession_may_form() is false. */
void succession_settle_with_spares(struct coordinator *c);
/* Sets lacks_majority. If it becomes true, and this coordinator has formed a round, stops the
 * round. */
void succession_check(struct coordinator *c, int64_t now_ms);
/* Call this in coordinator_tick(). While this coordinator lacks the majority, closes all
 * connections every two leases, which frees all seats, and ends the job after six leases. */
void succession_tick(struct coordinator *c, int64_t now_ms);
int64_t succession_deadline(const struct coordinator *c); /* CR_FOREVER if there is none */
/* Returns the number of the last round plus 1 if that round is settled, else 0. */
uint64_t succession_settled(const struct coordinator *c);
/* Returns false if no further round may form, because the round before the last one still has an
 * electorate: nodes that have not received the last ROUND could elect an heir as nodes of that
 * earlier round. */
bool succession_may_form(const struct coordinator *c);
/* Returns true if this coordinator has taken over, and all nodes of the last round have joined it,
 * except the node of the coordinator that was lost. */
bool succession_all_are_back(const struct coordinator *c, int64_t now_ms);
void succession_forget(struct coordinator *c);

/* ---- settings.c ---- */

/* Takes the settings in a node's JOIN as those of the job. */
void settings_take(struct coordinator *c, const struct rdzv_join *j);
/* Writes to `text` the settings in which the node differs from the job, with both values, and logs
 * a warning; writes "" if the node differs in none. */
void settings_compare(struct coordinator *c, const struct rdzv_join *j, char text[RDZV_TEXT_MAX]);

/* ---- incarnation.c ---- */

/* Call this with the JOIN of the first node. Takes over the incarnation in the JOIN; if the JOIN
 * has none, draws one for a new run. */
void incarnation_begin(struct coordinator *c, const struct rdzv_join *j);
/* Returns 0 if the node belongs to this run, to no run yet, or to a run that the coordinator takes
 * over in place of this one. Otherwise sends the node REFUSED and returns -ESTALE. */
int incarnation_check(struct coordinator *c, void *peer, const struct rdzv_join *j);
/* Returns the incarnation to send in ACCEPTED; 0 while the coordinator may still take over another
 * incarnation. */
uint64_t incarnation_to_tell(const struct coordinator *c);
void incarnation_take_memories(struct coordinator *c, const struct rdzv_join *j);
/* Call this when a seat was removed. If no seat is left, discards the job: the coordinator becomes
 * EMPTY, like a new one. Does nothing if the job has ended, if the coordinator stands by, or if
 * coordinator_keep_job() was called and the job has had a round. */
void incarnation_end_if_empty(struct coordinator *c);
/* Discards the job, which has no seat left: the coordinator becomes EMPTY, like a new one. */
void incarnation_discard(struct coordinator *c);

/* ---- forming.c ---- */

/* Sends ROUND to the node of seat `s`: the current round, and the node's ranks in it. */
void coordinator_send_round(struct coordinator *c, const struct coordinator_seat *s);
/* Makes c->departed long enough for the group ranks 0 to n - 1. Returns 0 or -ENOMEM. */
int coordinator_reserve_departed(struct coordinator *c, uint32_t n);

void coordinator_reconcile_forming(struct coordinator *c, int64_t now_ms);
/* Call this when the first node has joined. If a round of an earlier leader may still run, delays
 * the first round until that round is certainly over. */
void forming_wait_for_older_round(struct coordinator *c, int64_t now_ms);

/* ---- charge.c ---- */

/* Call this with the first FAILED of the running round, before the round is stopped. It opens the
 * decision whether the round costs a restart. */
void charge_open(struct coordinator *c, int64_t now_ms, struct coordinator_seat *failed,
                 const struct rdzv_failed *f);
/* Call this with each FAILED of the round, the first one included. If the failure is final, the job
 * will end. If the worker was killed from outside, notes the time until which the failure is
 * excused if the worker's node leaves or is lost. */
void charge_note_blame(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                   const struct rdzv_failed *f);
/* Call this with each message of a node. Notes whether the message shows that the node knows of the
 * end of a failed round. Returns true if the message was the last one needed: now all nodes of that
 * round are known to know of its end. Otherwise returns false. */
bool charge_heard(struct coordinator *c, struct coordinator_seat *s, const struct rdzv_message *m);
/* Call this when a node has left, and when a seat is removed: the decision no longer waits for the
 * node. */
void charge_forget(struct coordinator *c, struct coordinator_seat *s);
/* Call this when a node leaves or is lost. If the end of this node excuses the failure, the failed
 * round costs nothing. since_ms is the last time at which the node was certainly there. */
void charge_node_gone(struct coordinator *c, int64_t since_ms, const struct coordinator_seat *s);
/* Returns whether the failure has to end the job, unless a node excuses it. In this case each node
 * of the round has to show soon that it knows of the end of the round. */
bool charge_awaits_nodes(const struct coordinator *c);
/* Returns whether a round may form. No round may form if the failure has to be charged and the
 * budget is spent; in that case the job ends as soon as no node can excuse the failure any more. */
bool charge_allows_round(struct coordinator *c, int64_t now_ms);
/* Call this when a round forms, or is due but may not form. Charges the failure of the last round,
 * unless it is excused. If the failure has to end the job, this leaves the decision open, because
 * charge_allows_round() ends the job once the coordinator may do so. */
void charge_close(struct coordinator *c);

/* ---- change.c ---- */

/* Announces to the nodes of the running round that the round ends within left_ms, with the reason
 * c->why. `kind` is an enum rendezvous_change_kind. */
void coordinator_announce(struct coordinator *c, int64_t now_ms, uint32_t kind, int64_t left_ms);
/* Call this when a node has resumed. If a change is announced, sends CHANGE or CHANGE_AT to the
 * node again, unless the node has answered it. */
void coordinator_repeat_change(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s);
void coordinator_reconcile_change(struct coordinator *c, int64_t now_ms);
void coordinator_got_answer(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_change_answer *a);
void coordinator_got_ready(struct coordinator *c, struct coordinator_seat *s, uint64_t id);
void coordinator_got_notice(struct coordinator *c, int64_t now_ms, struct coordinator_seat *s,
                            const struct rdzv_notice *n);

/* ---- waiting.c ---- */

/* Sends WAITING to each node to which it is due (coordinator_waiting_due()). */
void coordinator_tell_waiting(struct coordinator *c, int64_t now_ms);
/* Returns the time at which the node gets its next WAITING; CR_FOREVER if it gets none. */
int64_t coordinator_waiting_due(const struct coordinator *c, const struct coordinator_seat *s);
/* Writes to `out`, of `room` bytes, the hosts of the nodes that have a seat, as many as fit; writes
 * "none" if there is no seat. Leaves out nodes that wait for another node's rank (QUEUED). */
void coordinator_list_hosts(const struct coordinator *c, char *out, size_t room);
/* If ranks are fixed, writes to `out`, of `room` bytes, which node ranks no node has, for example
 * "; missing: node rank 1, 3". Writes "" if none is missing or ranks are not fixed. */
void coordinator_list_missing(const struct coordinator *c, char *out, size_t room);

/* ---- limits.c ---- */

/* Returns the time at which the seat must have left its state (SEAT_STATES in coordinator.h);
 * CR_FOREVER if its state has no time limit. */
int64_t coordinator_state_limit(const struct coordinator *c, const struct coordinator_seat *s);

/* Makes when_ms the next deadline, unless the next deadline is earlier. */
void coordinator_wake_by(struct coordinator *c, int64_t when_ms);
/* Computes the next deadline from all time limits of the job and its seats. */
void coordinator_find_deadline(struct coordinator *c, int64_t now_ms);

#endif
