/* The plan for re-forming a communicator: whether the ranks of a new round make their communicator
 * out of that of the last round, and how. This file and reform_plan.c do no I/O. */
#ifndef BACKENDS_REFORM_PLAN_H
#define BACKENDS_REFORM_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What one rank has and can do. */
struct reform_entry {
    bool can_shrink; /* true if the rank's NCCL has ncclCommRevoke() and ncclCommShrink(), and the
                      * rank may use them */
    bool can_grow;   /* true if the rank's NCCL has ncclCommGrow() */
    uint64_t tag;    /* tag of the communicator that the rank has kept; 0 if it has kept none */
    int rank, size;  /* the rank's number in the kept communicator, and how many ranks that has */
};

struct reform_plan {
    bool is_fresh;    /* true if all ranks make a new communicator, and do not use the kept one */
    uint64_t new_tag; /* tag of the communicator that the ranks make now */
    uint64_t old_tag; /* tag of the kept communicator; this and the fields below are valid only if
                       * is_fresh is false */
    int old_size;     /* how many ranks the kept communicator has */
    int survivors;    /* how many ranks of the kept communicator are in the new round; there they
                       * are ranks 0 … survivors - 1 */
    int *old_ranks;   /* [survivors] old_ranks[r] is rank r's number in the kept communicator */
};

#define REFORM_ENTRY_MAX 96 /* bytes of an entry as text, NUL included */

void reform_entry_write(const struct reform_entry *entry, char out[REFORM_ENTRY_MAX]);
bool reform_entry_read(const char *text, struct reform_entry *out);

/* Decides how the ranks of the new round make their communicator, and stores the plan in *out.
 * entries[size] has one entry for each rank of the new round. NCCL numbers the ranks that remain in
 * their old order, and new ranks after them. So if the new round has another order, or if a rank
 * lacks a function that is needed, the plan is "fresh". Returns false if memory is short. */
bool reform_decide(const struct reform_entry *entries, int size, uint64_t new_tag,
                   struct reform_plan *out);

/* Returns the plan as text, which the caller frees; NULL if memory is short. */
char *reform_plan_write(const struct reform_plan *plan);

/* Reads a plan for a round of `size` ranks. Returns false if the text is no plan, or if memory is
 * short. */
bool reform_plan_read(const char *text, int size, struct reform_plan *out);

/* Writes to lost[] the ranks of the kept communicator that are not in the new round, and returns
 * how many they are. lost[] must have room for plan->old_size numbers. */
int reform_lost(const struct reform_plan *plan, int *lost);

void reform_plan_free(struct reform_plan *plan);

#endif
