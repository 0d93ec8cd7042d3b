/* Reads the topology of the machine from sysfs: implements launcher/devices/numa_topology.h. */
#include "launcher/devices/numa_topology.h"

#include "base/files/read_file.h"
#include "base/text/parse.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_PATH "%s/devices/system/cpu/cpu%u/cache/index%u/"
#define PATH_SIZE 512
#define NODES_MAX 1024 /* the most NUMA nodes that Linux supports (CONFIG_NODES_SHIFT) */
#define TEXT_SIZE 16384

/* Reads the first line of a file into `out`. The format and its arguments give the path, which is
 * also written to `path`, so that an error can name the file. Returns 0 or a negative errno. */
__attribute__((format(printf, 3, 4))) static int
read_file(char path[PATH_SIZE], char out[TEXT_SIZE], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(path, PATH_SIZE, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= PATH_SIZE) return -ENAMETOOLONG;
    ssize_t len = cr_read_file(path, out, TEXT_SIZE);
    if (len < 0) return (int) len;
    out[strcspn(out, "\n")] = '\0';
    return 0;
}

static int fail_file(struct cr_error *err, int code, const char *path) {
    return cr_fail(err, code, "cannot read '%s': %s", path,
                   code == -EINVAL ? "it holds something else than was expected" : strerror(-code));
}

/* ---- reading the place of one CPU ---- */

static int first_of_list(const char *text, uint32_t *out) {
    struct cr_cpu_mask list;
    if (cr_cpu_parse(text, &list) < 0) return -EINVAL;
    *out = cr_cpu_next(&list, 0);
    return *out < CR_CPUS_MAX ? 0 : -EINVAL;
}

static int read_socket(const char *sys, struct numa_cpu *c, struct cr_error *err) {
    char path[PATH_SIZE], text[TEXT_SIZE];
    int64_t socket = 0;
    int rc = read_file(path, text, "%s/devices/system/cpu/cpu%u/topology/physical_package_id", sys,
                       c->cpu);
    if (rc == 0) rc = cr_parse_i64(text, -1, INT32_MAX, &socket);
    if (rc < 0) return fail_file(err, rc, path);
    c->socket = socket < 0 ? 0 : (uint32_t) socket; /* the kernel writes -1 if the socket is
                                                     * unknown; such a CPU counts as one of socket
                                                     * 0 */
    return 0;
}

static int read_core(const char *sys, struct numa_cpu *c, struct cr_error *err) {
    char path[PATH_SIZE], text[TEXT_SIZE];
    int rc = read_file(path, text, "%s/devices/system/cpu/cpu%u/topology/thread_siblings_list", sys,
                       c->cpu);
    if (rc == 0) rc = first_of_list(text, &c->core);
    return rc < 0 ? fail_file(err, rc, path) : 0;
}

/* Sets c->cache to the lowest CPU that shares the last-level cache, which is the highest level of
 * cache that holds data. If the kernel reports no caches, as in some virtual machines, sets it to
 * CR_CPUS_MAX for all CPUs, so that all CPUs of a NUMA node count as sharing one cache. */
static int read_cache(const char *sys, struct numa_cpu *c, struct cr_error *err) {
    char path[PATH_SIZE], text[TEXT_SIZE];
    int64_t level, highest = -1;
    for (unsigned i = 0;; i++) {
        int rc = read_file(path, text, CACHE_PATH "type", sys, c->cpu, i);
        if (rc == -ENOENT) break;
        if (rc < 0) return fail_file(err, rc, path);
        if (strcmp(text, "Unified") != 0 && strcmp(text, "Data") != 0) continue;
        rc = read_file(path, text, CACHE_PATH "level", sys, c->cpu, i);
        if (rc == 0) rc = cr_parse_i64(text, 0, 64, &level);
        if (rc < 0) return fail_file(err, rc, path);
        if (level <= highest) continue;
        rc = read_file(path, text, CACHE_PATH "shared_cpu_list", sys, c->cpu, i);
        if (rc == 0) rc = first_of_list(text, &c->cache);
        if (rc < 0) return fail_file(err, rc, path);
        highest = level;
    }
    if (highest < 0) c->cache = CR_CPUS_MAX;
    return 0;
}

/* ---- reading all CPUs and NUMA nodes ---- */

struct source {
    const char *sys;                   /* "/sys"; in tests another folder */
    const struct cr_cpu_mask *allowed; /* the CPUs that this process may use */
    unsigned what;                     /* a combination of bits NUMA_READ_… */
    uint32_t nodes;                    /* number of NUMA nodes read so far, without those that have
                                        * no CPUs */
};

static int compare_cpus(const void *a, const void *b) {
    const struct numa_cpu *x = a, *y = b;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

static int add_cpu(const struct source *from, struct numa_topology *t, uint32_t cpu, uint32_t node,
                   struct cr_error *err) {
    struct numa_cpu *c = &t->cpus[t->cpu_count];
    *c = (struct numa_cpu){.cpu = cpu, .node = node};
    int rc = 0;
    if (from->what & NUMA_READ_SOCKET) rc = read_socket(from->sys, c, err);
    if (rc == 0 && from->what & NUMA_READ_CORE) rc = read_core(from->sys, c, err);
    if (rc == 0 && from->what & NUMA_READ_CACHE) rc = read_cache(from->sys, c, err);
    if (rc == 0) t->cpu_count++;
    return rc;
}

/* Adds the usable CPUs of a NUMA node. A NUMA node without CPUs is skipped: it has only the memory
 * of a GPU or of a memory expander. */
static int add_node(struct source *from, struct numa_topology *t, uint32_t node,
                    struct cr_error *err) {
    char path[PATH_SIZE], text[TEXT_SIZE];
    struct cr_cpu_mask cpus;
    int rc = read_file(path, text, "%s/devices/system/node/node%u/cpulist", from->sys, node);
    if (rc == 0) rc = cr_cpu_parse(text, &cpus);
    if (rc < 0) return fail_file(err, rc, path);
    if (cr_cpu_count(&cpus) == 0) return 0;
    t->only_node = from->nodes++ == 0 ? (int32_t) node : -1;
    cr_cpu_intersect(&cpus, from->allowed);
    for (uint32_t cpu = cr_cpu_next(&cpus, 0); rc == 0 && cpu < CR_CPUS_MAX;
         cpu = cr_cpu_next(&cpus, cpu + 1)) {
        /* t->cpus has room for CR_CPUS_MAX entries, which is enough because each CPU belongs to one
         * NUMA node. If another CPU follows, sysfs lists some CPU in two nodes, so its contents are
         * wrong. */
        if (t->cpu_count == CR_CPUS_MAX) return fail_file(err, -EINVAL, path);
        rc = add_cpu(from, t, cpu, node, err);
    }
    return rc;
}

int numa_topology_read(const char *sys, const struct cr_cpu_mask *allowed, unsigned what,
                       struct numa_topology *out, struct cr_error *err) {
    char folder[PATH_SIZE];
    struct source from = {.sys = sys, .allowed = allowed, .what = what};
    int rc = 0;
    *out = (struct numa_topology){.only_node = -1};
    (void) snprintf(folder, sizeof(folder), "%s/devices/system/node", sys);
    DIR *d = opendir(folder);
    if (d == NULL) return fail_file(err, -errno, folder);
    out->cpus = calloc(CR_CPUS_MAX, sizeof(*out->cpus));
    if (out->cpus == NULL) rc = cr_fail(err, -ENOMEM, "cannot read the topology: out of memory");
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
        int64_t node;
        if (strncmp(e->d_name, "node", 4) != 0) continue;
        if (cr_parse_i64(e->d_name + 4, 0, NODES_MAX - 1, &node) < 0) continue;
        rc = add_node(&from, out, (uint32_t) node, err);
    }
    (void) closedir(d);
    if (rc < 0) {
        numa_topology_done(out);
        return rc;
    }
    qsort(out->cpus, out->cpu_count, sizeof(*out->cpus), compare_cpus);
    return 0;
}

void numa_topology_done(struct numa_topology *t) {
    free(t->cpus);
    *t = (struct numa_topology){.only_node = -1};
}

int32_t numa_node_of_device(const char *sys, const struct numa_topology *t, const char *bus_id) {
    char path[PATH_SIZE], text[TEXT_SIZE];
    int64_t node;
    if (t->only_node >= 0) return t->only_node;
    int rc = read_file(path, text, "%s/bus/pci/devices/%s/numa_node", sys, bus_id);
    if (rc == 0) rc = cr_parse_i64(text, -1, NODES_MAX - 1, &node);
    return rc == 0 ? (int32_t) node : -1;
}
