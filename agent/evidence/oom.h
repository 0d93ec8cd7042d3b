/* Counts the processes in crun's memory cgroup, and in the cgroups below it, that the kernel's
 * out-of-memory killer has killed. Kills before crun was started count, too, so only the difference
 * between two calls is of use. A counter that cannot be read counts as 0. */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdint.h>

uint64_t oom_kill_count(void);

#endif
