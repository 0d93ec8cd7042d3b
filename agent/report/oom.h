/* Returns how often the kernel's out-of-memory killer has killed a process in crun's memory cgroup
 * (and in the cgroups below it, where the kernel counts them). It also returns 0 if the counter
 * cannot be read, so use only the difference of two calls. */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdint.h>

uint64_t oom_kill_count(void);

#endif
