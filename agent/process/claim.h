/* What agent_claim_process() (agent.h) remembers. */
#ifndef AGENT_CLAIM_H
#define AGENT_CLAIM_H

#include <sys/resource.h>

/* The limit of open files that a worker gets back; NULL if ours was never raised. */
const struct rlimit *claim_workers_files(void);

#endif
