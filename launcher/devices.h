/* The CPUs and GPUs that this process may use.
 *
 * The GPUs are found without calling CUDA: starting CUDA takes seconds and memory on each GPU,
 * and a process that has started it cannot fork children that use it. */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

#include "base/error.h"

#include <stdint.h>

/* Where to look: device_places_default for the real machine, other places in tests. */
struct device_places {
    const char *nvml;        /* the file name of the NVML library */
    const char *dev;         /* the folder of nvidia0, nvidia1 … */
    const char *proc_nvidia; /* the folder of gpus/<bus id>/ */
};
extern const struct device_places device_places_default;

/* How many CPUs this process may run on: those of its affinity, within its cpuset. At least 1. */
uint32_t device_cpu_count(void);

#define DEVICE_BUS_ID_MAX 24

struct device_gpu {
    char bus_id[DEVICE_BUS_ID_MAX]; /* as in /sys/bus/pci/devices: "0000:3b:00.0"; "" = unknown */
};

/* Lists the GPUs that CUDA would show to a worker with this CUDA_VISIBLE_DEVICES (NULL: not set),
 * in CUDA's order. The order is only right if all GPUs are of one model, as they usually are in a
 * node: CUDA puts a faster model first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID.
 *
 * NVML counts the GPUs of the machine; without NVML the device files do, and without those the
 * driver's entries in /proc. Of these, CUDA_VISIBLE_DEVICES selects some as CUDA does: its entries
 * are numbers or UUIDs (GPU-…, MIG-…); the first entry that names no GPU ends the list; an entry
 * that occurs twice makes the list empty.
 *
 * Returns 0 with *count, which may be 0, and *list, which the caller frees; -ENOMEM; or -ENODEV
 * with a text if there is a driver that does not work: "no GPU" would hide the fault. */
int device_gpus(const struct device_places *places, const char *visible_devices,
                struct device_gpu **list, uint32_t *count, struct cr_error *err);

/* The same, but only the number. */
int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err);

#endif
