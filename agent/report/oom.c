#include "agent/report/oom.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PLACE_MAX 4096

/* The cgroup path of this process in the hierarchy whose /proc/self/cgroup line holds `controller`
 * ("" = the unified one, "0::"). */
static int find_cgroup(const char *controller, char out[PLACE_MAX]) {
    char line[PLACE_MAX];
    int found = 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return 0;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers != NULL) path = strchr(++controllers, ':');
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (strcmp(controllers, controller) != 0) continue;
        (void) snprintf(out, PLACE_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
        found = 1;
    }
    (void) fclose(f);
    return found;
}

static int read_counter(const char *mount, const char *cgroup, const char *file, uint64_t *out) {
    char path[PLACE_MAX + 128], line[128];
    int found = 0;
    (void) snprintf(path, sizeof(path), "%s%s/%s", mount, cgroup, file);
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        found = sscanf(line, "oom_kill %" SCNu64, out) == 1;
    }
    (void) fclose(f);
    return found;
}

uint64_t oom_kill_count(void) {
    char cgroup[PLACE_MAX];
    uint64_t count = 0;
    if (find_cgroup("", cgroup) && (read_counter("/sys/fs/cgroup", cgroup, "memory.events", &count) ||
                                    read_counter("/sys/fs/cgroup/unified", cgroup, "memory.events",
                                                 &count))) {
        return count;
    }
    if (find_cgroup("memory", cgroup)) {
        (void) read_counter("/sys/fs/cgroup/memory", cgroup, "memory.oom_control", &count);
    }
    return count;
}
