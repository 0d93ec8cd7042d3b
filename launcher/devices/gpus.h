/* Counts the CPUs and lists the GPUs that this process may use.
 *
 * The GPUs are found without calling CUDA. To initialise CUDA would take seconds and memory on each
 * GPU, and a process that has initialised CUDA cannot fork children that use CUDA. */
#ifndef LAUNCHER_GPUS_H
#define LAUNCHER_GPUS_H

#include "base/error.h"

#include <stdint.h>

/* The places where crun looks for GPUs. device_places_default has the places of a real machine;
 * tests use others. */
struct device_places {
    const char *nvml;        /* the file name of the NVML library */
    const char *dev;         /* the folder with the device files nvidia0, nvidia1 … */
    const char *proc_nvidia; /* the folder in which the driver has gpus/<bus id>/ */
};
extern const struct device_places device_places_default;

/* Returns the number of CPUs in this process's affinity mask, at least 1. */
uint32_t device_cpu_count(void);

#define DEVICE_BUS_ID_MAX 24

struct device_gpu {
    char bus_id[DEVICE_BUS_ID_MAX]; /* as in /sys/bus/pci/devices, "0000:3b:00.0"; "" = unknown */
};

/* Lists the GPUs that CUDA would show to a worker, in CUDA's order. `visible_devices` is the value
 * of CUDA_VISIBLE_DEVICES, or NULL if it is not set. If the machine has GPUs of several models, the
 * order may be wrong: CUDA lists the fastest model first, unless CUDA_DEVICE_ORDER=PCI_BUS_ID is
 * set.
 *
 * The GPUs of the machine are counted with NVML; without NVML, by the device files in /dev; without
 * device files, by the driver's entries in /proc. `visible_devices` selects some of these GPUs by
 * the rules of CUDA: its entries are numbers or UUIDs (GPU-…, MIG-…); an entry that names no GPU
 * ends the list; if an entry occurs twice, no GPU is selected.
 *
 * Returns 0, stores the list, which the caller frees, in *list, and stores its length, which may be
 * 0, in *count. Returns -ENOMEM, and sets err, if memory is short. Returns -ENODEV, and sets err,
 * if a driver is installed but does not work, because the number of GPUs is unknown in that
 * case. */
int device_gpus(const struct device_places *places, const char *visible_devices,
                struct device_gpu **list, uint32_t *count, struct cr_error *err);

/* Stores in *count the number of GPUs that device_gpus() would list. The parameters and the results
 * are otherwise those of device_gpus(). */
int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err);

#endif
