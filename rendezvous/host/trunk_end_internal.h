/* The host's end of a trunk, the connection between a relay and the host that carries the sessions
 * of several nodes (rendezvous/protocol/trunk.h). Pure: the owner passes bytes and the time, and
 * sends what is in the output of the relay's session. relays.c is the shell around it, and the
 * simulator runs it, too.
 *
 * Each node behind the relay has a session of its own, as a node that has connected directly; only
 * its bytes come and go on the trunk. A HOLD of the relay stands for the beats of many nodes. It
 * becomes one BEAT for each of them, so the coordinator renews the lease of each node like that of
 * a node without a relay. The loss of a trunk is the loss of up to 64 connections, and of no node:
 * the nodes resume on other connections. */
#ifndef RENDEZVOUS_TRUNK_END_INTERNAL_H
#define RENDEZVOUS_TRUNK_END_INTERNAL_H

#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct trunk_end;

/* A node behind a relay. Its owner embeds this struct. */
struct trunk_member {
    struct trunk_end *trunk; /* NULL = the trunk is lost, or this node is behind none */
    struct host_session *session; /* the session of this node */
    uint32_t place;          /* the node's place at its relay */
    /* the fields of these names in the newest BEAT that the node itself has sent */
    uint64_t rounds_over, rounds_seen;
};

/* What the host's end of a trunk calls. `arg` is the owner's argument of trunk_end_init(). */
struct trunk_end_actions {
    /* A node has connected to the relay from the address `addr`. Opens a session for the node by
     * host_session_open(), and returns a member whose fields are 0 but for `session`. Returns NULL
     * if memory is short. The member must live until trunk_end_flush() has returned true, or
     * trunk_end_done() was called. */
    struct trunk_member *(*attach)(void *arg, uint32_t place, const char *addr);
    /* The connection of the node is over. The owner calls host_session_lost(), and later
     * trunk_end_flush(). */
    void (*lost)(void *arg, struct trunk_member *m, enum rendezvous_loss how, const char *why);
    /* The session of the node has received bytes. The owner calls trunk_end_flush() later in the
     * same event. */
    void (*changed)(void *arg, struct trunk_member *m);
};

/* The owner embeds this struct. All fields are private. */
struct trunk_end {
    const struct trunk_end_actions *actions;
    void *arg;
    struct host_session *session; /* the session of the relay */
    struct rdzv_trunk in;
    struct trunk_member *members[RDZV_RELAY_PLACES]; /* NULL = no member is at this place */
    /* bit p of `leaving` is 1 if this end has sent DETACH for place p, and the relay has not; bit p
     * of `left` is 1 if the relay has sent DETACH, and this end has not */
    uint64_t leaving, left;
    /* true while a HOLD of the relay is handled: the coordinator's answers to the beats for which
     * it stands are not sent; the newest answer is stored in `ack` */
    bool holds;
    struct rdzv_beat_ack ack;
};

/* `session` is that of the relay; it and `actions` must live as long as the trunk's end. */
void trunk_end_init(struct trunk_end *t, struct host_session *session,
                    const struct trunk_end_actions *actions, void *arg);
/* Frees the memory. Calls no action. */
void trunk_end_done(struct trunk_end *t);

/* Handles bytes that have come on the trunk. Returns 0; or a negative errno and a text in err,
 * after which the trunk has to be closed. */
int trunk_end_receive(struct trunk_end *t, int64_t now_ms, const char *data, size_t len,
                      struct cr_error *err);

/* If the message answers a beat that came by HOLD, stores it and returns true: the message must not
 * be sent, because one BEAT_ACK answers the whole HOLD. Otherwise returns false. */
bool trunk_end_keeps(struct trunk_member *m, const struct rdzv_message *message);

/* Moves the output of the member's session to the output of the relay's session; discards it if the
 * trunk carries nothing any more. Returns 0 or -ENOMEM; on error the trunk has to be closed. */
int trunk_end_push(struct trunk_member *m);
/* Does what trunk_end_push() does. If the member's session is over, also ends it and sends DETACH.
 * Sets *is_over to true if the owner may free the member, else to false. Returns 0 or -ENOMEM. */
int trunk_end_flush(struct trunk_member *m, int64_t now_ms, bool *is_over);

/* Call this when the connection of the relay is over. Calls the action `lost` for each member:
 * these nodes may resume. */
void trunk_end_lost(struct trunk_end *t, const char *why);

/* Runs the sessions of the members whose deadlines have come. Call this at trunk_end_deadline(),
 * which returns the earliest of these deadlines, or CR_FOREVER. */
void trunk_end_tick(struct trunk_end *t, int64_t now_ms);
int64_t trunk_end_deadline(const struct trunk_end *t);

bool trunk_end_has_members(const struct trunk_end *t);

#endif
