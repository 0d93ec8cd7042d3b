/* Counts AMD and Intel GPUs and Ascend NPUs by what the kernel shows in /sys and /dev, without the
 * libraries of their vendors (launcher/devices.h counts NVIDIA's GPUs). The result is what torch
 * would count, as far as the kernel shows it: cards of which a container has no device file are
 * left out, and the vendor's variable that makes only some devices visible is applied. */
#ifndef LAUNCHER_ACCELERATORS_H
#define LAUNCHER_ACCELERATORS_H

#include "base/command_line.h"

#include <stdint.h>

enum accelerator {
    /* the GPUs of which the kernel's driver amdkfd knows. ROCR_VISIBLE_DEVICES selects some of
     * them, and of these HIP_VISIBLE_DEVICES, or else CUDA_VISIBLE_DEVICES */
    ACCELERATOR_AMD,
    /* the GPUs with render nodes of Intel. Integrated ones count only if there is no other; each
     * tile counts, unless ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE. ZE_AFFINITY_MASK selects some */
    ACCELERATOR_INTEL,
    /* /dev/davinci0, 1 …; ASCEND_RT_VISIBLE_DEVICES selects some */
    ACCELERATOR_ASCEND,
};

/* Returns the number of devices. `sys` and `dev` are "/sys" and "/dev", or other folders in a test.
 * `lookup` returns the environment variables. */
uint32_t accelerator_count(enum accelerator kind, const char *sys, const char *dev,
                           cr_getenv_fn lookup, void *arg);

#endif
