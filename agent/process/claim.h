/* Gives access to the limit of open files that nursery_claim_process() saved before it raised the
 * limit. */
#ifndef AGENT_CLAIM_H
#define AGENT_CLAIM_H

#include <sys/resource.h>

/* Returns the limit of open files that this process had before nursery_claim_process() raised it;
 * workers are started with that limit. Returns NULL if the limit was not raised. */
const struct rlimit *claim_workers_files(void);

#endif
