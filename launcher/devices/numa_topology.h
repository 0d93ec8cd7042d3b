/* Reads the topology of the machine from sysfs: the NUMA node, socket, core and last-level cache of
 * each CPU, and the NUMA node of a PCI device. */
#ifndef LAUNCHER_NUMA_TOPOLOGY_H
#define LAUNCHER_NUMA_TOPOLOGY_H

#include "base/error.h"
#include "base/process/cpu_mask.h"

#include <stdint.h>

/* Bits that select which facts about each CPU are read besides its NUMA node. Each fact costs at
 * least one file per CPU, which is thousands of files on a large machine. So callers request only
 * the facts that they need. */
enum { NUMA_READ_SOCKET = 1, NUMA_READ_CORE = 2, NUMA_READ_CACHE = 4 };

/* A CPU that this process may use. */
struct numa_cpu {
    uint32_t cpu;
    uint32_t node;
    uint32_t socket;
    uint32_t core;  /* the lowest CPU of the same physical core */
    uint32_t cache; /* the lowest CPU that shares the last-level cache with this one; CR_CPUS_MAX if
                     * the kernel reports no caches */
};

struct numa_topology {
    struct numa_cpu *cpus; /* sorted by CPU number */
    uint32_t cpu_count;
    int32_t only_node; /* the only NUMA node with CPUs; -1 if several NUMA nodes have CPUs */
};

/* Reads the topology of the CPUs in `allowed` from <sys>/devices/system; <sys> is "/sys" except in
 * tests. `what` is a combination of the bits NUMA_READ_…. Returns 0; or a negative errno such as
 * -ENOENT or -EINVAL, and sets err to a text that names the file. */
int numa_topology_read(const char *sys, const struct cr_cpu_mask *allowed, unsigned what,
                       struct numa_topology *out, struct cr_error *err);
void numa_topology_done(struct numa_topology *t);

/* Returns the NUMA node of the PCI device `bus_id` (such as "0000:3b:00.0"), or -1 if the node is
 * unknown. If only one NUMA node has CPUs, it is the result even for a device whose node the
 * firmware does not report. */
int32_t numa_node_of_device(const char *sys, const struct numa_topology *t, const char *bus_id);

#endif
