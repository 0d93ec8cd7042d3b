/* The limit of open files that nursery_claim_process() saved before it raised the limit. */
#ifndef AGENT_CLAIM_H
#define AGENT_CLAIM_H

#include <sys/resource.h>

/* Returns the limit of open files that this process had before it was raised, which the workers get
 * back; returns NULL if it was never raised. */
const struct rlimit *claim_workers_files(void);

#endif
