/* --numa-binding: binds each worker to CPUs that are near its GPU.
 *
 * A worker is bound before its first instruction, so all its threads run on these CPUs. Its memory
 * is on the NUMA node of these CPUs, because the kernel allocates memory on the node of the CPU
 * that first touches it. */
#ifndef LAUNCHER_NUMA_H
#define LAUNCHER_NUMA_H

#include "launcher/devices/gpus.h"
#include "launcher/devices/numa_binding.h"

/* Sets masks[i] to the CPUs that local rank i shall run on, for each i < workers. The GPU of local
 * rank i is entry i of the list that device_gpus() returns for `visible_devices`. If the kernel
 * does not know the NUMA node of that GPU, masks[i] is empty (the worker is not bound) and a
 * warning is logged. `sys` is "/sys" except in tests.
 *
 * Returns 0; or a negative errno, and sets err: -ENODEV if there are more workers than GPUs or if
 * this process may use no CPU of a GPU's node, or an error of the functions in gpus.h,
 * numa_topology.h and numa_binding.h. */
int numa_bind_workers(enum numa_mode mode, const struct device_places *places, const char *sys,
                      const char *visible_devices, uint32_t workers, struct cr_cpu_mask *masks,
                      struct cr_error *err);

#endif
