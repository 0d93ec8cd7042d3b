/* Assigns ranks to the nodes of a round. Pure.
 *
 * Nodes keep their group ranks where possible. A node of the last round keeps its group rank. A
 * node that returns gets its old rank, or a rank that its host had, if it is free. The other nodes
 * get the free ranks, the lowest first. Their order is: by the node rank that the user requests;
 * without one by host and address in natural order ("n2" before "n10"), and by process id. Global
 * ranks follow the group ranks and are contiguous on each node. Role ranks count the workers of one
 * role. */
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
    int64_t kept_rank; /* group rank in the last round, different on every node; -1 = none */
    int64_t old_rank;  /* group rank in an earlier round, as the node remembers it, or -1 */
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

/* Assigns all ranks, and sorts `nodes` by group rank. `departed` has an element for each group
 * rank: the host that had the rank last, if no node has it now; else, or if the host is unknown,
 * NULL. If `fixed`, each group rank is the node rank; the caller has checked that these are valid.
 * Returns 0 or -ENOMEM. */
int assignment_make(struct assignment_node *nodes, uint32_t count, char *const *departed,
                    uint32_t departed_count, bool fixed, struct assignment_summary *out);

#endif
