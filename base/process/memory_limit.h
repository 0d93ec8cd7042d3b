/* Finds out how much memory this process may use: the memory of the machine, or less in a
 * container. */
#ifndef CR_MEMORY_LIMIT_H
#define CR_MEMORY_LIMIT_H

#include <stdint.h>

/* Returns the smallest of the machine's memory and the memory limits of the cgroup of this process
 * and of the cgroups above it (version 1 and 2), in bytes; 0 if none of them is known. */
uint64_t cr_memory_limit(void);

/* Returns the smallest memory limit of the cgroups; UINT64_MAX if there is none. `root` is ""; in
 * tests it is the folder that contains /proc/self/cgroup, /proc/self/mountinfo and the mounts. */
uint64_t cr_cgroup_memory_limit(const char *root);

#endif
