/* Counts accelerators in /sys and /dev: see accelerators.h. */
#include "launcher/devices/accelerators.h"

#include "base/files/read_file.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_MAX  1024u
#define ENTRY_MAX    96
#define INTEL        "0x8086"
#define INTEL_ON_DIE "0000:00:02.0" /* PCI address that every integrated GPU of Intel has */

/* ---- reading folders and files ---- */

/* Returns whether `name` consists of `prefix` and a number. */
static bool is_numbered(const char *name, const char *prefix) {
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0 || name[len] == '\0') return false;
    return name[len + strspn(name + len, "0123456789")] == '\0';
}

/* Calls `count` for each entry of the folder whose name consists of `prefix` and a number. Returns
 * the sum of the results, at most DEVICES_MAX. */
static uint32_t sum(const char *folder, const char *prefix,
                    uint32_t (*count)(const char *path, const char *name, const void *arg),
                    const void *arg) {
    char path[PATH_MAX];
    uint32_t total = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL && total < DEVICES_MAX;) {
        if (!is_numbered(e->d_name, prefix)) continue;
        (void) snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        total += count(path, e->d_name, arg);
    }
    if (d != NULL) (void) closedir(d);
    return total < DEVICES_MAX ? total : DEVICES_MAX;
}

static uint32_t one(const char *path, const char *name, const void *arg) {
    (void) path, (void) name, (void) arg;
    return 1;
}

/* Returns whether the folder `dev` has the device file of the render node `name`. In a container,
 * the files of some devices may be missing. */
static bool has_render_node(const char *dev, const char *name) {
    char path[PATH_MAX];
    (void) snprintf(path, sizeof(path), "%s/dri/%s", dev, name);
    return access(path, F_OK) == 0;
}

/* ---- the lists of visible devices ---- */

/* Returns how many of `count` devices a comma-separated list selects; all if `list` is NULL. An
 * entry of the list is a UUID, or a number that a part such as ".0" may follow. The first entry
 * that names no device ends the list. If a number without such a part occurs several times, it
 * counts once. */
static uint32_t count_visible(const char *list, uint32_t count) {
    bool seen[DEVICES_MAX] = {false};
    uint32_t found = 0;
    if (list == NULL) return count;
    for (const char *at = list; found < count; at++) {
        char entry[ENTRY_MAX];
        int64_t index;
        at += strspn(at, " \t");
        size_t len = strcspn(at, ","), whole = strcspn(at, ",. \t");
        (void) snprintf(entry, sizeof(entry), "%.*s", (int) (whole < 90 ? whole : 90), at);
        bool is_number = cr_parse_i64(entry, 0, (int64_t) count - 1, &index) == 0;
        if (!is_number && strncmp(entry, "GPU-", 4) != 0) break;
        bool is_new = !is_number || at[whole] == '.' || !seen[index];
        if (is_number) seen[index] = true;
        found += is_new ? 1 : 0;
        at += len;
        if (*at == '\0') break;
    }
    return found;
}

/* Returns how many of `count` devices the value of the variable selects; all if the variable is not
 * set. */
static uint32_t select_by(const char *variable, uint32_t count, cr_getenv_fn lookup, void *arg) {
    return count_visible(lookup(arg, variable), count);
}

/* ---- AMD ---- */

/* Finds the first line "NAME NUMBER" of `text` whose NAME is `name`, and returns its NUMBER; 0 if
 * there is no such line. */
static uint64_t property(const char *text, const char *name) {
    size_t len = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n' ? 1 : 0;
        if (strncmp(line, name, len) != 0 || line[len] != ' ') continue;
        return strtoull(line + len, NULL, 10);
    }
    return 0;
}

/* Returns 1 if the folder `path` describes a GPU that this process can use, else 0. The driver has
 * such a folder for each of the machine's CPUs and GPUs. In the folder's file "properties",
 * simd_count is 0 for a CPU. In a container, the properties of a GPU that does not belong to the
 * container cannot be read. */
static uint32_t is_amd_gpu(const char *path, const char *name, const void *dev) {
    char file[PATH_MAX + 16], text[4096], node[64];
    (void) name;
    (void) snprintf(file, sizeof(file), "%s/properties", path);
    if (cr_read_file(file, text, sizeof(text)) <= 0 || property(text, "simd_count") == 0) return 0;
    (void) snprintf(node, sizeof(node), "renderD%llu",
                    (unsigned long long) property(text, "drm_render_minor"));
    return has_render_node(dev, node) ? 1 : 0;
}

static uint32_t count_amd(const char *sys, const char *dev, cr_getenv_fn lookup, void *arg) {
    char folder[PATH_MAX];
    (void) snprintf(folder, sizeof(folder), "%s/class/kfd/kfd/topology/nodes", sys);
    uint32_t count = sum(folder, "", is_amd_gpu, dev);
    count = select_by("ROCR_VISIBLE_DEVICES", count, lookup, arg);
    const char *hip = lookup(arg, "HIP_VISIBLE_DEVICES");
    return hip != NULL ? count_visible(hip, count)
                       : select_by("CUDA_VISIBLE_DEVICES", count, lookup, arg);
}

/* ---- Intel ---- */

struct intel {
    const char *dev;
    bool on_die;      /* true: count only integrated GPUs; false: count only the other GPUs */
    bool count_tiles; /* true: each tile counts as a device; false: each GPU counts once */
};

static uint32_t count_intel_devices(const char *path, const char *name, const void *arg) {
    const struct intel *wanted = arg;
    char file[PATH_MAX + 16], vendor[16], *address;
    (void) snprintf(file, sizeof(file), "%s/device/vendor", path);
    if (cr_read_file(file, vendor, sizeof(vendor)) <= 0) return 0;
    if (!has_render_node(wanted->dev, name)) return 0;
    if (strncmp(vendor, INTEL, strlen(INTEL)) != 0) return 0;
    (void) snprintf(file, sizeof(file), "%s/device", path);
    address = realpath(file, NULL);
    bool on_die = address != NULL && strcmp(strrchr(address, '/') + 1, INTEL_ON_DIE) == 0;
    free(address);
    if (on_die != wanted->on_die) return 0;
    uint32_t tiles = wanted->count_tiles ? sum(file, "tile", one, NULL) : 1;
    return tiles > 0 ? tiles : 1;
}

static uint32_t count_intel(const char *sys, const char *dev, cr_getenv_fn lookup, void *arg) {
    char folder[PATH_MAX];
    const char *hierarchy = lookup(arg, "ZE_FLAT_DEVICE_HIERARCHY");
    struct intel wanted = {.dev = dev};
    wanted.count_tiles = hierarchy == NULL || strcmp(hierarchy, "COMPOSITE") != 0;
    (void) snprintf(folder, sizeof(folder), "%s/class/drm", sys);
    uint32_t count = sum(folder, "renderD", count_intel_devices, &wanted);
    wanted.on_die = true;
    if (count == 0) count = sum(folder, "renderD", count_intel_devices, &wanted);
    return select_by("ZE_AFFINITY_MASK", count, lookup, arg);
}

/* ---- accelerator_count() ---- */

uint32_t accelerator_count(enum accelerator kind, const char *sys, const char *dev,
                           cr_getenv_fn lookup, void *arg) {
    if (kind == ACCELERATOR_AMD) return count_amd(sys, dev, lookup, arg);
    if (kind == ACCELERATOR_INTEL) return count_intel(sys, dev, lookup, arg);
    return select_by("ASCEND_RT_VISIBLE_DEVICES", sum(dev, "davinci", one, NULL), lookup, arg);
}
