/* The tree in which hosts are started: which process starts which hosts. Pure.
 *
 * A process that is responsible for a range of hosts divides it into at most fan_out ranges of
 * nearly the same size, and starts the first host of each range. The deputy of that first host is
 * responsible for the other hosts of the range. So if a job has at most fan_out hosts, the starter
 * starts all of them itself. */
#ifndef LAUNCHER_HOSTS_TREE_H
#define LAUNCHER_HOSTS_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* The hosts from `first` to `first` + `count` - 1, as numbers in the job's list of hosts. */
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
