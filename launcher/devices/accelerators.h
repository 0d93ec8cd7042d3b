/* Counts AMD and Intel GPUs and Ascend NPUs by what the kernel shows in /sys and /dev, without the
 * vendors' libraries (gpus.h counts NVIDIA's GPUs). The result is the number that torch
 * would count, as far as the kernel shows it: a device whose device file is missing in a container
 * does not count, and if the vendor's variable makes only some devices visible, only these
 * count. */
#ifndef LAUNCHER_ACCELERATORS_H
#define LAUNCHER_ACCELERATORS_H

#include "base/program/command_line.h"

#include <stdint.h>

enum accelerator {
    /* GPUs of the kernel driver amdkfd. ROCR_VISIBLE_DEVICES selects some of them. Of these,
     * HIP_VISIBLE_DEVICES selects some; if it is not set, CUDA_VISIBLE_DEVICES does. */
    ACCELERATOR_AMD,
    /* Intel's GPUs with a render node. Integrated GPUs count only if there is no other GPU. Each
     * tile counts as a device, unless ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE. ZE_AFFINITY_MASK selects
     * some of the devices. */
    ACCELERATOR_INTEL,
    /* /dev/davinci0, 1 …; ASCEND_RT_VISIBLE_DEVICES selects some */
    ACCELERATOR_ASCEND,
};

/* Returns the number of devices of this kind that a worker can use. `sys` and `dev` are "/sys" and
 * "/dev" except in tests. `lookup` returns an environment variable; `arg` is its first
 * parameter. */
uint32_t accelerator_count(enum accelerator kind, const char *sys, const char *dev,
                           cr_getenv_fn lookup, void *arg);

#endif
