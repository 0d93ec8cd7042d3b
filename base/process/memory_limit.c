/* Finds the memory limits of this process's cgroups. /proc/self/cgroup names the cgroup in each
 * hierarchy, and /proc/self/mountinfo says where the hierarchy is mounted and which cgroup its root
 * is: in a container with the host's cgroup namespace, the root is the container's own cgroup. */
#include "base/process/memory_limit.h"

#include "base/files/read_file.h"
#include "base/process/cgroup_place.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One hierarchy of cgroups that may have memory limits. */
struct hierarchy {
    bool is_v2;
    const char *file; /* name of the file with the limit */
};

static const struct hierarchy v1 = {.is_v2 = false, .file = "memory.limit_in_bytes"};
static const struct hierarchy v2 = {.is_v2 = true, .file = "memory.max"};

/* Returns whether a list that is separated by commas has the word "memory". */
static bool names_memory(const char *list) {
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strcspn(at, ",\n ") == 6 && strncmp(at, "memory", 6) == 0) return true;
    }
    return false;
}

/* Writes the path of this process's cgroup in the hierarchy to `out`. A line of /proc/self/cgroup
 * is "<id>:<controllers>:<path>"; in version 2 there are no controllers. */
static bool find_cgroup(const char *root, const struct hierarchy *h, char out[PATH_MAX]) {
    char name[PATH_MAX], line[PATH_MAX];
    bool found = false;
    (void) snprintf(name, sizeof(name), "%.2000s/proc/self/cgroup", root);
    FILE *f = fopen(name, "re");
    while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers != NULL) path = strchr(++controllers, ':');
        if (path == NULL) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = h->is_v2 ? controllers[0] == '\0' : names_memory(controllers);
        if (found) (void) snprintf(out, PATH_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    if (f != NULL) (void) fclose(f);
    return found;
}

/* Parses a line of /proc/self/mountinfo (proc(5)). Returns whether the line describes a mount of
 * the hierarchy. If so, sets *root and *folder, which point into `line`. */
static bool parse_mount(char *line, const struct hierarchy *h, char **root, char **folder) {
    char *rest = strstr(line, " - "), *save;
    if (rest == NULL) return false;
    *rest = '\0';
    char *type = strtok_r(rest + 3, " \n", &save);
    if (type == NULL || strcmp(type, h->is_v2 ? "cgroup2" : "cgroup") != 0) return false;
    (void) strtok_r(NULL, " \n", &save); /* the source */
    char *options = strtok_r(NULL, " \n", &save);
    if (!h->is_v2 && (options == NULL || !names_memory(options))) return false;
    for (int i = 0; i < 4; i++) *root = strtok_r(i == 0 ? line : NULL, " ", &save);
    *folder = strtok_r(NULL, " ", &save);
    return *root != NULL && *folder != NULL;
}

/* Returns the path of `cgroup` below `root`, the root of a mount. Returns "" if `root` is the
 * cgroup itself. Also returns "" if the cgroup lies outside of the mount, because in that case only
 * the limits of the root can be read. */
static const char *below(const char *cgroup, const char *root) {
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    bool is_below = strncmp(cgroup, root, len) == 0 && (cgroup[len] == '/' || cgroup[len] == '\0');
    return is_below && strstr(cgroup, "/..") == NULL ? cgroup + len : "";
}

static uint64_t read_limit(const char *folder, const char *file) {
    char path[PATH_MAX + 32], text[32];
    (void) snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (cr_read_file(path, text, sizeof(text)) <= 0) return UINT64_MAX;
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    return end == text ? UINT64_MAX : n; /* "max" is no number */
}

/* Returns the smallest limit of the folder `path` and of the folders above it, up to the folder of
 * the mount, whose path is the first `mount_len` bytes of `path`. */
static uint64_t read_limits(char path[PATH_MAX], size_t mount_len, const char *file) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t limit = read_limit(path, file);
        if (limit < least) least = limit;
        char *slash = strrchr(path, '/');
        if (strlen(path) <= mount_len || slash == NULL) return least;
        *slash = '\0';
    }
}

/* Returns the smallest limit of this process in the hierarchy. `mounts` are the lines of mountinfo
 * about cgroups. */
static uint64_t limit_in(const char *top, const struct hierarchy *h, const char *mounts) {
    char cgroup[PATH_MAX], line[PATH_MAX], path[PATH_MAX];
    uint64_t least = UINT64_MAX;
    if (mounts[0] == '\0' || !find_cgroup(top, h, cgroup)) return least;
    for (size_t len; *mounts != '\0'; mounts += len + (mounts[len] == '\n')) {
        char *root, *folder;
        len = strcspn(mounts, "\n");
        if (len >= sizeof(line)) continue;
        memcpy(line, mounts, len);
        line[len] = '\0';
        if (!parse_mount(line, h, &root, &folder)) continue;
        int n = snprintf(path, sizeof(path), "%s%s%s", top, folder, below(cgroup, root));
        if (n < 0 || n >= PATH_MAX) continue;
        uint64_t limit = read_limits(path, strlen(top) + strlen(folder), h->file);
        if (limit < least) least = limit;
    }
    return least;
}

static uint64_t smaller_limit(const char *top, const char *mounts) {
    uint64_t first = limit_in(top, &v1, mounts), second = limit_in(top, &v2, mounts);
    return first < second ? first : second;
}

uint64_t cr_cgroup_memory_limit(const char *root) {
    char name[PATH_MAX];
    struct cr_buffer mounts = {0};
    uint64_t limit = UINT64_MAX;
    if (root[0] == '\0') return smaller_limit(root, cr_cgroup_mounts());
    (void) snprintf(name, sizeof(name), "%.2000s/proc/self/mountinfo", root);
    if (cr_cgroup_read_mounts(name, &mounts) == 0) limit = smaller_limit(root, mounts.data);
    cr_buffer_done(&mounts);
    return limit;
}

uint64_t cr_memory_limit(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages <= 0 || page <= 0 ? UINT64_MAX : (uint64_t) pages * (uint64_t) page;
    uint64_t cgroup = cr_cgroup_memory_limit("");
    uint64_t least = machine < cgroup ? machine : cgroup;
    return least == UINT64_MAX ? 0 : least;
}
