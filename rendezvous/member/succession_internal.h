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
    bool is_beside;          /* true: this node waits as a spare beside a later round */
    struct rdzv_heirs beside; /* heirs of that later round */
    uint32_t leader;         /* `leader` in that ROUND */
    uint64_t round;
    uint64_t coordinator;    /* id of the coordinator that has sent that ROUND */
    /* the fields of these names in the last ROUND (message.h); 0 once that round is settled */
    uint64_t before_seen;
    uint32_t before_size, before_place;
    uint64_t before_by;
    int own;             /* index of this node in `heirs`; -1 = it is no heir */
    bool is_lost;        /* true: the coordinator is lost, and none was found since */
    int64_t found_ms;    /* time of the last WELCOME */
    int64_t may_vote_ms; /* before this time the node joins no heir */
    /* Before this time the heirs are tried again and again, and not the old coordinator: an heir
     * may learn of the loss later than this node, and serve only then. */
    int64_t back_ms;
    int64_t lead_ms;     /* time at which this node begins to serve the others */
    /* time at which the node gives up the search. It stays the same if the node finds an heir and
     * loses it soon. */
    int64_t until_ms;
    /* Index of the next heir to try; heirs.count = the old coordinator. If an heir sends this node
     * away, the candidates after this heir are tried first. */
    uint32_t next;
};

/* Begins without heirs. */
void succession_init(struct succession *s);
/* Call this with each ROUND of this node, and the id of the coordinator that has sent it. */
void succession_begin_round(struct succession *s, const struct rdzv_round *r,
                            uint64_t coordinator);
/* Call this with the field `heirs` of each SPARE. */
void succession_begin_beside(struct succession *s, const char *heirs);
/* Call this with the field `settled` of each BEAT_ACK, and the id of the coordinator that has sent
 * it. Two coordinators may each have formed a round of the same number, of which only one gets
 * settled. So this does nothing if another coordinator has sent this node's ROUND. */
void succession_settle(struct succession *s, uint64_t settled, uint64_t coordinator);
/* Call this when the coordinator is lost. heard_ms is the time of the last message from it. wait_ms
 * is how long the node waits at least for a coordinator (coordinator_wait). Returns true if a new
 * search for a coordinator begins, or if there are no heirs. Returns false if an earlier search
 * goes on, because this node has lost an heir that could not form a round. */
bool succession_lost(struct succession *s, int64_t now_ms, enum rendezvous_loss how,
                     int64_t heard_ms, int64_t lease_ms, int64_t wait_ms);
/* Call this when a coordinator has sent WELCOME. */
void succession_found(struct succession *s, int64_t now_ms);
/* Returns whether there are heirs to search for a coordinator. */
bool succession_has_heirs(const struct succession *s);
/* Returns whether the coordinator is lost and there are heirs. */
bool succession_is_on(const struct succession *s);
/* Returns whether the coordinator is lost, there are heirs, and the node may join another one. */
bool succession_may_vote(const struct succession *s, int64_t now_ms);
/* Returns the heir to try next. Returns NULL if the node may not vote yet, or if the coordinator
 * that has formed the node's last round is to be tried. */
const struct rdzv_heir *succession_next(struct succession *s, int64_t now_ms);
/* Returns true once when this node has to begin to serve the others. */
bool succession_takes_over(struct succession *s, int64_t now_ms);
/* Returns the epoch under which this node serves the others. It is larger than each epoch under
 * which this or an earlier round was formed, and differs from that of each other heir. */
uint64_t succession_epoch(const struct succession *s);

#endif
