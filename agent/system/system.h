/* What the kernel offers to start processes and to lose none of them: clone3, /proc, cgroups, and
 * the warden, a process that ends the workers if crun is killed. Code outside agent/system/
 * includes only this header. */
#ifndef AGENT_SYSTEM_H
#define AGENT_SYSTEM_H

#include "agent/system/cgroup.h"
#include "agent/system/known_children.h"
#include "agent/system/proc.h"
#include "agent/system/spawn.h"
#include "agent/system/warden.h"

#endif
