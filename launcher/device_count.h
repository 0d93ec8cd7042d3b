/* How many CPUs and GPUs are ours. CUDA is never called: it would cost seconds and memory, and a
 * process that forked after it started has broken children. */
#ifndef LAUNCHER_DEVICE_COUNT_H
#define LAUNCHER_DEVICE_COUNT_H

#include "base/error.h"

#include <stdint.h>

/* Where to look; device_places_default for the real machine, others in tests. */
struct device_places {
    const char *nvml;        /* library to load */
    const char *dev;         /* holds nvidia0, nvidia1 … */
    const char *proc_nvidia; /* holds gpus/<bus id>/ */
};
extern const struct device_places device_places_default;

/* CPUs that this process may run on (its affinity, which cpusets limit too), at least 1. */
uint32_t device_cpu_count(void);

/* GPUs that CUDA would show to a worker with this CUDA_VISIBLE_DEVICES (NULL = not set).
 *
 * The machine's GPUs are counted by NVML; without it by the device files, then by the driver's
 * entries in /proc. The list then selects: integers up to the first one that names no GPU, or UUIDs
 * (GPU-…, MIG-…) likewise; an entry given twice makes CUDA show nothing.
 *
 * Returns 0 with *count (0 = none), or -ENODEV with a text if there is a driver but it is broken:
 * then "none" would hide a fault. */
int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err);

#endif
