/* Finds out whether a process descends from this one. */
#include "agent/process/nursery.h"
#include "agent/system/system.h"

#include <unistd.h>

#define DEPTH_MAX 64 /* the most parents that nursery_is_descendant() follows */

bool nursery_is_descendant(pid_t pid) {
    const pid_t own = getpid();
    for (int depth = 0; depth < DEPTH_MAX && pid > 1; depth++) {
        struct proc_stat stat;
        if (proc_stat(pid, &stat) < 0) return false;
        if (stat.parent == own) return true;
        pid = stat.parent;
    }
    return false;
}
