/* The electorate of a round: the nodes of which more than half are needed to make another node the
 * coordinator. Pure.
 *
 * Each node of the round has one ballot. A node that has received a message from its coordinator
 * joins no other coordinator for 5/4 of a lease. It returns the time at which the coordinator sent
 * that message (heard_at_ms), and until one lease after this time, its ballot is *held* by that
 * coordinator. A ballot that is not held is *free*: the node may have joined another coordinator. A
 * ballot is *void* if the node can join no other coordinator as a node of this round: its process
 * has ended, its build knows no heirs, or it has received a later round.
 *
 * To take over, a coordinator must have held more than half of all ballots at one time. A
 * coordinator may decide while so few ballots are free that another one cannot get more than half.
 * So no two coordinators ever decide at the same time. */
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
    /* true: this coordinator has formed the round, or once held more than half of the ballots */
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

/* Make the ballot of `rank` held until until_ms, free, or void. They do nothing if the electorate
 * has no such rank. electorate_hold() also does nothing if the ballot is held for longer
 * already. */
void electorate_hold(struct electorate *e, int64_t rank, int64_t until_ms);
void electorate_release(struct electorate *e, int64_t rank);
void electorate_void(struct electorate *e, int64_t rank);

/* Returns whether the coordinator may decide; true if there is no electorate. Sets e->is_won if
 * more than half of the ballots are held. */
bool electorate_may_decide(struct electorate *e, int64_t now_ms);
/* Call this if electorate_may_decide() has returned true. Returns the time until which
 * electorate_may_decide() returns true if no ballot is released before; CR_FOREVER = for ever. */
int64_t electorate_until(const struct electorate *e, int64_t now_ms);
/* Returns whether so many ballots are void that no coordinator can win any more. */
bool electorate_is_closed(const struct electorate *e);

#endif
