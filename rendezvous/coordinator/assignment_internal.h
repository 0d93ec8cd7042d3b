/* Which node gets which ranks. Pure.
 *
 * Ranks stay where they were. A node of the last round keeps its group rank. A node that returns
 * gets its old one back if it is free. Then the free ranks are filled, lowest first: by the node
 * rank that was asked for, then by host and address in natural order ("n2" before "n10"), then
 * by process id. Global ranks are contiguous on each node and follow the group ranks; role ranks
 * count the nodes of one role. */
#ifndef RENDEZVOUS_ASSIGNMENT_INTERNAL_H
#define RENDEZVOUS_ASSIGNMENT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

struct assignment_node {
    /* in; texts are borrowed */
    void *owner;
    const char *host, *addr, *role;
    uint64_t pid, instance;
    int64_t node_rank; /* asked for, or -1 */
    int64_t kept_rank; /* group rank in the last round, or -1; unique */
    int64_t old_rank;  /* an earlier group rank that the node remembers, or -1 */
    uint32_t local_world_size;
    /* out */
    uint32_t group_rank, first_rank, first_role_rank, role_world_size;
};

/* How many nodes kept their rank, got an old one back, had to move, or are new; for the log. */
struct assignment_summary {
    uint32_t kept, returned, moved, fresh;
    uint32_t world_size;
};

/* Ranks the nodes and leaves them sorted by group rank. `departed` has, for each rank that no
 * node holds now, the host that held it last; NULL entries: unknown. With `fixed` the group rank
 * is the node rank, which the caller has checked. Returns 0 or -ENOMEM. */
int assignment_make(struct assignment_node *nodes, uint32_t count, char *const *departed,
                    uint32_t departed_count, bool fixed, struct assignment_summary *out);

#endif
