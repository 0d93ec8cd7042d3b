/* On which NUMA node, socket, core and cache each CPU is, and on which node a PCI device is, as
 * sysfs has it. */
#ifndef LAUNCHER_NUMA_TOPOLOGY_H
#define LAUNCHER_NUMA_TOPOLOGY_H

#include "base/cpu_mask.h"
#include "base/error.h"

#include <stdint.h>

/* What to read of each CPU besides its node. Each costs some files per CPU, which are thousands
 * on a large machine. */
enum { NUMA_READ_SOCKET = 1, NUMA_READ_CORE = 2, NUMA_READ_CACHE = 4 };

/* A CPU that this process may use. */
struct numa_cpu {
    uint32_t cpu;
    uint32_t node;
    uint32_t socket;
    uint32_t core;  /* the lowest CPU of the same physical core */
    uint32_t cache; /* the lowest CPU that shares the last level of cache */
};

struct numa_topology {
    struct numa_cpu *cpus; /* by number */
    uint32_t cpu_count;
    int32_t only_node; /* the node with CPUs if there is only one, else -1 */
};

/* Reads <sys>/devices/system for the CPUs in `allowed`; <sys> is "/sys" except in tests. `what` has
 * bits of NUMA_READ_…. Returns 0; or -ENOENT, -EINVAL, -ENOMEM… with a text that names the file. */
int numa_topology_read(const char *sys, const struct cr_cpu_mask *allowed, unsigned what,
                       struct numa_topology *out, struct cr_error *err);
void numa_topology_done(struct numa_topology *t);

/* The node of a PCI device ("0000:3b:00.0"), or -1 if the kernel does not know it or has no such
 * device. On a machine with one node it is that one, even if the firmware gives the device none. */
int32_t numa_node_of_device(const char *sys, const struct numa_topology *t, const char *bus_id);

#endif
