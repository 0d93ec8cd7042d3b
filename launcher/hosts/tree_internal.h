/* Decides which process starts which hosts; the processes form a tree. Pure.
 *
 * A process that must start a range of hosts divides it into at most fan_out ranges of nearly the
 * same size, and starts the first host of each range. The deputy on that host must start the other
 * hosts of its range. So the starter itself starts all hosts if there are at most fan_out. */
#ifndef LAUNCHER_HOSTS_TREE_H
#define LAUNCHER_HOSTS_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* A range of hosts: from number `first` to number `first` + `count` - 1 of the job's list. */
struct hosts_range {
    uint32_t first, count;
};

/* Returns the number of ranges into which the range is divided. */
uint32_t hosts_range_parts(struct hosts_range range, uint32_t fan_out);

/* Returns part number i, 0 <= i < hosts_range_parts(). */
struct hosts_range hosts_range_part(struct hosts_range range, uint32_t fan_out, uint32_t i);

static inline bool hosts_range_has(struct hosts_range range, uint32_t host) {
    return host >= range.first && host - range.first < range.count;
}

#endif
