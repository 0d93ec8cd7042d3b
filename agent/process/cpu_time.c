/* Reads how much processor time a worker has used, with its descendants. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH_MAX 4 /* most generations of descendants whose time is added */

/* Returns the processor time, in clock ticks, that a process and the children that it has reaped
 * have used; 0 if there is no such process. */
static int64_t own_ticks(pid_t pid) {
    char path[PROC_PATH_MAX], text[1024];
    unsigned long long user, system, child_user, child_system;
    proc_path(path, pid, "stat");
    ssize_t n = proc_read(path, text, sizeof(text) - 1);
    if (n <= 0) return 0;
    text[n] = '\0';
    const char *end = strrchr(text, ')'); /* the name may contain blanks and ')' */
    if (end == NULL) return 0;
    int found = sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
                       &user, &system, &child_user, &child_system);
    return found == 4 ? (int64_t) (user + system + child_user + child_system) : 0;
}

static int64_t ticks(pid_t pid, int depth) {
    pid_t *children;
    size_t count;
    int64_t sum = own_ticks(pid);
    if (depth == 0 || proc_children(pid, &children, &count) < 0) return sum;
    for (size_t i = 0; i < count; i++) sum += ticks(children[i], depth - 1);
    free(children);
    return sum;
}

int64_t worker_cpu_ms(const struct worker_process *w) {
    return ticks(worker_pid(w), DEPTH_MAX) * 1000 / sysconf(_SC_CLK_TCK);
}
