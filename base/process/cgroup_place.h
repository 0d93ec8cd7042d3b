/* Finds the folder of the cgroup of this process. Containers show cgroups in many arrangements:
 * version 2 alone, version 1 with a hierarchy for each controller, or both (hybrid); with a cgroup
 * namespace of their own or with the host's, where /proc/self/cgroup has a path that is not the
 * path below the mount. /proc/self/mountinfo tells which part of a hierarchy is mounted where. */
#ifndef CR_CGROUP_PLACE_H
#define CR_CGROUP_PLACE_H

#include <limits.h>
#include <stdbool.h>

/* A hierarchy of cgroups, named by a controller of version 1 such as "memory"; CR_CGROUP_V2 is the
 * hierarchy of version 2. */
#define CR_CGROUP_V2 ""

/* Finds the folder in the texts of /proc/self/cgroup and /proc/self/mountinfo, and stores its path
 * in `out`. If is_guess is not NULL and the cgroup lies outside of what is mounted, stores the
 * folder of the mount instead; *is_guess then says whether it has done so. Returns 0; -ENOENT if
 * the process has no cgroup in this hierarchy or the hierarchy is not mounted; or -ENAMETOOLONG.
 * Changes neither text. */
int cr_cgroup_find(const char *cgroups, const char *mounts, const char *controller,
                   char out[PATH_MAX], bool *is_guess);

/* Does what cr_cgroup_find() does, with the texts of this process. Can also return -ENOMEM and the
 * errors of open(2) and read(2). */
int cr_cgroup_of_self(const char *controller, char out[PATH_MAX], bool *is_guess);

#endif
