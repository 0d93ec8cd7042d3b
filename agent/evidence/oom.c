/* Reads how often the kernel's out-of-memory killer has killed: from memory.events in cgroup v2,
 * from memory.oom_control in v1.
 *
 * In v2 the kernel counts a kill in the cgroup of the victim and in all cgroups above it; in v1
 * only in the cgroup of the victim. So in v1 this file adds the counters of the cgroups below
 * crun's own, because a wrapper may have put a worker into a cgroup of its own. */
#include "agent/evidence/oom.h"

#include "base/cleanup.h"
#include "base/process/cgroup_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CGROUPS_MAX 256 /* limit of the number of cgroups below crun's own that are read */
#define DEPTH_MAX   8   /* number of levels below crun's own cgroup that are read */

/* Adds the counter in the file `file` within the folder to *count. Returns false if there is no
 * such file, or no such counter in it. */
static bool add_counter(int folder, const char *file, uint64_t *count) {
    int fd = openat(folder, file, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    char line[128];
    uint64_t kills;
    bool found = false;
    if (f == NULL) {
        cr_close_fd(&fd);
        return false;
    }
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        found = sscanf(line, "oom_kill %" SCNu64, &kills) == 1;
    }
    (void) fclose(f);
    if (found) *count += kills;
    return found;
}

/* Adds to *count the counters of the cgroups below `folder`, down to `depth` levels below it. Reads
 * at most *left cgroups, and subtracts from *left how many it has read. */
static void add_below(int folder, const char *file, int depth, int *left, uint64_t *count) {
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *entry;
    if (dir == NULL) {
        cr_close_fd(&copy);
        return;
    }
    while (*left > 0 && (entry = readdir(dir)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
        CR_AUTO_FD int fd = openat(folder, entry->d_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        (*left)--;
        (void) add_counter(fd, file, count);
        if (depth > 1) add_below(fd, file, depth - 1, left, count);
    }
    (void) closedir(dir);
}

/* Opens the folder of this process's cgroup in the hierarchy of `controller`. Returns the
 * descriptor, or -1. */
static int open_own(const char *controller) {
    char place[PATH_MAX];
    bool is_guess;
    if (cr_cgroup_of_self(controller, place, &is_guess) < 0) return -1;
    return open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool read_v2(uint64_t *count) {
    CR_AUTO_FD int folder = open_own(CR_CGROUP_V2);
    return folder >= 0 && add_counter(folder, "memory.events", count);
}

/* Adds the counters of cgroup v1. The root of the hierarchy is the cgroup that has the file
 * release_agent. If this process is in the root, the cgroups below are those of all programs of the
 * machine, so their counters are left out. */
static void read_v1(uint64_t *count) {
    int left = CGROUPS_MAX;
    CR_AUTO_FD int folder = open_own("memory");
    if (folder < 0) return;
    (void) add_counter(folder, "memory.oom_control", count);
    if (faccessat(folder, "release_agent", F_OK, 0) == 0) return;
    add_below(folder, "memory.oom_control", DEPTH_MAX, &left, count);
}

uint64_t oom_kill_count(void) {
    uint64_t count = 0;
    if (!read_v2(&count)) read_v1(&count);
    return count;
}
