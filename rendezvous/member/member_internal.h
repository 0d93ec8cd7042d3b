/* What the files of rendezvous/member share: member.c has the states, resuming.c keeps a round
 * going while the node has no connection. */
#ifndef RENDEZVOUS_MEMBER_INTERNAL_H
#define RENDEZVOUS_MEMBER_INTERNAL_H

#include "rendezvous/member/connecting_internal.h"
#include "rendezvous/member/keep_alive_internal.h"
#include "rendezvous/member/member.h"

#define MEMBER_NEVER (-1)

/* The change that was announced in the current round, and what the node has answered. */
struct member_change {
    uint64_t id; /* 0 = no change was announced in this round */
    bool is_set; /* CHANGE_AT has come */
    bool has_answered, is_ready;
    int64_t step, needs_ms; /* the answer */
};

/* The notice that the node has given in the current round. */
struct member_notice {
    bool is_given;
    uint32_t kind;
    int64_t until_ms;
    char why[200];
};

struct member {
    struct member_settings set; /* a copy, with texts that the member owns */
    const struct member_actions *actions;
    void *arg;

    enum member_state state;
    bool connected;       /* WELCOME has come on the current connection */
    bool had_coordinator; /* WELCOME has come on some connection */
    bool can_resume;      /* the last coordinator knows RESUME */
    bool in_launcher;     /* the last coordinator was in the launcher of a node */
    /* ids of the coordinators of this connection and of the last one; 0 = none */
    uint64_t coordinator, last_coordinator;
    uint64_t connections; /* number of connections on which WELCOME has come */

    /* The last round that this node was in; JOIN and RESUME report it. */
    uint64_t round;
    uint64_t rounds_seen;
    uint32_t restarts_seen;
    uint32_t first_rank, world_size, group_size;
    int64_t last_rank;
    uint64_t incarnation; /* of the job's run that this node takes part in; 0 = not known yet */
    /* a worker has failed in that round, and the coordinator may not have heard of it */
    bool owes_failure;
    char what[512]; /* that failure */
    bool is_killed; /* that failure was a signal from outside */
    struct member_change change;
    struct member_notice notice;

    /* the connection was lost in a round; the next WELCOME is answered with RESUME */
    bool resumes;
    int64_t old_lease_ms; /* end of the lease that the node had when it sent RESUME */
    int64_t resumed_ms;           /* when RESUME was sent; MEMBER_NEVER once it is accepted */
    struct connecting connecting; /* the series of tries to connect, if there is one */
    /* stopped if the coordinator is local, and while the node is not connected and in no round */
    struct keep_alive keep_alive;
    char lost_why[512];           /* why the last connection was lost */
};

/* ---- member.c ---- */

/* Starts a try to connect, which ends after `limit_ms` if WELCOME has not come. */
void member_try(struct member *m, int64_t now_ms, int64_t limit_ms);

/* ---- resuming.c ---- */

/* Returns how long the member waits for its coordinator to come back; 0 = it makes one try. */
int64_t member_wait_ms(const struct member *m);
/* Returns whether the workers may go on after the connection was lost in this way. */
bool member_may_resume(const struct member *m, enum rendezvous_loss how);
/* Call this when the connection was lost and the workers go on. It starts to connect again, up to
 * the fence. */
void member_begin_resuming(struct member *m, int64_t now_ms);
/* Sends RESUME, and repeats what the coordinator may have missed. */
void member_send_resume(struct member *m, int64_t now_ms);
/* Fills the fields of JOIN that change from one JOIN to the next. */
void member_fill_join(const struct member *m, struct rdzv_join *join);

#endif
