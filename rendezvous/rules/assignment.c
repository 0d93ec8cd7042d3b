/* The assignment of ranks to the nodes of a round. */
#include "rendezvous/rules/assignment_internal.h"

#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define UNRANKED UINT32_MAX

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

/* Compares texts in natural order: digits in a row are compared as one number, so "n2" comes before
 * "n10". */
static int compare_natural(const char *a, const char *b) {
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char) *a) && isdigit((unsigned char) *b)) {
            while (*a == '0') a++;
            while (*b == '0') b++;
            size_t a_len = strspn(a, "0123456789"), b_len = strspn(b, "0123456789");
            if (a_len != b_len) return a_len < b_len ? -1 : 1;
            int order = memcmp(a, b, a_len);
            if (order != 0) return order;
            a += a_len;
            b += b_len;
        } else if (*a != *b) {
            return (unsigned char) *a < (unsigned char) *b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return compare_numbers((unsigned char) *a, (unsigned char) *b);
}

/* Orders the nodes that have no rank yet: the free ranks are given in this order. */
static int compare_identity(const void *pa, const void *pb) {
    const struct assignment_node *a = pa, *b = pb;
    /* -1 (no node rank is requested) becomes the largest unsigned number, so these nodes come
     * last */
    int order = compare_numbers((uint64_t) a->node_rank, (uint64_t) b->node_rank);
    if (order == 0) order = compare_natural(a->host, b->host);
    if (order == 0) order = compare_natural(a->addr, b->addr);
    if (order == 0) order = compare_numbers(a->pid, b->pid);
    if (order == 0) order = compare_numbers(a->instance, b->instance);
    return order;
}

static int compare_group_rank(const void *pa, const void *pb) {
    const struct assignment_node *a = pa, *b = pb;
    return compare_numbers(a->group_rank, b->group_rank);
}

static int compare_role(const void *pa, const void *pb) {
    const struct assignment_node *const *a = pa, *const *b = pb;
    int order = strcmp((*a)->role, (*b)->role);
    return order != 0 ? order : compare_numbers((*a)->group_rank, (*b)->group_rank);
}

/* The group ranks of the round, while they are being assigned. */
struct slots {
    unsigned char *taken; /* by group rank: 1 if a node has this group rank, else 0 */
    uint32_t count, lowest_free;
};

/* If the rank exists and is free, gives it to the node and returns true. Otherwise returns
 * false. */
static bool take(struct slots *s, struct assignment_node *node, int64_t rank) {
    if (rank < 0 || rank >= s->count || s->taken[rank]) return false;
    s->taken[rank] = 1;
    node->group_rank = (uint32_t) rank;
    return true;
}

static void take_lowest(struct slots *s, struct assignment_node *node) {
    while (s->taken[s->lowest_free]) s->lowest_free++;
    (void) take(s, node, s->lowest_free);
}

/* ---- ranks of hosts whose nodes are gone ---- */

/* A rank that no node has, and the host whose node had it last. */
struct departed_rank {
    const char *host;
    uint32_t rank;
    /* in the first entry of each host: how many of the host's entries take_departed() has tried */
    uint32_t tried;
};

/* The departed ranks, sorted by host and rank. */
struct departed_list {
    struct departed_rank *ranks;
    uint32_t count;
};

static int compare_departed(const void *pa, const void *pb) {
    const struct departed_rank *a = pa, *b = pb;
    int order = strcmp(a->host, b->host);
    return order != 0 ? order : compare_numbers(a->rank, b->rank);
}

/* Lists the ranks in `departed` that exist in a round of `nodes` nodes. Returns 0 or -ENOMEM. */
static int list_departed(struct departed_list *list, char *const *departed, uint32_t count,
                         uint32_t nodes) {
    if (count > nodes) count = nodes;
    *list = (struct departed_list){.ranks = calloc(count + 1, sizeof(*list->ranks))};
    if (list->ranks == NULL) return -ENOMEM;
    for (uint32_t r = 0; r < count; r++) {
        if (departed[r] == NULL) continue;
        list->ranks[list->count++] = (struct departed_rank){.host = departed[r], .rank = r};
    }
    qsort(list->ranks, list->count, sizeof(*list->ranks), compare_departed);
    return 0;
}

/* Returns the index of the first entry of the host, found by binary search. If the host has no
 * entry, returns the index at which its entry would be; that may be list->count. */
static uint32_t first_of_host(const struct departed_list *list, const char *host) {
    uint32_t low = 0, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(list->ranks[middle].host, host) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Looks for a free rank whose last node was on the same host as `node`. If there is one, gives it
 * to `node` and returns true. Otherwise returns false. */
static bool take_departed(struct slots *s, struct assignment_node *node,
                          struct departed_list *list) {
    uint32_t first = first_of_host(list, node->host), i;
    if (first == list->count) return false;
    for (i = first + list->ranks[first].tried; i < list->count; i++) {
        if (strcmp(list->ranks[i].host, node->host) != 0) return false;
        list->ranks[first].tried++;
        if (take(s, node, list->ranks[i].rank)) return true;
    }
    return false;
}

/* ---- giving ranks, in three passes ---- */

/* Gives the nodes of the last round the ranks that they had in it. */
static void give_kept_ranks(struct slots *s, struct assignment_node *nodes,
                            struct assignment_summary *sum) {
    for (uint32_t i = 0; i < s->count; i++) {
        nodes[i].group_rank = UNRANKED;
        if (take(s, &nodes[i], nodes[i].kept_rank)) sum->kept++;
    }
}

/* Gives each node that was not in the last round the rank that the node had in an earlier round, if
 * that rank is free; or else a free rank that another node of the same host had. */
static void give_old_ranks(struct slots *s, struct assignment_node *nodes,
                           struct departed_list *departed, struct assignment_summary *sum) {
    for (uint32_t i = 0; i < s->count; i++) {
        struct assignment_node *node = &nodes[i];
        if (node->group_rank != UNRANKED || node->kept_rank >= 0) continue;
        if (take(s, node, node->old_rank) || take_departed(s, node, departed)) {
            sum->returned++;
        }
    }
}

/* Gives the free ranks to all nodes that have no rank yet: new nodes, and nodes whose old rank is
 * taken or does not exist in this round. */
static void give_free_ranks(struct slots *s, struct assignment_node *nodes,
                            struct assignment_summary *sum) {
    for (uint32_t i = 0; i < s->count; i++) {
        struct assignment_node *node = &nodes[i];
        if (node->group_rank != UNRANKED) continue;
        if (node->kept_rank >= 0) sum->moved++;
        else sum->fresh++;
        if (!take(s, node, node->node_rank)) take_lowest(s, node);
    }
}

/* Assigns role ranks: counts the workers of each role from 0. by_role is sorted by role and, within
 * a role, by group rank. */
static void give_role_ranks(struct assignment_node **by_role, uint32_t n) {
    for (uint32_t start = 0, end; start < n; start = end) {
        uint32_t sum = 0;
        for (end = start; end < n && strcmp(by_role[start]->role, by_role[end]->role) == 0; end++) {
            by_role[end]->first_role_rank = sum;
            sum += by_role[end]->local_world_size;
        }
        for (uint32_t i = start; i < end; i++) by_role[i]->role_world_size = sum;
    }
}

int assignment_make(struct assignment_node *nodes, uint32_t count, char *const *departed,
                    uint32_t departed_count, bool fixed, struct assignment_summary *out) {
    CR_AUTO_FREE unsigned char *taken = calloc(count, 1);
    CR_AUTO_FREE struct assignment_node **by_role = calloc(count, sizeof(struct assignment_node *));
    struct departed_list gone;
    if (taken == NULL || by_role == NULL) return -ENOMEM;
    if (list_departed(&gone, departed, departed_count, count) < 0) return -ENOMEM;

    *out = (struct assignment_summary){0};
    if (fixed) {
        for (uint32_t i = 0; i < count; i++) nodes[i].group_rank = (uint32_t) nodes[i].node_rank;
        out->kept = count;
    } else {
        qsort(nodes, count, sizeof(*nodes), compare_identity);
        struct slots slots = {.taken = taken, .count = count};
        give_kept_ranks(&slots, nodes, out);
        give_old_ranks(&slots, nodes, &gone, out);
        give_free_ranks(&slots, nodes, out);
    }
    free(gone.ranks);
    qsort(nodes, count, sizeof(*nodes), compare_group_rank);
    for (uint32_t i = 0; i < count; i++) {
        nodes[i].first_rank = out->world_size;
        out->world_size += nodes[i].local_world_size;
        by_role[i] = &nodes[i];
    }
    qsort(by_role, count, sizeof(struct assignment_node *), compare_role);
    give_role_ranks(by_role, count);
    return 0;
}
