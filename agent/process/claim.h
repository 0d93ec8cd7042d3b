/* What nursery_claim_process() remembers of this process. */
#ifndef AGENT_CLAIM_H
#define AGENT_CLAIM_H

#include <sys/resource.h>

/* The limit of open files that this process had before it was raised, which the workers get back;
 * NULL if it was never raised. */
const struct rlimit *claim_workers_files(void);

#endif
