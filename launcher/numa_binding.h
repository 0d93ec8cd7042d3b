/* Which CPUs a worker shall run on, given where its GPU is. Pure; the modes are torchrun's:
 *   node          those of the GPU's NUMA node
 *   socket        those of the socket that the node is on
 *   exclusive     the node's physical cores, shared out evenly among the GPUs of that node in their order,
 *                 the first GPUs taking one more where they do not divide
 *   core-complex  those that share a last level of cache, the largest such groups first, another one for
 *                 each GPU of the node while there are enough
 * Only CPUs that we may use count. */
#ifndef LAUNCHER_NUMA_BINDING_H
#define LAUNCHER_NUMA_BINDING_H

#include "launcher/numa_topology.h"

enum numa_mode { NUMA_NODE, NUMA_SOCKET, NUMA_EXCLUSIVE, NUMA_CORE_COMPLEX };

/* Their names, in that order. */
#define NUMA_MODES "node socket exclusive core-complex"

/* What it has to be told of each CPU: NUMA_READ_ bits. */
unsigned numa_mode_reads(enum numa_mode mode);

/* The CPUs for GPU number `gpu`; nodes[i] is that of GPU i, -1 = unknown, which nodes[gpu] is not.
 * Returns 0; -ENODEV: none of the node's CPUs is ours; -ENOSPC: fewer cores than GPUs; with a text. */
int numa_binding(enum numa_mode mode, const struct numa_topology *t, const int32_t *nodes,
                 uint32_t gpu_count, uint32_t gpu, struct cr_cpu_mask *out, struct cr_error *err);

#endif
