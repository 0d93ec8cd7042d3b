/* The electorate of a round: the nodes of which more than half are needed to make another node the
 * coordinator. Pure.
 *
 * Each node of the round has one ballot. A node promises every coordinator that it joins no other
 * one before 5/4 of a lease have passed since the last message that it received from it. A
 * coordinator knows from the echo of its own clock (heard_at_ms) that a node has received a message
 * that it sent at a certain time, so the node's ballot is *held* until one lease after that time.
 * A ballot that is not held is *free*: the node may have joined another coordinator. A ballot is
 * *void* if the node can join no other coordinator in the name of this round: its process has
 * ended, its build knows no heirs, or it has received a later round.
 *
 * A coordinator may decide while fewer ballots are free than another coordinator needs. A node that
 * takes over must first have held more than half of all ballots at one time. So two coordinators
 * never may decide at the same time. */
#ifndef RENDEZVOUS_ELECTORATE_INTERNAL_H
#define RENDEZVOUS_ELECTORATE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct ballot {
    int64_t held_until_ms; /* 0 = the ballot was never held */
    uint64_t instance;     /* of the node that has this ballot; 0 = not known yet */
    bool is_void;
};

struct electorate {
    uint64_t rounds_seen; /* number of the round, plus 1; 0 = there is no electorate */
    uint32_t size;        /* number of nodes of the round */
    /* true: this coordinator has formed the round, or has held more than half of the ballots */
    bool is_won;
    struct ballot *ballots; /* by group rank */
};

/* Begins an electorate in which all ballots are free. Returns 0 or -ENOMEM; on error `e` is
 * unchanged. */
int electorate_begin(struct electorate *e, uint64_t rounds_seen, uint32_t size, bool is_won);
void electorate_end(struct electorate *e);

/* Gives the ballot `rank` to the node with this instance, unless another node has it. Returns the
 * rank; or -1 if another node has it: another coordinator has formed a round of the same number, in
 * which this node has the same rank. Returns -1 also if the electorate has no such rank. */
int64_t electorate_claim(struct electorate *e, int64_t rank, uint64_t instance);

/* Each of these three does nothing if the electorate has no such rank. electorate_hold() does
 * nothing either if the ballot is held for longer already. */
void electorate_hold(struct electorate *e, int64_t rank, int64_t until_ms);
void electorate_release(struct electorate *e, int64_t rank);
void electorate_void(struct electorate *e, int64_t rank);

/* Returns whether the coordinator may decide. Sets is_won if more than half of the ballots are
 * held. Returns true if there is no electorate. */
bool electorate_may_decide(struct electorate *e, int64_t now_ms);
/* Call this if electorate_may_decide() has returned true. Returns a time until which it returns
 * true, unless ballots are released; CR_FOREVER if it stays true. */
int64_t electorate_until(const struct electorate *e, int64_t now_ms);
/* Returns whether so many ballots are void that no coordinator can win any more. */
bool electorate_is_closed(const struct electorate *e);

#endif
