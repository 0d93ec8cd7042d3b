/* Assigns ranks to the nodes of a round. Pure.
 *
 * Nodes keep their group ranks where possible. A node of the last round keeps its group rank. A
 * node that was in an earlier round gets its old rank if that is free, or else a free rank that its
 * host had. The other nodes are sorted by the node rank that the user requests; nodes without such
 * a request come last, sorted by host and address in natural order ("n2" before "n10") and by
 * process id. In this order, each gets the rank that it requests if that is free, else the lowest
 * free rank. Global ranks follow the group ranks and are contiguous on each node. Role ranks count
 * the workers of one role. */
#ifndef RENDEZVOUS_ASSIGNMENT_INTERNAL_H
#define RENDEZVOUS_ASSIGNMENT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct assignment_node {
    /* input of assignment_make(); texts belong to the caller */
    void *owner;
    const char *host, *addr, *role;
    uint64_t pid, instance;
    int64_t node_rank; /* node rank that the user requests, or -1 */
    int64_t kept_rank; /* group rank in the last round; -1 = the node was not in it */
    int64_t old_rank;  /* group rank that the node had in an earlier round; -1 = none */
    uint32_t local_world_size;
    /* output of assignment_make() */
    uint32_t group_rank, first_rank, first_role_rank, role_world_size;
};

/* How many nodes kept their rank, got an old rank back, had to change their rank, or are new. Used
 * for a log line. */
struct assignment_summary {
    uint32_t kept, returned, moved, fresh;
    uint32_t world_size;
};

/* Assigns all ranks, and sorts `nodes` by group rank. departed[r] is the host whose node had group
 * rank r last; it is NULL if a node has this rank now or the host is unknown. If `fixed`, the group
 * rank of each node is its node rank; the caller has checked that each node rank below `count`
 * occurs once. Returns 0 or -ENOMEM. */
int assignment_make(struct assignment_node *nodes, uint32_t count, char *const *departed,
                    uint32_t departed_count, bool fixed, struct assignment_summary *out);

#endif
