/* Where this machine's CPUs and PCI devices are, as the kernel tells in sysfs. */
#ifndef LAUNCHER_NUMA_TOPOLOGY_H
#define LAUNCHER_NUMA_TOPOLOGY_H

#include "base/cpu_mask.h"
#include "base/error.h"

#include <stdint.h>

/* What to read of each CPU besides its node: some files each, thousands on a large machine. */
enum { NUMA_READ_SOCKET = 1, NUMA_READ_CORE = 2, NUMA_READ_CACHE = 4 };

/* A CPU that we may use. */
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
    int32_t only_node; /* the one node with CPUs, or -1: there are several */
};

/* Reads <sys>/devices/system ("/sys" on a real machine), for the CPUs in `allowed`; `what` is of
 * NUMA_READ_ bits. Returns 0; or -ENOENT, -EINVAL, -ENOMEM… with a text that names the file. */
int numa_topology_read(const char *sys, const struct cr_cpu_mask *allowed, unsigned what,
                       struct numa_topology *out, struct cr_error *err);
void numa_topology_done(struct numa_topology *t);

/* The node of a PCI device ("0000:3b:00.0"); -1 if the kernel does not know, or has no such device. On
 * a machine with one node that is the device's, whatever the firmware says. */
int32_t numa_node_of_device(const char *sys, const struct numa_topology *t, const char *bus_id);

#endif
