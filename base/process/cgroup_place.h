/* Finds the folder of the cgroup of this process. Containers show cgroups in many arrangements:
 * version 2 alone, version 1 with a hierarchy for each controller, or both (hybrid). A container
 * has a cgroup namespace of its own or the host's; with the host's, the path in /proc/self/cgroup
 * is not the path below the mount. /proc/self/mountinfo says which part of a hierarchy is mounted
 * where. */
#ifndef CR_CGROUP_PLACE_H
#define CR_CGROUP_PLACE_H

#include "base/buffer.h"

#include <limits.h>
#include <stdbool.h>

/* A hierarchy of cgroups, named by a controller of version 1 such as "memory"; CR_CGROUP_V2 is the
 * hierarchy of version 2. */
#define CR_CGROUP_V2 ""

/* Finds the folder in the texts of /proc/self/cgroup and /proc/self/mountinfo, and stores its path
 * in `out`. If the cgroup lies outside of what is mounted, and is_guess is not NULL, stores the
 * folder of the mount and sets *is_guess to true; with an exact result *is_guess is false. Returns
 * 0; -ENOENT if the process has no cgroup in this hierarchy or the hierarchy is not mounted; or
 * -ENAMETOOLONG. Changes neither text. */
int cr_cgroup_find(const char *cgroups, const char *mounts, const char *controller,
                   char out[PATH_MAX], bool *is_guess);

/* Reads a file of the form of /proc/self/mountinfo, and stores its lines about mounts of cgroups in
 * *out, with a NUL at the end that is not counted in out->len. Returns 0 or a negative errno; free
 * *out in both cases. */
int cr_cgroup_read_mounts(const char *path, struct cr_buffer *out);

/* Returns the lines of /proc/self/mountinfo about mounts of cgroups, or "" if the file cannot be
 * read. Only the first call reads the file, because the kernel takes about 1 us for each mount; so
 * hierarchies of cgroups that are mounted after that call are not found. Any thread may call it. */
const char *cr_cgroup_mounts(void);

/* Does what cr_cgroup_find() does, with the text of /proc/self/cgroup and with cr_cgroup_mounts().
 * Reads /proc/self/cgroup in each call, because a process can be moved to another cgroup. Can also
 * return -ENOMEM and the errors of open(2) and read(2). */
int cr_cgroup_of_self(const char *controller, char out[PATH_MAX], bool *is_guess);

#endif
