/* How often the kernel's out-of-memory killer has killed a process in our memory cgroup (and below
 * it, where the kernel counts that). Only the difference of two calls means anything: 0 is also
 * returned where the counter cannot be read. */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdint.h>

uint64_t oom_kill_count(void);

#endif
