/* Describes processes that live on although they got SIGKILL. Such a process is inside a system
 * call that cannot be interrupted, most often in a file system or driver whose server or device
 * does not answer; or its cgroup is frozen. */
#include "agent/process/nursery_internal.h"
#include "agent/system/system.h"
#include "base/text/text.h"

#include <fcntl.h>
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

/* Searches the process for a thread in an uninterruptible sleep. If there is one, stores its state
 * and its wait channel in *how. /proc/<pid>/task has a folder for each thread, named by the
 * thread's number. */
static void describe_thread(pid_t pid, struct nursery_stuck *how) {
    char path[PROC_PATH_MAX];
    struct proc_dir tasks;
    const char *name;
    proc_path(path, pid, "task");
    if (proc_dir_open(&tasks, AT_FDCWD, path) < 0) return;
    while ((name = proc_dir_next(&tasks)) != NULL) {
        pid_t thread = proc_parse_pid(name);
        struct proc_stat stat;
        if (thread <= 0 || proc_stat(thread, &stat) < 0 || stat.state != 'D') continue;
        how->state = stat.state;
        read_line(thread, "wchan", how->wait_channel, sizeof(how->wait_channel));
        break;
    }
    proc_dir_close(&tasks);
}

static bool report(struct nursery *n, const struct worker_process *w, pid_t pid,
                   int64_t since_ms) {
    struct proc_stat stat;
    struct nursery_stuck how = {.pid = pid, .since_ms = since_ms};
    if (proc_stat(pid, &stat) < 0 || !stat.alive) return false;
    if (n->events.on_stuck == NULL) return true;
    how.state = stat.state;
    read_line(pid, "comm", how.name, sizeof(how.name));
    read_line(pid, "wchan", how.wait_channel, sizeof(how.wait_channel));
    if (stat.state != 'D') describe_thread(pid, &how);
    /* the kernel shows "0" as the function if this process lacks the permission to see it */
    if (strcmp(how.wait_channel, "0") == 0) how.wait_channel[0] = '\0';
    n->events.on_stuck(n->arg, w, &how);
    return true;
}

unsigned stuck_report(struct nursery *n, int64_t since_ms) {
    const struct worker_process *w;
    const struct orphan *o;
    unsigned count = 0;
    TAILQ_FOREACH(w, &n->living, entry) {
        if (!w->kept) count += report(n, w, w->how.pid, since_ms);
    }
    LIST_FOREACH(o, &n->orphans, entry) count += report(n, NULL, o->pid, since_ms);
    return count;
}
