/* Makes, uses and removes one cgroup v2 below the cgroup of this process. A cgroup has two
 * properties that no other means of the kernel has together: a process cannot leave it without the
 * right to write cgroup.procs of another cgroup, and one write to its cgroup.kill ends all its
 * processes.
 *
 * This process may make cgroups below its own cgroup if mkdir works in the folder of its own
 * cgroup. The kernel forbids processes in a cgroup that enables controllers for its children. This
 * file enables no controllers, so that rule does not matter here. */
#include "agent/system/cgroup.h"

#include "agent/system/proc.h"
#include "base/cleanup.h"
#include "base/process/cgroup_place.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* the most times that cgroup_release() reads the list of the cgroup's processes */
#define RELEASES_MAX 100
#define MAKES_MAX    3    /* the most times that make() tries to make a cgroup */
#define SWEEP_MS     2000 /* ms for which cgroup_sweep() waits for the processes that it kills */

/* ---- removing cgroups below a cgroup ---- */

/* Searches the folder `fd` of a cgroup for a cgroup directly below: each folder in it is one.
 * Returns true and stores the name of the first one; or returns false if there is none. */
static bool first_below(int fd, char name[NAME_MAX + 1]) {
    struct proc_dir dir;
    bool found = false;
    if (proc_dir_open(&dir, fd, ".") < 0) return false;
    const char *each;
    while (!found && (each = proc_dir_next(&dir)) != NULL) {
        found = dir.is_folder && each[0] != '.';
        if (found) (void) stpcpy(name, each);
    }
    proc_dir_close(&dir);
    return found;
}

static int open_below(int fd, const char *name) {
    return openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Removes all cgroups below the cgroup whose folder is `top`, however deep they are nested: goes
 * down to a cgroup that has none below it, then up by one, removes it, and so on. Stops at the
 * first cgroup that cannot be removed, because a process is in it. */
static void remove_below(int top) {
    char name[NAME_MAX + 1];
    int at = fcntl(top, F_DUPFD_CLOEXEC, 3);
    for (size_t depth = 0; at >= 0;) {
        bool has_more = first_below(at, name);
        if (!has_more && depth == 0) break;
        int next = has_more ? open_below(at, name) : open_below(at, "..");
        (void) close(at);
        at = next;
        depth = has_more ? depth + 1 : depth - 1;
        if (has_more || at < 0) continue;
        if (!first_below(at, name) || unlinkat(at, name, AT_REMOVEDIR) < 0) break;
    }
    cr_close_fd(&at);
}

/* ---- the name of a cgroup, which says whose it is ---- */

/* What identifies the launcher that made a cgroup. The cgroup's name contains it:
 * crun-PID-START-PIDNS-CGROUPNS-TOKEN. */
struct maker {
    uint64_t pid, start; /* start: in clock ticks since boot, as in struct proc_stat */
    uint64_t pid_ns, cgroup_ns; /* inode numbers of the maker's namespaces in /proc/PID/ns */
};

static uint64_t namespace_of_self(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t) st.st_ino : 0;
}

static struct maker self(void) {
    struct proc_stat stat = {0};
    (void) proc_stat(getpid(), &stat);
    return (struct maker){.pid = (uint64_t) getpid(),
                          .start = stat.start,
                          .pid_ns = namespace_of_self("/proc/self/ns/pid"),
                          .cgroup_ns = namespace_of_self("/proc/self/ns/cgroup")};
}

/* Reads the maker of a cgroup from the cgroup's name. Returns true and stores the maker; or returns
 * false if the name has another form. */
static bool parse_name(const char *name, struct maker *out) {
    uint64_t fields[4];
    if (strncmp(name, "crun-", 5) != 0) return false;
    const char *at = name + 5;
    for (size_t i = 0; i < CR_ARRAY_LEN(fields); i++) {
        char *end;
        fields[i] = strtoull(at, &end, 10);
        if (end == at || *end != '-') return false;
        at = end + 1;
    }
    *out = (struct maker){fields[0], fields[1], fields[2], fields[3]};
    return true;
}

/* ---- ending what dead launchers have left ---- */

static bool is_alive(const struct maker *maker) {
    struct proc_stat stat;
    return proc_stat((pid_t) maker->pid, &stat) == 0 && stat.alive && stat.start == maker->start;
}

/* Returns whether the maker of the cgroup is known to be dead. If the maker was in this pid
 * namespace, its pid and start time show whether it lives. Otherwise a lock shows it: a launcher
 * holds a lock on the folder of its cgroup as long as it lives. But this works only in the same
 * cgroup namespace, because in another one the same folder has another inode, with locks of its
 * own. */
static bool is_abandoned(int fd, const char *name, const struct maker *self) {
    struct maker maker;
    if (!parse_name(name, &maker)) return false;
    if (maker.pid_ns == self->pid_ns) return !is_alive(&maker);
    return maker.cgroup_ns == self->cgroup_ns && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void kill_below(int fd) {
    CR_AUTO_FD int kill_fd = openat(fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (kill_fd >= 0) (void) !write(kill_fd, "1", 1);
}

/* Waits until no process is in the cgroup. Returns true; or false if the deadline comes first. */
static bool await_empty(int fd, int64_t deadline_ms) {
    CR_AUTO_FD int events = openat(fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    struct pollfd changes = {.fd = events, .events = POLLPRI};
    while (cgroup_events_populated(events)) {
        if (poll(&changes, 1, cr_poll_timeout(deadline_ms)) <= 0) return false;
    }
    return true;
}

/* Calls `act` for the folder of each abandoned cgroup within the folder `parent`. Returns how many
 * there are. */
static int for_abandoned(int parent, const struct maker *self, int64_t deadline_ms,
                         void (*act)(int parent, int fd, const char *name, int64_t deadline_ms)) {
    struct proc_dir dir;
    int count = 0;
    if (proc_dir_open(&dir, parent, ".") < 0) return 0;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        if (!dir.is_folder || strncmp(name, "crun-", 5) != 0) continue;
        CR_AUTO_FD int fd = open_below(parent, name);
        if (fd < 0 || !is_abandoned(fd, name, self)) continue;
        act(parent, fd, name, deadline_ms);
        count++;
    }
    proc_dir_close(&dir);
    return count;
}

static void end_one(int parent, int fd, const char *name, int64_t deadline_ms) {
    (void) parent, (void) name, (void) deadline_ms;
    kill_below(fd);
}

static void remove_one(int parent, int fd, const char *name, int64_t deadline_ms) {
    if (!await_empty(fd, deadline_ms)) return;
    remove_below(fd);
    (void) unlinkat(parent, name, AT_REMOVEDIR);
}

/* First kills the processes of all abandoned cgroups, and then waits for one cgroup after the other
 * to become empty. So the processes die side by side. */
void cgroup_sweep(const struct cgroup *g) {
    char path[PATH_MAX];
    (void) stpcpy(path, g->path);
    char *slash = strrchr(path, '/');
    if (slash == NULL) return;
    *slash = '\0';
    CR_AUTO_FD int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return;
    struct maker own = self();
    int64_t deadline_ms = cr_deadline_ms(SWEEP_MS);
    if (for_abandoned(parent, &own, deadline_ms, end_one) == 0) return;
    (void) for_abandoned(parent, &own, deadline_ms, remove_one);
}

/* ---- making and opening a cgroup ---- */

static bool has_kill(int fd) { return faccessat(fd, "cgroup.kill", W_OK, 0) == 0; }

/* Makes the folder g->path, opens it and locks it. Between the mkdir and the lock, a launcher of
 * another pid namespace may take the new cgroup for abandoned and remove it; in that case tries
 * again, MAKES_MAX times at most. Returns whether the cgroup can be used. */
static bool make(struct cgroup *g) {
    for (int i = 0; i < MAKES_MAX; i++) {
        if (mkdir(g->path, 0755) < 0) return false;
        cgroup_reopen(g);
        if (g->fd >= 0 && flock(g->fd, LOCK_EX | LOCK_NB) == 0 && has_kill(g->fd)) return true;
        cr_close_fd(&g->fd);
        /* if rmdir() succeeds, no other launcher has removed the folder: there is another reason
         * why the cgroup cannot be used, so there is no further try */
        if (rmdir(g->path) == 0) return false;
    }
    return false;
}

void cgroup_open(struct cgroup *g, const char *token) {
    char parent[PATH_MAX];
    g->fd = -1;
    g->path[0] = '\0';
    const char *wanted = getenv("CRUN_CGROUP");
    if (wanted != NULL && strcmp(wanted, "0") == 0) return;
    if (cr_cgroup_of_self(CR_CGROUP_V2, parent, NULL) < 0) return;
    struct maker own = self();
    int len = snprintf(g->path, sizeof g->path,
                       "%s/crun-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%.8s", parent,
                       own.pid, own.start, own.pid_ns, own.cgroup_ns, token);
    if (len >= (int) sizeof g->path || !make(g)) g->path[0] = '\0';
}

void cgroup_reopen(struct cgroup *g) {
    g->fd = g->path[0] == '\0' ? -1 : open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_renew(struct cgroup *g) {
    if (g->fd < 0) return;
    /* if this fails, g->path stays set, so that guard_stop() tries once more to remove the
     * cgroup */
    if (cgroup_remove(g) < 0 || !make(g)) cr_close_fd(&g->fd);
}

/* ---- killing the processes of a cgroup, and removing it ---- */

/* An error of the write is ignored, because the caller also kills the processes one by one. */
void cgroup_kill(const struct cgroup *g) {
    if (g->fd >= 0) kill_below(g->fd);
}

int cgroup_events_open(const struct cgroup *g) {
    return g->fd < 0 ? -1 : openat(g->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
}

bool cgroup_events_populated(int fd) {
    char text[256];
    ssize_t got = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (got < 0) return false;
    text[got] = '\0';
    return strstr(text, "populated 1") != NULL;
}

bool cgroup_populated(const struct cgroup *g) {
    CR_AUTO_FD int fd = cgroup_events_open(g);
    return cgroup_events_populated(fd);
}

/* /proc/PID/cgroup has the path of the process's cgroup. The name of this nursery's cgroup contains
 * a random token, so a path with this name leads to it. */
bool cgroup_has(const struct cgroup *g, pid_t pid) {
    char path[PROC_PATH_MAX], text[PATH_MAX];
    const char *name = strrchr(g->path, '/');
    if (g->fd < 0 || name == NULL) return false;
    proc_path(path, pid, "cgroup");
    ssize_t got = proc_read(path, text, sizeof text);
    return got > 0 && memmem(text, (size_t) got, name, strlen(name)) != NULL;
}

/* Reads cgroup.procs once, and moves each listed process for which `goes` returns true to the
 * cgroup whose cgroup.procs is open as above_fd. Returns how many processes it has moved. */
static int release_once(const struct cgroup *g, int above_fd, bool (*goes)(void *arg, pid_t pid),
                        void *arg) {
    int fd = openat(g->fd, "cgroup.procs", O_RDONLY | O_CLOEXEC), moved = 0;
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f == NULL) {
        cr_close_fd(&fd);
        return 0;
    }
    char line[32];
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        pid_t pid = proc_parse_pid(line);
        if (pid > 0 && goes(arg, pid) && write(above_fd, line, strlen(line)) > 0) moved++;
    }
    (void) fclose(f);
    return moved;
}

/* A process may fork while the list of processes is read, so that its child is missing in the list.
 * So the list is read until no process is left to move, but at most RELEASES_MAX times. */
void cgroup_release(const struct cgroup *g, bool (*goes)(void *arg, pid_t pid), void *arg) {
    if (g->fd < 0) return;
    CR_AUTO_FD int above_fd = openat(g->fd, "../cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (above_fd < 0) return;
    for (int i = 0; i < RELEASES_MAX && release_once(g, above_fd, goes, arg) > 0; i++) continue;
}

int cgroup_remove(struct cgroup *g) {
    if (g->path[0] == '\0') return 0;
    if (rmdir(g->path) < 0 && errno != ENOENT) {
        if (errno != EBUSY && errno != ENOTEMPTY) return -errno;
        remove_below(g->fd);
        if (rmdir(g->path) < 0) return -errno;
    }
    cr_close_fd(&g->fd);
    return 0;
}
