/* The modes of --numa-binding, one function each. */
#include "launcher/devices/numa_binding.h"

#include <errno.h>
#include <stdlib.h>

/* A group of CPUs of one NUMA node that share a physical core, or that share a cache. */
struct cpu_group {
    uint32_t lowest; /* the lowest CPU of the core or cache, which identifies the group */
    uint32_t size;   /* number of the group's CPUs that this process may use */
};

static uint32_t core_of(const struct numa_cpu *c) { return c->core; }

static uint32_t cache_of(const struct numa_cpu *c) { return c->cache; }

/* Writes the groups of a NUMA node to groups[] and returns their number. `group_of` is core_of() or
 * cache_of(): it decides whether CPUs are grouped by core or by cache. The groups are in the order
 * of their first usable CPU. */
static uint32_t find_groups(const struct numa_topology *t, uint32_t node,
                            uint32_t (*group_of)(const struct numa_cpu *c),
                            struct cpu_group groups[CR_CPUS_MAX]) {
    uint32_t n = 0, at;
    for (uint32_t i = 0; i < t->cpu_count; i++) {
        if (t->cpus[i].node != node) continue;
        for (at = 0; at < n && groups[at].lowest != group_of(&t->cpus[i]); at++) continue;
        if (at == n) groups[n++] = (struct cpu_group){.lowest = group_of(&t->cpus[i])};
        groups[at].size++;
    }
    return n;
}

static void add_group(const struct numa_topology *t, uint32_t node,
                      uint32_t (*group_of)(const struct numa_cpu *c), uint32_t lowest,
                      struct cr_cpu_mask *out) {
    for (uint32_t i = 0; i < t->cpu_count; i++) {
        const struct numa_cpu *c = &t->cpus[i];
        if (c->node == node && group_of(c) == lowest) cr_cpu_add(out, c->cpu);
    }
}

static int by_lowest(const void *a, const void *b) {
    const struct cpu_group *x = a, *y = b;
    return x->lowest < y->lowest ? -1 : x->lowest > y->lowest;
}

static int by_size(const void *a, const void *b) {
    const struct cpu_group *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return by_lowest(a, b);
}

/* ---- one function for each mode ---- */

static void bind_node(const struct numa_topology *t, uint32_t node, struct cr_cpu_mask *out) {
    for (uint32_t i = 0; i < t->cpu_count; i++) {
        if (t->cpus[i].node == node) cr_cpu_add(out, t->cpus[i].cpu);
    }
}

static void bind_socket(const struct numa_topology *t, uint32_t socket, struct cr_cpu_mask *out) {
    for (uint32_t i = 0; i < t->cpu_count; i++) {
        if (t->cpus[i].socket == socket) cr_cpu_add(out, t->cpus[i].cpu);
    }
}

static int bind_exclusive(const struct numa_topology *t, uint32_t node, uint32_t sharers,
                          uint32_t position, struct cpu_group *cores, struct cr_cpu_mask *out,
                          struct cr_error *err) {
    uint32_t n = find_groups(t, node, core_of, cores), each = n / sharers, more = n % sharers;
    if (each == 0) {
        return cr_fail(err, -ENOSPC,
                       "NUMA node %u has %u physical core(s) that this process may use, for %u "
                       "GPUs; --numa-binding=node lets them share",
                       node, n, sharers);
    }
    qsort(cores, n, sizeof(*cores), by_lowest);
    uint32_t first = position * each + (position < more ? position : more);
    uint32_t last = first + each + (position < more ? 1 : 0);
    for (uint32_t i = first; i < last; i++) add_group(t, node, core_of, cores[i].lowest, out);
    return 0;
}

static void bind_core_complex(const struct numa_topology *t, uint32_t node, uint32_t position,
                              struct cpu_group *caches, struct cr_cpu_mask *out) {
    uint32_t n = find_groups(t, node, cache_of, caches);
    qsort(caches, n, sizeof(*caches), by_size);
    add_group(t, node, cache_of, caches[position % n].lowest, out);
}

/* ---- numa_binding() ---- */

unsigned numa_mode_reads(enum numa_mode mode) {
    switch (mode) {
    case NUMA_NODE: return 0;
    case NUMA_SOCKET: return NUMA_READ_SOCKET;
    case NUMA_EXCLUSIVE: return NUMA_READ_CORE;
    case NUMA_CORE_COMPLEX: return NUMA_READ_CACHE;
    }
    return 0;
}

static const struct numa_cpu *first_of_node(const struct numa_topology *t, uint32_t node) {
    for (uint32_t i = 0; i < t->cpu_count; i++) {
        if (t->cpus[i].node == node) return &t->cpus[i];
    }
    return NULL;
}

int numa_binding(enum numa_mode mode, const struct numa_topology *t, const int32_t *nodes,
                 uint32_t gpu_count, uint32_t gpu, struct cr_cpu_mask *out, struct cr_error *err) {
    uint32_t node = (uint32_t) nodes[gpu], sharers = 0, position = 0;
    const struct numa_cpu *some = first_of_node(t, node);
    *out = (struct cr_cpu_mask){0};
    if (some == NULL) {
        return cr_fail(err, -ENODEV,
                       "this process may use no CPU of NUMA node %u; widen its cpuset, or leave "
                       "--numa-binding out",
                       node);
    }
    for (uint32_t i = 0; i < gpu_count; i++) {
        if (nodes[i] != nodes[gpu]) continue;
        if (i < gpu) position++;
        sharers++;
    }
    struct cpu_group *groups = calloc(t->cpu_count, sizeof(*groups));
    if (groups == NULL) return cr_fail(err, -ENOMEM, "cannot share out CPUs: out of memory");
    int rc = 0;
    switch (mode) {
    case NUMA_NODE: bind_node(t, node, out); break;
    case NUMA_SOCKET: bind_socket(t, some->socket, out); break;
    case NUMA_EXCLUSIVE:
        rc = bind_exclusive(t, node, sharers, position, groups, out, err);
        break;
    case NUMA_CORE_COMPLEX: bind_core_complex(t, node, position, groups, out); break;
    }
    free(groups);
    return rc;
}
