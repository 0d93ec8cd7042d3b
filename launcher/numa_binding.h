/* Which CPUs a worker is bound to, given where its GPU is. Pure. The modes are those of torchrun:
 *
 *   node          the CPUs of the GPU's NUMA node
 *   socket        the CPUs of the socket that this node is on
 *   exclusive     the physical cores of the node are divided evenly among its GPUs, in order of the
 *                 GPUs; if they do not divide, the first GPUs get one more
 *   core-complex  the CPUs that share one last-level cache: the largest cache for the first GPU of
 *                 the node, the next one for the second, and again from the first when all are used
 *
 * Only CPUs that this process may use count. */
#ifndef LAUNCHER_NUMA_BINDING_H
#define LAUNCHER_NUMA_BINDING_H

#include "launcher/numa_topology.h"

enum numa_mode { NUMA_NODE, NUMA_SOCKET, NUMA_EXCLUSIVE, NUMA_CORE_COMPLEX };

/* The names of the modes, in the order of the enum. */
#define NUMA_MODES "node socket exclusive core-complex"

/* What a mode needs to know of each CPU: bits of NUMA_READ_…. */
unsigned numa_mode_reads(enum numa_mode mode);

/* Sets *out to the CPUs for GPU number `gpu`. nodes[i] is the node of GPU i, or -1 if it is
 * unknown; nodes[gpu] is known. Returns 0; or with a text -ENODEV if no CPU of the node may be
 * used, -ENOSPC if the node has fewer cores than GPUs, or -ENOMEM. */
int numa_binding(enum numa_mode mode, const struct numa_topology *t, const int32_t *nodes,
                 uint32_t gpu_count, uint32_t gpu, struct cr_cpu_mask *out, struct cr_error *err);

#endif
