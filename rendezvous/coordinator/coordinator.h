/* The coordinator of one job. It decides which nodes take part in which round, which ranks they
 * get, whether the job has a restart left, and how the job ends. Pure: every function gets the
 * time, and every effect goes out through `struct coordinator_actions`. docs/rendezvous.md has the
 * rules.
 *
 *            first JOIN                     store opened, ROUND sent
 *   EMPTY ──────────────► FORMING ────────────────────────────────────► RUNNING
 *                            ▲    a worker failed, a node was lost or joined │ │
 *                            └──────────────── STOP sent ────────────────────┘ │
 *                 any phase ── budget spent, all succeeded, time up ───────────┴──► ENDED
 *                 FORMING, RUNNING ── the last seat is gone ───────────────────────► EMPTY
 *
 * A coordinator that takes over a running round from an earlier coordinator has one more phase,
 * REBUILDING (resuming.c).
 *
 * A seat is the record of one node, from its JOIN until the node is gone. If a node of the round
 * has lost its connection, its seat is suspended until the node resumes or is lost. change.c has
 * the rules for a round that ends with notice. This header is the door of
 * rendezvous/coordinator. */
#ifndef RENDEZVOUS_COORDINATOR_H
#define RENDEZVOUS_COORDINATOR_H

#include "base/error.h"
#include "base/log/log.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

struct coordinator;
struct coordinator_seat;

/* Address and port of the store of one round. */
struct coordinator_store {
    char addr[RDZV_ADDR_MAX]; /* numeric address */
    uint16_t port;
};

/* What the coordinator calls to act. An action must not call the coordinator. Texts and messages
 * are valid until the action returns. `peer` is the pointer that the caller passed for the node to
 * coordinator_join() or coordinator_resume(). */
struct coordinator_actions {
    void (*send)(void *arg, void *peer, const struct rdzv_message *m);
    /* Sends the queued messages to the node, then closes its connection. Do not call
     * coordinator_lost() for this connection: the coordinator itself frees the seat of the node, or
     * has given it to another connection. */
    void (*hang_up)(void *arg, void *peer);
    /* Opens an empty key space for `round`, and closes the key space of the round before. Returns 0
     * and stores the address in *out; or returns a negative errno and a text in err. After an error
     * the coordinator tries again; if all tries fail for a minute, it ends the job. */
    int (*open_store)(void *arg, uint64_t round, struct coordinator_store *out,
                      struct cr_error *err);
    /* Called when a node offers the store of the next round. Closes the store of the last round if
     * this host has opened it. This action may be NULL. */
    void (*close_store)(void *arg);
    /* Called when a round forms, once for each of its nodes: the node's workers may use the store
     * of the round. Called after open_store() or close_store(). This action may be NULL. */
    void (*admit)(void *arg, void *peer);
    /* Called when a round forms, with the node that has group rank 0, before any node is sent
     * ROUND. `has_store` is true if this node has the store of the round; then the host sends it
     * the addresses of the round's nodes, else the host gives these addresses to its own store.
     * This action may be NULL. */
    void (*prepare_store)(void *arg, void *peer, uint64_t round, bool has_store);
    /* Returns the run id of another job whose nodes wait at the same hosting node, or NULL if there
     * is none. The text is valid until the next event. This action may be NULL. */
    const char *(*other_waiting)(void *arg);
    /* Draws the incarnation of a new run: a number that is not 0 and that most probably no other
     * run gets. Among machines whose clocks agree, a later run gets a larger number. If this action
     * is NULL, runs have no incarnation. */
    uint64_t (*draw)(void *arg);
    /* Called when an inquiry is over; `what` is its result, one line of text. This action may be
     * NULL. */
    void (*on_behind)(void *arg, const char *what);
    /* Logs one line. Changes of state have the level debug. */
    void (*log)(void *arg, enum cr_log_level level, const char *text);
    /* Returns whether lines of this level are logged; if not, the coordinator does not format them.
     * If this action is NULL, the coordinator formats all lines. */
    int (*wants_log)(void *arg, enum cr_log_level level);
};

/* Creates the coordinator of a job. `actions` must live as long as the coordinator; `run_id` is
 * copied. Returns NULL when memory is short. */
struct coordinator *coordinator_new(const char *run_id, const struct coordinator_actions *actions,
                                    void *arg);
void coordinator_free(struct coordinator *c); /* `c` may be NULL */
/* Sets the id of this coordinator, which nodes get in WELCOME and name in later JOINs. A JOIN with
 * another id shows a coordinator that the job had an earlier coordinator. Call this before the
 * first event. */
void coordinator_identify(struct coordinator *c, uint64_t id);

/* ---- events; now_ms must never decrease from one call to the next ---- */

/* Checks a JOIN that a node has sent on a new connection, gives the node a seat, and returns the
 * seat. Returns NULL if the node may not join; in that case the node was sent the reason (REFUSED
 * or END), and the caller has to close the connection. A `local` node is in the coordinator's
 * process and has no lease. The settings of the first node that joins become the job's. */
struct coordinator_seat *coordinator_join(struct coordinator *c, int64_t now_ms, void *peer,
                                          bool local, const struct rdzv_join *join);

/* Handles a message of a node with a seat: JOIN again, FAILED, SUCCEEDED, LEAVE, BEAT, NOTICE,
 * CHANGE_ANSWER, CHANGE_READY, INQUIRE, PROGRESS, RANK, QUIET, ABANDON; or ROW and INSPECTED of an
 * inspection that the coordinator has ordered (RDZV_INSPECTION_OF_HANG). Returns 0; or returns
 * -EPROTO and a text in err if a member must not send the message. On error the caller has to call
 * coordinator_lost(). */
int coordinator_receive(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                        const struct rdzv_message *m, struct cr_error *err);

/* Call this when a node has closed its connection. Frees the seat. The node's process counts as
 * ended, unless the node has sent ABANDON. */
void coordinator_lost(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                      const char *why);

/* Call this if the connection of a node was reset or has timed out, and the protocol version of the
 * connection has RESUME. If the node is in a round, its seat is suspended until the node resumes or
 * its lease ends. If the node is not in a round, its seat is freed. The node's process does not
 * count as ended, so this coordinator assumes that the node may join an heir. */
void coordinator_suspend(struct coordinator *c, int64_t now_ms, struct coordinator_seat *seat,
                         const char *why);

/* Handles RESUME, which a node has sent on a new connection. Returns the seat of the node. Returns
 * NULL if the node gets no seat; in that case the node was sent the reason (REFUSED or END), and
 * the caller has to close the connection. */
struct coordinator_seat *coordinator_resume(struct coordinator *c, int64_t now_ms, void *peer,
                                            const struct rdzv_resume *resume);

/* Does what is due at now_ms. Call this at the time that coordinator_deadline() returns; a call
 * before that time does nothing. */
void coordinator_tick(struct coordinator *c, int64_t now_ms);
int64_t coordinator_deadline(const struct coordinator *c); /* CR_FOREVER if there is no deadline */

/* Sends an operator's order to the nodes on the host what->host; if what->host is "", to all nodes.
 * The order is ASK_DUMP if what->kind is 0, else ASK_NOTICE, which each node answers with NOTICE.
 * ASK_DUMP also begins an inquiry; the action on_behind gets its result within about a second.
 * Returns how many nodes the order is for. Nodes without a connection are counted, but do not get
 * the order. */
uint32_t coordinator_operate(struct coordinator *c, int64_t now_ms,
                             const struct rdzv_operate *what);

/* Sends ASK_INSPECT to the connected nodes on `host`; if `host` is "", to all connected nodes.
 * Returns the number of these nodes, each of which will answer. */
uint32_t coordinator_inspect(struct coordinator *c, const char *host, uint64_t id,
                             const char *why);

/* Call this right after coordinator_new() if another elected coordinator has led the job before. A
 * round of that coordinator may still run, so the first round of this coordinator is delayed
 * (forming.c). */
void coordinator_follows_another(struct coordinator *c);

/* Call this right after coordinator_new() if the coordinator runs in the launcher of a node. It
 * makes the coordinator keep the job when the job's last node is gone, because the node of that
 * launcher comes back. */
void coordinator_keep_job(struct coordinator *c);
/* Call this right after coordinator_new() if the coordinator is an heir's. Such a coordinator
 * begins no run; it only goes on with the run of the coordinator that was lost. */
void coordinator_is_heir(struct coordinator *c);
/* Call this right after coordinator_new() if the coordinator runs in the launcher of a node.
 * `instance` is the number that the JOINs of that node name. */
void coordinator_set_own(struct coordinator *c, uint64_t instance);
/* Makes the coordinator choose heirs for its rounds, so that another node can take over if the
 * coordinator is lost (succession.c). Call this right after coordinator_new(), and only if the
 * coordinator runs in the launcher of a node. */
void coordinator_allow_heirs(struct coordinator *c);

/* Call this if coordinator_view.has_heirs is true and the launcher in whose process the coordinator
 * runs was told to end. This coordinator forms no further round; an heir will take over. Call
 * coordinator_goodbye() when the workers of that launcher's node are gone. */
void coordinator_retire(struct coordinator *c);

/* Closes the connections of all nodes, so that they look for another coordinator. A coordinator
 * that has formed a round, or has won an electorate, keeps what it knows of the job, because the
 * nodes may come back; any other coordinator discards it. */
void coordinator_send_away(struct coordinator *c);

enum coordinator_claim {
    COORDINATOR_SERVES,        /* this coordinator goes on, under the larger epoch */
    COORDINATOR_IS_SUPERSEDED, /* another coordinator may decide; all connections were closed */
};
/* Call this if a node or host names a larger epoch than this coordinator's. A larger epoch is that
 * of an heir, which may have been elected. Checks whether this coordinator still has the majority,
 * and returns whether it goes on. */
enum coordinator_claim coordinator_hear_epoch(struct coordinator *c, int64_t now_ms);

/* Call this when the coordinator gets the right to form rounds, gets it for longer, or loses it: it
 * has the right until until_ms; 0 = it has lost the right. A new coordinator has the right for ever
 * (CR_FOREVER). Without the right, a running round goes on, but no round begins, and no node is let
 * into the running round. The coordinator compares until_ms with the time of each event. So if its
 * process stands still for longer than the right lasts, and another coordinator is elected
 * meanwhile, this one forms no round after the standstill. */
void coordinator_may_form(struct coordinator *c, int64_t now_ms, int64_t until_ms);
/* Makes the coordinator stand by: it keeps the job in memory even when no seat is left. Call this
 * before the connections of all nodes are closed. The loss of these nodes excuses no failure. */
void coordinator_stand_by(struct coordinator *c);

/* Call this if the process that hosts the coordinator ends before the job has ended. Sends GOODBYE
 * to the remote nodes, which may go on under another coordinator, closes their connections and
 * frees their seats. The node in the coordinator's own process gets END with the outcome LOST. */
void coordinator_goodbye(struct coordinator *c, const char *why);

/* ---- the state, as operators, tests and the simulator can read it ---- */

/* clang-format off */
/* P(NAME) — each phase, its meaning and its time limits. */
#define COORDINATOR_PHASES(P) \
    P(EMPTY)   /* no node has a seat. No time limit */ \
    P(FORMING) /* nodes wait. Limit: join_timeout; if min_nodes wait, last_call_timeout */ \
    P(RUNNING) /* a round runs. Limit: if a change is announced, its time; else none */ \
    P(ENDED)   /* the job is over. Limit: the host closes connections after close_timeout */ \
    P(REBUILDING) /* a new coordinator waits for the nodes of the running round. Limit: one lease */

/* S(NAME) — each state, its meaning and its time limit. The lease is a further limit in every
 * state: a remote node that has sent nothing for 9/8 of its lease is lost. */
#define SEAT_STATES(S) \
    S(JOINED)    /* waits for a round. Limit: join_timeout in phase FORMING; for a spare, none */ \
    S(RUNNING)   /* is in the round. No time limit */ \
    S(SUCCEEDED) /* its workers ended well; it waits for other nodes. No time limit */ \
    S(STOPPING)  /* stops its workers and will join again. Limit: its stop_limit_ms */ \
    S(LEAVING)   /* stops its workers, then closes the connection. Limit: its stop_limit_ms */ \
    /* another node has its node rank; waits until that node is gone. Limit: that node's lease */ \
    S(QUEUED) \
    /* its host is slowed or set aside (standing_internal.h). Limit: the end of that */ \
    S(ASIDE) \
    S(UNFIT)     /* its health check has failed, so it gets no place. Limit: as JOINED */
/* clang-format on */

enum coordinator_phase {
#define P(name) COORDINATOR_##name,
    COORDINATOR_PHASES(P)
#undef P
};
enum seat_state {
#define S(name) SEAT_##name,
    SEAT_STATES(S)
#undef S
    SEAT_STATE_COUNT
};

struct coordinator_view {
    enum coordinator_phase phase;
    uint64_t incarnation;    /* number of this run of the job; 0 in phase EMPTY */
    uint64_t next_round;     /* number that the next round will have */
    /* true: this coordinator has formed a round of a run that it has discarded since; nodes of that
     * run may come back */
    bool has_discarded;
    uint32_t restart_count, max_restarts, min_nodes, max_nodes;
    uint32_t spent;          /* restarts charged, and neither refunded nor refilled */
    uint32_t losses;         /* rounds that ended because a node was gone, since the last refill */
    int64_t max_losses;      /* how many such rounds are allowed; -1 = no limit */
    int64_t backoff_until_ms; /* no round forms before this time; 0 = the job does not back off */
    uint32_t group_world_size, world_size; /* sizes of the last round */
    uint32_t seats, suspended; /* suspended: seats whose nodes have no connection */
    uint32_t in_state[SEAT_STATE_COUNT];
    uint32_t awaited;        /* how many nodes are missing before a round can form */
    bool is_held;            /* true: only the right to form is missing for the next round */
    /* true: so few nodes of the last round are heard that another coordinator may lead them */
    bool lacks_majority;
    /* true: this coordinator does not lack the majority, and has formed a round or has won the
     * electorate of an earlier coordinator's round */
    bool decides;
    bool has_heirs;          /* true: if the coordinator is lost, another node takes over */
    int outcome;             /* an enum rendezvous_outcome, valid in phase ENDED */
    /* why the last round was stopped, or the job ended; valid until the next event */
    const char *why;
    const char *slow; /* ranks that were slow in the last window (types.h); "" = none */
};
void coordinator_look(const struct coordinator *c, struct coordinator_view *out);

struct seat_view {
    const char *host, *addr, *role;
    uint64_t pid;
    bool local, suspended;
    enum seat_state state;
    int64_t group_rank; /* group rank in the last round; -1 = the node was not in it */
    uint32_t local_world_size, first_rank;
    int64_t heard_ms;   /* time of the node's last message */
    const char *unfit;  /* why the node is not fit; "" = it is fit */
};
/* Calls `visit` for every seat, in no particular order. */
void coordinator_visit(const struct coordinator *c,
                       void (*visit)(void *arg, const struct seat_view *seat), void *arg);

/* What a coordinator remembers about a host on which something went wrong. */
struct host_view {
    const char *host;
    uint32_t short_lives, failures; /* in a row; see standing_internal.h */
    /* for how many ms the host's nodes still are slowed, refused, or set aside; 0 = they are not */
    int64_t slowed_ms, refused_ms, aside_ms;
};
/* Calls `visit` for every host that the coordinator remembers. */
void coordinator_visit_hosts(const struct coordinator *c, int64_t now_ms,
                             void (*visit)(void *arg, const struct host_view *host), void *arg);
/* Call this when an operator admits a host: forgets what went wrong there, so that its nodes take
 * part like others. Returns 1, or 0 if there was nothing to forget. */
uint32_t coordinator_admit(struct coordinator *c, int64_t now_ms, const char *host);

/* What a worker of the round does, as its node has said. */
struct rank_view {
    const char *host;
    int64_t age_ms; /* how long ago the node has said it */
    struct rdzv_rank rank;
};
/* Calls `visit` for each worker of the round about which its node has sent a RANK in the last
 * 15 s. */
void coordinator_visit_ranks(const struct coordinator *c, int64_t now_ms,
                             void (*visit)(void *arg, const struct rank_view *rank), void *arg);
/* Call this when somebody looks at a snapshot: for the next minute the coordinator asks the nodes
 * again and again what their workers do. */
void coordinator_watch_ranks(struct coordinator *c, int64_t now_ms);

/* Return the name of a phase or of a seat's state, for example "FORMING"; "?" for an unknown
 * number, which a coordinator of another build may have sent in STATUS_JOB or STATUS_NODE. */
const char *coordinator_phase_name(uint32_t phase);
const char *seat_state_name(uint32_t state);

#endif
