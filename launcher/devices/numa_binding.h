/* Decides to which CPUs a worker is bound, given the NUMA node of its GPU. The code is pure. The
 * modes are those of torchrun:
 *
 *   node          the CPUs of the GPU's NUMA node
 *   socket        the CPUs of the socket that contains this NUMA node
 *   exclusive     an equal share of the NUMA node's physical cores, which are divided among the
 *                 GPUs of the node; if the division leaves a rest, the first GPUs get one core more
 *   core-complex  the CPUs that share one last-level cache: the first GPU of the node gets the
 *                 cache with the most CPUs, the second GPU the next cache, and so on; if there are
 *                 more GPUs than caches, the GPU after the last cache gets the first cache
 *
 * No mode selects a CPU that this process may not use. */
#ifndef LAUNCHER_NUMA_BINDING_H
#define LAUNCHER_NUMA_BINDING_H

#include "launcher/devices/numa_topology.h"

enum numa_mode { NUMA_NODE, NUMA_SOCKET, NUMA_EXCLUSIVE, NUMA_CORE_COMPLEX };

/* The names of the modes, in the order of the enum. */
#define NUMA_MODES "node socket exclusive core-complex"

/* Returns which facts about each CPU the mode needs, as a combination of the bits NUMA_READ_… for
 * numa_topology_read(). */
unsigned numa_mode_reads(enum numa_mode mode);

/* Sets *out to the CPUs for GPU number `gpu`. nodes[i] is the NUMA node of GPU i, or -1 if it is
 * unknown; nodes[gpu] must be known. Returns 0; or a negative errno, and sets err: -ENODEV if this
 * process may use no CPU of the node, -ENOSPC in mode exclusive if the node has fewer cores than
 * GPUs, or -ENOMEM. */
int numa_binding(enum numa_mode mode, const struct numa_topology *t, const int32_t *nodes,
                 uint32_t gpu_count, uint32_t gpu, struct cr_cpu_mask *out, struct cr_error *err);

#endif
