/* How often the kernel's out-of-memory killer struck in our memory cgroup (v2: memory.events, v1:
 * memory.oom_control), descendants included where the kernel counts them. 0 where it cannot be read:
 * only differences mean anything. */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdint.h>

uint64_t oom_kill_count(void);

#endif
