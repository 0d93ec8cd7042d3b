/* What a node does when its coordinator is lost and the round has heirs: whom it tries to join, and
 * whether it serves the others itself. Pure.
 *
 * To join an heir is to vote for it. Before a node votes, it waits until its old coordinator, which
 * may still run, has certainly stopped deciding: 5/4 of a lease after the last message from it
 * (rules/electorate_internal.h). If the old coordinator has closed the connection, its
 * process has ended, and the node votes at once.
 *
 * A node tries the heirs in their order, and after them its old coordinator. The first heir begins
 * to serve the others at the time at which it may vote, each further heir half a lease after the
 * heir before it. So the first heir that lives usually wins. An heir that serves forms a round only
 * when more than half of the nodes of the last round have joined it.
 *
 * A spare was not in the running round. It searches among the heirs of that round, so that it can
 * step in when the heir forms the next one. It has no vote, and is no heir: no ROUND has told it
 * what an heir has to know. */
#ifndef RENDEZVOUS_SUCCESSION_INTERNAL_H
#define RENDEZVOUS_SUCCESSION_INTERNAL_H

#include "rendezvous/protocol/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/* A time that does not apply at present is CR_FOREVER. */
struct succession {
    struct rdzv_heirs heirs; /* of the last round that this node was in */
    /* true: a round runs without this node, which is a spare; the heirs of that round are in
     * `beside` */
    bool is_beside;
    struct rdzv_heirs beside; /* heirs of that round */
    uint32_t leader;         /* `leader` in the last ROUND of this node */
    uint64_t round;
    uint64_t coordinator;    /* id of the coordinator that has sent the last ROUND */
    /* the fields of these names in the last ROUND (message.h); 0 once that round is settled */
    uint64_t before_seen;
    uint32_t before_size, before_place;
    uint64_t before_by;
    int own;             /* index of this node in `heirs`; -1 = it is no heir */
    bool is_lost;        /* true: the coordinator is lost, and none was found since */
    int64_t found_ms;    /* time of the last WELCOME */
    int64_t may_vote_ms; /* before this time the node joins no heir */
    /* Before this time the heirs are tried again and again, and not the old coordinator: an heir
     * may learn of the loss later than this node, and so begin to serve later. */
    int64_t back_ms;
    int64_t lead_ms;     /* time at which this node begins to serve the others */
    /* time at which the node gives up the search. The time stays the same if the node finds an heir
     * and soon loses that heir. */
    int64_t until_ms;
    /* Index of the next heir to try; heirs.count = the old coordinator. If an heir sends this node
     * away, the candidates after this heir are tried first. Exception: if this node is the first
     * heir and its own host sends it away, it tries the old coordinator, and then its own host
     * again. */
    uint32_t next;
};

/* Begins without heirs. */
void succession_init(struct succession *s);
/* Call this with each ROUND of this node, and the id of the coordinator that has sent it. Stores
 * the heirs of the round, and discards what was known of earlier rounds. */
void succession_begin_round(struct succession *s, const struct rdzv_round *r,
                            uint64_t coordinator);
/* Call this with the field `heirs` of each message SPARE, which a node gets that waits while a
 * round runs without it. Stores these heirs of the running round: if the coordinator is lost, the
 * node searches among them. */
void succession_begin_beside(struct succession *s, const char *heirs);
/* Call this with the field `settled` of each BEAT_ACK, and the id of the coordinator that has sent
 * the BEAT_ACK. If `settled` names this node's last round, sets before_seen, before_size and
 * before_place to 0. Does nothing if another coordinator has sent this node's ROUND: two
 * coordinators may each have formed a round of the same number, and only one of the two rounds gets
 * settled. */
void succession_settle(struct succession *s, uint64_t settled, uint64_t coordinator);
/* Call this when the coordinator is lost: the node begins to search for another one, or goes on
 * with its search. heard_ms is the time of the last message from the coordinator. The search lasts
 * at least wait_ms (coordinator_wait). Returns true if a new search begins, or if there are no
 * heirs. Returns false if an earlier search goes on, because this node has lost an heir that could
 * not form a round. */
bool succession_lost(struct succession *s, int64_t now_ms, enum rendezvous_loss how,
                     int64_t heard_ms, int64_t lease_ms, int64_t wait_ms);
/* Call this when a coordinator has sent WELCOME: the coordinator is not lost any more, so the node
 * votes for no heir and does not become the coordinator itself. */
void succession_found(struct succession *s, int64_t now_ms);
/* Call this after succession_lost() with the same `how`. Returns whether the node gives up, because
 * the time for its search is over: the coordinators that it has found could form no round. A spare
 * gives up too if the running round had no heirs: the coordinators that are started in the place of
 * the lost one send the spare away if most nodes of that round are gone. */
bool succession_is_over(const struct succession *s, int64_t now_ms, enum rendezvous_loss how);
/* Returns whether there are heirs among which this node can search for a coordinator. */
bool succession_has_heirs(const struct succession *s);
/* Returns whether the coordinator is lost and there are heirs. */
bool succession_is_on(const struct succession *s);
/* Returns whether the coordinator is lost, there are heirs, and the node may join another
 * coordinator. */
bool succession_may_vote(const struct succession *s, int64_t now_ms);
/* Returns the heir to try next. Returns NULL if the node may not vote yet, or if the coordinator
 * that has formed the node's last round is to be tried. */
const struct rdzv_heir *succession_next(struct succession *s, int64_t now_ms);
/* Returns true if this node has to begin now to serve the others as their coordinator; in this case
 * further calls return false. */
bool succession_takes_over(struct succession *s, int64_t now_ms);
/* Returns the epoch under which this node serves the others. It is larger than each epoch under
 * which this or an earlier round was formed, and differs from the epochs of all other heirs. */
uint64_t succession_epoch(const struct succession *s);

#endif
