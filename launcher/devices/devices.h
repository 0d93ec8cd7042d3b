/* The devices of this machine: its CPUs, GPUs and other accelerators, and which CPUs are near which
 * GPU. Code outside launcher/devices/ includes only this header. */
#ifndef LAUNCHER_DEVICES_H
#define LAUNCHER_DEVICES_H

#include "launcher/devices/accelerators.h"
#include "launcher/devices/gpus.h"
#include "launcher/devices/numa.h"

#endif
