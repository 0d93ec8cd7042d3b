/* The failures of one round that this node knows of: its own, and those that other nodes have
 * reported. Each has its own copy of its texts. Pure: no I/O. */
#ifndef AGENT_FAILURES_H
#define AGENT_FAILURES_H

#include "rendezvous/types.h"

#include <stddef.h>

#define FAILURES_MAX 256 /* number of failures that are kept; further ones are only counted */

struct failures {
    size_t count;
    struct rendezvous_failure *list; /* [count], in the order of failure_time_ns() */
    uint64_t left_out;               /* failures that were not kept */
};

/* Adds a copy of the failure to the list. If the list already has a failure of the same process,
 * adds none, but completes the listed failure: if it lacks the difference of the clocks or the
 * kernel's line, these are taken from `failure`. If the list is full, the failure is only counted.
 * Returns 0 or -ENOMEM. */
int failures_add(struct failures *f, const struct rendezvous_failure *failure);
void failures_clear(struct failures *f); /* the struct may be all zeros */

/* Returns when the worker failed, in ns since 1970. If the difference of the clocks is known, this
 * is a time of the coordinator's clock; otherwise of the clock of the worker's host. */
int64_t failure_time_ns(const struct rendezvous_failure *failure);

#endif
