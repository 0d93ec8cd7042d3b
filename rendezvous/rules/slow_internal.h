/* Finds the ranks that are slow: those that make far fewer steps than the median of all ranks.
 * Pure. */
#ifndef RENDEZVOUS_SLOW_INTERNAL_H
#define RENDEZVOUS_SLOW_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

/* How many steps one rank has made in a window of time. */
struct slow_entry {
    uint32_t rank;
    uint64_t made;
};

/* Sorts `entries` by `made`, the slowest rank first, and ranks with the same number of steps by
 * rank. Stores in *median the number of steps of the rank in the middle. Returns how many of the
 * first entries are slow: they have made less than `percent` percent of the median. Returns 0 if
 * `count` is less than 3, because the median of two ranks says nothing about the usual speed. */
size_t slow_find(struct slow_entry *entries, size_t count, uint32_t percent, uint64_t *median);

#endif
