/* What the files of rendezvous/member share: member.c has the states, resuming.c keeps a round
 * going while the node has no connection. */
#ifndef RENDEZVOUS_MEMBER_INTERNAL_H
#define RENDEZVOUS_MEMBER_INTERNAL_H

#include "rendezvous/member/connecting_internal.h"
#include "rendezvous/member/keep_alive_internal.h"
#include "rendezvous/member/member.h"
#include "rendezvous/member/succession_internal.h"

#define MEMBER_NEVER (-1)

/* The change that was announced in the current round, and what the node has answered. */
struct member_change {
    uint64_t id; /* 0 = no change was announced in this round */
    bool is_set; /* true: CHANGE_AT has come */
    bool has_answered, is_ready;
    int64_t step, needs_ms; /* what the node has answered */
};

/* The notice that the node has given in the current round. */
struct member_notice {
    bool is_given;
    uint32_t kind;
    int64_t until_ms;
    char why[200];
};

/* The last report of member_quiet() in the current round. */
struct member_quiet {
    bool is_given;
    uint64_t silent, broken;
    int64_t quiet_ms;
    char what[512];
};

struct member {
    struct member_settings set; /* a copy, with texts that the member owns */
    const struct member_actions *actions;
    void *arg;

    enum member_state state;
    bool connected;       /* true: WELCOME has come on the current connection */
    bool had_coordinator; /* true: WELCOME has come on at least one connection */
    bool can_resume;      /* true: the protocol version with the last coordinator has RESUME */
    bool knows_unfit;     /* true: the connection's protocol version has JOIN.unfit */
    bool can_inquire;     /* true: the protocol version of the connection has INQUIRE */
    bool knows_pairs;     /* true: the protocol version of the connection has PAIR and PAIRED */
    bool knows_hangs;     /* true: the protocol version of the connection has QUIET and HUNG */
    bool in_launcher;     /* true: the last coordinator was in the launcher of a node */
    /* ids of the coordinators of the newest connection and of the one before it; 0 = none */
    uint64_t coordinator, last_coordinator;
    uint64_t connections; /* number of connections on which WELCOME has come */

    /* The last round that this node was in; JOIN and RESUME report it. */
    uint64_t round;
    uint64_t rounds_seen;
    uint32_t restarts_seen;
    uint32_t first_rank, world_size, group_size;
    int64_t last_rank;
    uint64_t incarnation; /* number of the run that this node takes part in; 0 = not known yet */
    /* true: a worker has failed in the last round, and the coordinator may not know it yet */
    bool owes_failure;
    char what[512]; /* the failure of that worker */
    /* whether that worker was killed from outside, and whether its failure ends the job */
    enum rendezvous_blame blame;
    /* true: an inquiry was requested in this round, and its result has not come */
    bool awaits_behind;
    /* time at which FAILED is sent even if the result of the inquiry has not come; CR_FOREVER = no
     * FAILED waits for a result */
    int64_t held_ms;
    /* `yields` of the last SPARE that had one; if it is larger than rounds_seen, this node has no
     * vote as a node of its last round */
    uint64_t yielded_to;
    uint32_t kept;   /* number of workers that go on in the next round, at the last member_join() */
    char unfit[256]; /* why the node's health check has failed; "" = the node is fit */
    /* true: the agent has called member_join() while FAILED waits for the result of an inquiry */
    bool joins_later;
    struct member_change change;
    struct member_notice notice;
    struct member_quiet quiet;

    /* true: the connection was lost in a round, so RESUME follows the next WELCOME */
    bool resumes;
    int64_t old_lease_ms; /* end of the lease that the node had when it sent RESUME */
    /* when RESUME was sent; MEMBER_NEVER if no RESUME waits for ACCEPTED */
    int64_t resumed_ms;
    struct connecting connecting; /* the series of tries to connect, if there is one */
    /* There is no lease if the coordinator is local, or while the node has no connection and is in
     * no round. */
    struct keep_alive keep_alive;
    struct succession succession; /* what this node does if the coordinator is lost */
    bool leader_ended;      /* true: the last coordinator has closed the connection */
    struct rdzv_heir at;    /* the coordinator of the newest WELCOME; port 0 = the endpoint */
    /* The coordinator that the node tries if no heir serves it: the coordinator of the node's last
     * round; if the node is a spare, that of the running round; or the host to which MOVED has sent
     * the node since. Port 0 = the endpoint. */
    struct rdzv_heir home;
    struct rdzv_heir aim;   /* where the present try goes; port 0 = the endpoint */
    int64_t heard_ms;       /* time of the last message of the coordinator */
    int64_t heard_at_ms;    /* newest at_ms in the connection's WELCOME and BEAT_ACKs */
    char lost_why[512];           /* why the last connection was lost */
};

/* ---- member.c ---- */

/* Starts a try to connect, which fails if WELCOME has not come after `limit_ms`. */
void member_try(struct member *m, int64_t now_ms, int64_t limit_ms);

/* Makes this node's next tries go to the heir `to`; if to->port is 0, to the endpoint. */
void member_aim(struct member *m, const struct rdzv_heir *to);

/* Sends the last report of member_quiet(), if there is one in this round. */
void member_send_quiet(struct member *m);

/* ---- resuming.c ---- */

/* Returns how long the member waits for its coordinator to come back, in ms; 0 = it makes one
 * try. */
int64_t member_wait_ms(const struct member *m);
/* Returns whether the workers of a node in a round may go on after the connection was lost. `how`
 * says how the connection was lost. */
bool member_may_resume(const struct member *m, enum rendezvous_loss how);
/* Call this if the connection was lost in a round and the workers go on. Begins to connect again;
 * the series of tries ends at the fence. */
void member_begin_resuming(struct member *m, int64_t now_ms);
/* Sends RESUME, and after it the notice and the answers to a change that the coordinator may have
 * missed. */
void member_send_resume(struct member *m, int64_t now_ms);
/* Fills a JOIN: with the settings, and with the numbers of the connection and of the last round. */
void member_fill_join(const struct member *m, struct rdzv_join *join);

#endif
