/* Which nodes test the network with each other before a round (--pair-check), and which of them is
 * at fault when a test fails. Pure.
 *
 * One failed test does not say which of its two nodes is at fault. So both become suspects, and
 * each suspect is tested again with another node, if possible with one that has passed a test. */
#ifndef RENDEZVOUS_PAIRS_INTERNAL_H
#define RENDEZVOUS_PAIRS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* number of nodes with which a node may fail before it is unfit in any case */
#define PAIRS_TRIES ((size_t) 4)

enum pairs_state {
    PAIRS_UNTESTED, /* the node has passed no test yet, and has failed in none */
    PAIRS_PASSED,   /* the node has passed a test */
    PAIRS_SUSPECT,  /* the node has failed in a test, and has passed none since */
};

struct pairs_node {
    uint64_t id;
    enum pairs_state state;
    /* the first `failures` entries of failed_with are the ids of the nodes with which this node has
     * failed; it is tested with none of them again */
    size_t failures;
    uint64_t failed_with[PAIRS_TRIES];
};

/* Two nodes that test each other: indexes of the array that pairs_plan() was given. */
struct pairs_pair {
    size_t a, b;
};

/* Pairs the `n` nodes that can be tested now. Each node is in one pair at most. Suspects come
 * first, and get a node that has passed if there is one. A node that has passed is only used as the
 * partner of another node. Stores the pairs in `out`, which has room for n / 2 pairs, and returns
 * their number. used[i] is set to whether node i is in a pair. Returns 0 if no test is needed or
 * possible. */
size_t pairs_plan(struct pairs_node *const *nodes, size_t n, bool *used, struct pairs_pair *out);

/* Notes the result of a test of `a` with `b`. A node that had passed stays so after a failure,
 * because the failure counts against its partner. */
void pairs_note(struct pairs_node *a, struct pairs_node *b, bool passed);

/* Forgets what the node's tests have shown, so that the node is tested again. */
void pairs_forget(struct pairs_node *node);

/* Why a node is unfit. */
enum pairs_verdict {
    PAIRS_FIT,     /* it is not known to be unfit */
    PAIRS_AT_FAULT, /* it has failed with two nodes that pass with others, or with PAIRS_TRIES */
    PAIRS_UNCLEAR, /* it is a suspect, and no node is left with which it could be tested */
};

/* Judges node `i` of the `n` nodes. Call this for all nodes before any of them is taken out of the
 * array, because the verdict on a suspect depends on the other nodes. */
enum pairs_verdict pairs_judge(struct pairs_node *const *nodes, size_t n, size_t i);

#endif
