/* --numa-binding: binds each worker to CPUs that are near its GPU.
 *
 * A worker is bound before its first instruction. So its threads run there, and its memory is
 * there, too: the kernel takes a page from the NUMA node of the CPU that first touches it. */
#ifndef LAUNCHER_NUMA_H
#define LAUNCHER_NUMA_H

#include "launcher/devices.h"
#include "launcher/numa_binding.h"

/* Sets masks[i] to the CPUs of local rank i. Its GPU is the i-th one that CUDA shows with
 * `visible_devices` (launcher/devices.h). If the kernel does not know which node that GPU is on,
 * the mask is empty and a warning is logged. `sys` is "/sys" except in tests.
 *
 * Returns 0, or a negative errno with a text: -ENODEV if there are more workers than GPUs, or no
 * CPU of a GPU's node may be used; or an error of devices.h, numa_topology.h or numa_binding.h.
 * */
int numa_bind_workers(enum numa_mode mode, const struct device_places *places, const char *sys,
                      const char *visible_devices, uint32_t workers, struct cr_cpu_mask *masks,
                      struct cr_error *err);

#endif
