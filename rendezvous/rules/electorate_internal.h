/* The electorate of a round: the nodes of which more than half are needed to make another node the
 * coordinator. Pure.
 *
 * Each node of the round has one ballot. A node that has received a message from its coordinator
 * joins no other coordinator for 5/4 of a lease. The node sends back the time at which the
 * coordinator sent that message (heard_at_ms). Until one lease after this time, the node's ballot
 * is *held* by that coordinator. The ballot is held for ever if the node has received a later round
 * of this coordinator, because such a node can elect nobody as a node of this round. A ballot that
 * is not held is *free*: the node may have joined another coordinator. A ballot is *void* if the
 * node can join no coordinator any more: its process has ended, or its build knows no heirs.
 *
 * A coordinator *wins* when it holds more than half of all ballots at one time; the coordinator
 * that has formed the round has won from the start. After that it may decide while so few ballots
 * are free that no other coordinator can win. Once that many are free, another one may have won, so
 * this one has to win again. So no two coordinators ever decide at the same time. */
#ifndef RENDEZVOUS_ELECTORATE_INTERNAL_H
#define RENDEZVOUS_ELECTORATE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct ballot {
    int64_t held_until_ms; /* 0 = the ballot was never held */
    uint64_t instance;     /* instance of the node that has this ballot; 0 = not known yet */
    bool is_void;
};

/* Two coordinators may each form a round of the same number, so a round is identified by its number
 * and the coordinator that has formed it. */
struct electorate {
    uint64_t rounds_seen; /* number of the round, plus 1; 0 = there is no electorate */
    uint64_t formed_by;   /* id of the coordinator that has formed the round */
    uint32_t size;        /* number of nodes of the round */
    bool is_won;          /* true: this coordinator has won, and no other one can have won since */
    struct ballot *ballots; /* by group rank */
};

/* Begins an electorate in which all ballots are free. Returns 0 or -ENOMEM; on error `e` is
 * unchanged. */
int electorate_begin(struct electorate *e, uint64_t rounds_seen, uint64_t formed_by, uint32_t size,
                     bool is_won);
void electorate_end(struct electorate *e);

/* Returns whether `e` is the electorate of the round that has the number rounds_seen - 1 and was
 * formed by the coordinator with the id formed_by. */
bool electorate_is_of(const struct electorate *e, uint64_t rounds_seen, uint64_t formed_by);

/* Gives the ballot `rank` to the node with this instance. Returns the rank; or -1 if another node
 * has this ballot, or the electorate has no such rank. */
int64_t electorate_claim(struct electorate *e, int64_t rank, uint64_t instance);

/* Change the ballot of `rank`: electorate_hold() makes it held until until_ms (CR_FOREVER = for
 * ever), electorate_release() free, and electorate_void() void. All do nothing if the electorate
 * has no such rank, or if the ballot is held for ever. electorate_hold() also does nothing if the
 * ballot is held for longer already. */
void electorate_hold(struct electorate *e, int64_t rank, int64_t until_ms);
void electorate_release(struct electorate *e, int64_t rank);
void electorate_void(struct electorate *e, int64_t rank);

/* Returns whether the coordinator may decide; true if there is no electorate. Sets e->is_won. Call
 * this before a ballot that was held until an earlier time is held again: otherwise the time in
 * which the ballot was free is not noticed. */
bool electorate_may_decide(struct electorate *e, int64_t now_ms);
/* Call this if electorate_may_decide() has returned true. Returns the time until which it will
 * return true if no ballot is released; CR_FOREVER if there is no such limit. */
int64_t electorate_until(const struct electorate *e, int64_t now_ms);
/* Returns whether so many ballots are void or held for ever that no other coordinator can win. */
bool electorate_is_closed(const struct electorate *e);
/* Returns whether the electorate will be closed (electorate_is_closed()) once `yielding` more of
 * its ballots are held for ever. */
bool electorate_can_close(const struct electorate *e, uint32_t yielding);
/* Returns whether the ballot of `rank` is neither void nor held for ever; false if the electorate
 * has no such rank. */
bool electorate_is_open(const struct electorate *e, int64_t rank);

#endif
