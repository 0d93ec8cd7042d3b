/* --numa-binding: each worker on the CPUs near its GPU, from before its first instruction, so that its
 * threads and its memory are there, too (the kernel takes memory from the node of the CPU that first
 * touches it). */
#ifndef LAUNCHER_NUMA_H
#define LAUNCHER_NUMA_H

#include "launcher/devices.h"
#include "launcher/numa_binding.h"

/* masks[i]: the CPUs of local rank i, whose GPU is the i-th that CUDA shows with `visible_devices`
 * (devices.h); empty if the kernel does not know where it is, which is logged. `sys` is "/sys".
 * Returns 0; -ENODEV: more workers than GPUs, or a node without CPUs for us; or what devices.h,
 * numa_topology.h and numa_binding.h return; with a text. */
int numa_bind_workers(enum numa_mode mode, const struct device_places *places, const char *sys,
                      const char *visible_devices, uint32_t workers, struct cr_cpu_mask *masks,
                      struct cr_error *err);

#endif
