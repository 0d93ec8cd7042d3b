/* Reads how often the kernel's out-of-memory killer has killed: from memory.events in cgroup v2,
 * from memory.oom_control in v1. */
#include "agent/report/oom.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PLACE_MAX 4096

/* Writes to `out` the path of the cgroup of this process in the hierarchy of `controller`: the path
 * in the line of /proc/self/cgroup that names exactly this controller. The controller "" means
 * cgroup v2. The root is written as "". Returns false if there is no such line. */
static bool find_cgroup(const char *controller, char out[PLACE_MAX]) {
    char line[PLACE_MAX];
    bool found = false;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers != NULL) path = strchr(++controllers, ':');
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (strcmp(controllers, controller) != 0) continue;
        (void) snprintf(out, PLACE_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
        found = true;
    }
    (void) fclose(f);
    return found;
}

static bool read_counter(const char *mount, const char *cgroup, const char *file, uint64_t *out) {
    char path[PLACE_MAX + 128], line[128];
    bool found = false;
    (void) snprintf(path, sizeof(path), "%s%s/%s", mount, cgroup, file);
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        found = sscanf(line, "oom_kill %" SCNu64, out) == 1;
    }
    (void) fclose(f);
    return found;
}

/* Reads the counter of cgroup v2. On machines that use v1 and v2 together, v2 is mounted at
 * /sys/fs/cgroup/unified. */
static bool read_v2(const char *cgroup, uint64_t *out) {
    return read_counter("/sys/fs/cgroup", cgroup, "memory.events", out) ||
           read_counter("/sys/fs/cgroup/unified", cgroup, "memory.events", out);
}

uint64_t oom_kill_count(void) {
    char cgroup[PLACE_MAX];
    uint64_t count = 0;
    if (find_cgroup("", cgroup) && read_v2(cgroup, &count)) return count;
    if (find_cgroup("memory", cgroup)) {
        (void) read_counter("/sys/fs/cgroup/memory", cgroup, "memory.oom_control", &count);
    }
    return count;
}
