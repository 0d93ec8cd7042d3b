/* Which node gets which ranks. Pure.
 *
 * Ranks stay where they were: a node of the last round keeps its group rank, a node that returns
 * gets its old one back if it is free, and only then are the free ones filled, lowest first, by
 * node rank asked for, then by host and address in natural order ("n2" before "n10"), then by
 * process id. Global ranks are contiguous a node and follow the group ranks; role ranks count
 * nodes of the same role only. */
#ifndef RENDEZVOUS_ASSIGNMENT_H
#define RENDEZVOUS_ASSIGNMENT_H

#include <stdint.h>

struct assignment_node {
    /* in; texts are borrowed */
    void *owner;
    const char *host, *addr, *role;
    uint64_t pid, instance;
    int64_t node_rank; /* asked for, or -1 */
    int64_t kept_rank; /* group rank in the last round, or -1; unique */
    int64_t old_rank;  /* an earlier one that the node says it had, or -1 */
    uint32_t local_world_size;
    /* out */
    uint32_t group_rank, first_rank, first_role_rank, role_world_size;
};

/* What changed, for the log. */
struct assignment_summary {
    uint32_t kept, returned, moved, fresh;
    uint32_t world_size;
};

/* Ranks `count` nodes 0..count-1 and leaves them sorted by group rank. `departed` names the host
 * that last held a rank that nobody holds now (NULL entries: unknown). With `fixed`, a node's rank
 * is its node_rank, which the caller has checked. Returns 0 or -ENOMEM. */
int assignment_make(struct assignment_node *nodes, uint32_t count, char *const *departed,
                    uint32_t departed_count, int fixed, struct assignment_summary *out);

/* Order of nodes that have no rank yet; for qsort. */
int assignment_compare_identity(const void *a, const void *b);

#endif
