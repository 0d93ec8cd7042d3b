/* Which CPUs and GPUs are ours. CUDA is never called: it would cost seconds and memory, and a
 * process that forked after it started has broken children. */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

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

#define DEVICE_BUS_ID_MAX 24

struct device_gpu {
    char bus_id[DEVICE_BUS_ID_MAX]; /* as in /sys/bus/pci/devices: "0000:3b:00.0"; "" = unknown */
};

/* The GPUs that CUDA would show to a worker with this CUDA_VISIBLE_DEVICES (NULL = not set), in that
 * order (cards of one model, as they are in a node: CUDA puts a faster model first, unless
 * CUDA_DEVICE_ORDER=PCI_BUS_ID).
 *
 * The machine's GPUs are counted by NVML; without it by the device files, then by the driver's
 * entries in /proc. The list then selects: integers up to the first one that names no GPU, or UUIDs
 * (GPU-…, MIG-…) likewise; an entry given twice makes CUDA show nothing.
 *
 * Returns 0 with *count (0 = none) and *list, which is the caller's to free; -ENOMEM; or -ENODEV with a
 * text if there is a driver but it is broken: then "none" would hide a fault. */
int device_gpus(const struct device_places *places, const char *visible_devices,
                struct device_gpu **list, uint32_t *count, struct cr_error *err);

/* Only how many. */
int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err);

#endif
