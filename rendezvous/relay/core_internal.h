/* One trunk of a relay: carries the sessions of up to RDZV_RELAY_PLACES members of one job over one
 * connection to the coordinator's host. Pure: the shell (relay.c) passes received bytes and the
 * time in, and takes the bytes to send.
 *
 * Every frame of a member goes up unchanged, and every frame for it comes down unchanged, but for
 * the beats. A BEAT that says nothing new is kept here. At most once in an eighth of the keep-alive
 * interval, one HOLD goes up for all members that have sent BEAT. When the host answers the HOLD,
 * the core answers each of these BEATs. So a member gets an answer only after the coordinator has
 * received a HOLD that was sent after the member's BEAT. Therefore the lease of the member is as
 * safe as without a relay.
 *
 * A member has a place, a number. After each call of a function below, the shell sends the bytes of
 * relay.out on the trunk, sends those of each place's `out` to the member there, and closes the
 * connections of the members whose `ends` is true. */
#ifndef RENDEZVOUS_RELAY_CORE_INTERNAL_H
#define RENDEZVOUS_RELAY_CORE_INTERNAL_H

#include "base/log/trace.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>

/* longest time in ms for the host to answer RELAY, or a HOLD */
#define RELAY_ANSWER_MS INT64_C(20000)
/* time in ms between two HOLDs if no member sends BEAT */
#define RELAY_IDLE_MS   (SESSION_RELAY_MS / 4)
/* time in ms for which BEATs are gathered into one HOLD, as long as the job's keep-alive interval
 * is not known */
#define RELAY_GATHER_MS INT64_C(250)

/* clang-format off */
/* S(NAME) — each state of a place, its meaning and its time limit. The host limits the time of a
 * member's greeting and of its lease. */
#define RELAY_STATES(S) \
    S(FREE)     /* no member is here. No time limit */ \
    S(ATTACHED) /* a member is connected. No time limit here: the host has the limits */ \
    S(LEAVING)  /* waits for the host's DETACH. Limit: a host that answers no HOLD is given up */
/* clang-format on */
enum relay_state {
#define S(name) RELAY_##name,
    RELAY_STATES(S)
#undef S
};

struct relay_place {
    enum relay_state state;
    uint32_t version;       /* protocol version of the member's session; 0 = not known yet */
    struct cr_buffer in;    /* received bytes of the member that are not a whole frame yet */
    struct cr_buffer out;   /* bytes to send to the member */
    bool is_detached;       /* true: the host has sent DETACH */
    bool ends;              /* true: once `out` is sent, close the member's connection */
    /* true: close the member's connection with a reset, so that the member may resume */
    bool is_broken;
    bool has_beat;          /* true: a BEAT has gone up unchanged */
    struct rdzv_beat beat;  /* the newest BEAT; older ones that wait get no answer of their own */
    bool is_kept;           /* true: `beat` came after the last HOLD, and waits for the next one */
    /* true: the HOLD that is under way was sent in place of a BEAT of this member */
    bool is_asked;
    int64_t asked_ms;       /* if is_asked: sent_ms of the BEAT in whose place HOLD was sent */
};

struct relay {
    struct cr_buffer out;   /* bytes to send on the trunk */
    struct rdzv_trunk in;
    struct relay_place places[RDZV_RELAY_PLACES];
    uint32_t used;          /* number of places that are not FREE */
    bool is_welcome;        /* true: the host has accepted the trunk */
    /* true: the trunk is of no use; the shell closes the connections of all members */
    bool is_over;
    char why[256];          /* if is_over: the reason */
    int64_t gather_ms;      /* how long BEATs are gathered */
    int64_t hold_at_ms;     /* time at which the next HOLD is due */
    int64_t answer_by_ms;   /* time by which the host must have answered; CR_FOREVER = no limit */
    struct cr_trace trace;  /* gets a text for each change of a place's state */
};

/* Begins a trunk of the job `run_id`: queues the magic number and RELAY. Returns 0 or -ENOMEM. */
int relay_open(struct relay *r, int64_t now_ms, const char *run_id);
void relay_done(struct relay *r); /* frees the buffers */

/* Gives a place to a member that has connected from the numeric address `addr`. Returns the place,
 * or -1 if no place is free or the trunk is over. After this, pass the member's bytes, without the
 * magic number, to relay_receive(). */
int relay_attach(struct relay *r, const char *addr);
/* The member's connection is over. */
void relay_lost(struct relay *r, uint32_t place, enum rendezvous_loss how);
/* A member has sent bytes. */
void relay_receive(struct relay *r, int64_t now_ms, uint32_t place, const char *data, size_t len);
/* Bytes have come on the trunk. */
void relay_trunk_receive(struct relay *r, const char *data, size_t len);
/* Call this when the trunk's connection is over. Sets is_over, and makes the shell reset the
 * connections of all members, so that they may resume. */
void relay_trunk_lost(struct relay *r, const char *why);

/* Call this at relay_deadline(). */
void relay_tick(struct relay *r, int64_t now_ms);
int64_t relay_deadline(const struct relay *r);

#endif
