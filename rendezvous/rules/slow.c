/* Implements slow_internal.h: finds the ranks that are slow. */
#include "rendezvous/rules/slow_internal.h"

#include <stdlib.h>

#define RANKS_MIN 3

static int by_steps(const void *a, const void *b) {
    const struct slow_entry *x = a, *y = b;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

size_t slow_find(struct slow_entry *entries, size_t count, uint32_t percent, uint64_t *median) {
    size_t slow = 0;
    *median = 0;
    if (count == 0) return 0;
    qsort(entries, count, sizeof(*entries), by_steps);
    *median = entries[count / 2].made;
    if (count < RANKS_MIN) return 0;
    /* as floating-point numbers, because a worker may report any number of steps, and the product
     * of two integers could overflow */
    double limit = (double) *median * percent / 100;
    while (slow < count && (double) entries[slow].made < limit) slow++;
    return slow;
}
