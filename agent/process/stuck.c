/* Describes processes that live on although they got SIGKILL. Such a process is inside a system
 * call that cannot be interrupted, most often in a file system or driver whose server or device
 * does not answer; or its cgroup is frozen. */
#include "agent/process/nursery_internal.h"
#include "agent/process/proc.h"
#include "base/clock.h"
#include "base/text.h"

#include <string.h>

/* Writes to `out` the text of the file /proc/<pid>/<name>, escaped and without a newline at its
 * end; "" if the file cannot be read. */
static void read_line(pid_t pid, const char *name, char *out, size_t cap) {
    char path[PROC_PATH_MAX], text[64];
    proc_path(path, pid, name);
    ssize_t n = proc_read(path, text, sizeof(text));
    if (n > 0 && text[n - 1] == '\n') n--;
    (void) cr_text_copy(out, cap, text, n > 0 ? (size_t) n : 0);
}

static void report(struct nursery *n, const struct worker_process *w, pid_t pid) {
    struct proc_stat stat;
    struct nursery_stuck how = {.pid = pid, .since_ms = cr_monotonic_ms() - n->killed_ms};
    if (proc_stat(pid, &stat) < 0 || !stat.alive) return;
    how.state = stat.state;
    read_line(pid, "comm", how.name, sizeof(how.name));
    read_line(pid, "wchan", how.wait_channel, sizeof(how.wait_channel));
    /* the kernel shows "0" to a process that may not see the function */
    if (strcmp(how.wait_channel, "0") == 0) how.wait_channel[0] = '\0';
    n->events.on_stuck(n->arg, w, &how);
}

void stuck_report(struct nursery *n) {
    const struct worker_process *w;
    const struct orphan *o;
    if (n->events.on_stuck == NULL) return;
    TAILQ_FOREACH(w, &n->living, entry) {
        if (!w->kept) report(n, w, w->how.pid);
    }
    LIST_FOREACH(o, &n->orphans, entry) report(n, NULL, o->pid);
}
