/* Makes, uses and removes one cgroup v2 below the cgroup of this process. A cgroup has two
 * properties that no other means of the kernel has together: a process cannot leave it without the
 * right to write cgroup.procs of another cgroup, and one write to its cgroup.kill ends all its
 * processes.
 *
 * The line "0::" of /proc/self/cgroup has the path of this process's cgroup; /proc/self/mountinfo
 * has the place where the cgroup2 filesystem is mounted (on hybrid machines that is not
 * /sys/fs/cgroup). If mkdir works in the folder of its cgroup, this process has the permission to
 * make cgroups there. The kernel forbids processes in a cgroup that enables controllers for its
 * children. This file enables no controllers, so that rule does not matter here. */
#include "agent/process/cgroup.h"

#include "agent/process/proc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* the most times that cgroup_release() reads the list of processes */
#define RELEASES_MAX 100
/* the most levels of cgroups below a worker group's cgroup that are removed; workers may make such
 * cgroups */
#define NESTING_MAX 16

/* ---- finding the cgroup of this process ---- */

/* Writes to `out` the path of this process's cgroup in the v2 hierarchy: "/a/b" if the line is
 * "0::/a/b". Returns 0; -ENOENT if there is no such line; or the negative errno of fopen(3). */
static int own_path(char out[PATH_MAX]) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return -errno;
    char line[PATH_MAX + 8];
    int rc = -ENOENT;
    while (rc < 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "0::/", 4) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        (void) stpcpy(out, line + 3);
        rc = 0;
    }
    (void) fclose(f);
    return rc;
}

/* Decodes a path of mountinfo in place. A blank or a backslash is written there as a backslash and
 * three octal digits. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != '\0' &&
            from[3] != '\0') {
            *to++ = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* Finds ROOT and MOUNT in a line "id parent dev ROOT MOUNT options… - cgroup2 …" of mountinfo.
 * Returns true and stores both in *root and *mount; false if the line has another form or describes
 * another filesystem. */
static bool parse_mount(char *line, char **root, char **mount) {
    char *type = strstr(line, " - ");
    if (type == NULL || strncmp(type, " - cgroup2 ", 11) != 0) return false;
    char *save = NULL, *field = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && field != NULL; i++) field = strtok_r(NULL, " ", &save);
    *root = field;
    *mount = strtok_r(NULL, " ", &save);
    if (*root == NULL || *mount == NULL) return false;
    unescape(*root);
    unescape(*mount);
    return true;
}

/* Returns the part of `path` after `root`, the root of a mount; or NULL if `path` does not lie
 * below `root`. */
static const char *below(const char *path, const char *root) {
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0')) return NULL;
    /* a path with "/.." lies outside of this process's cgroup namespace */
    if (strstr(path, "/..") != NULL) return NULL;
    return path + len;
}

static int own_directory(char out[PATH_MAX]) {
    char path[PATH_MAX], line[PATH_MAX];
    int rc = own_path(path);
    if (rc < 0) return rc;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL) return -errno;
    rc = -ENOENT;
    while (rc < 0 && fgets(line, sizeof line, f) != NULL) {
        char *root, *mount;
        if (!parse_mount(line, &root, &mount)) continue;
        const char *rest = below(path, root);
        if (rest == NULL) continue;
        int len = snprintf(out, PATH_MAX, "%s%s", mount, strcmp(rest, "/") == 0 ? "" : rest);
        rc = len < PATH_MAX ? 0 : -ENAMETOOLONG;
    }
    (void) fclose(f);
    return rc;
}

/* ---- removing cgroups that ended agents have left ---- */

/* Removes the cgroups below the cgroup whose folder is `fd`, at most `depth` levels deep. Every
 * folder within the folder of a cgroup is a cgroup. */
static void remove_below(int fd, int depth) {
    struct proc_dir dir;
    if (fd < 0 || depth == 0 || proc_dir_open(&dir, fd, ".") < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        if (name[0] == '.') continue;
        int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child < 0) continue; /* the entry is a control file and not a folder */
        remove_below(child, depth - 1);
        (void) close(child);
        (void) unlinkat(fd, name, AT_REMOVEDIR);
    }
    proc_dir_close(&dir);
}

/* Returns the pid of the launcher that made a cgroup, which is the number in the cgroup's name
 * "crun-<pid>-…". Returns -1 if the name has another form. */
static pid_t maker_of(const char *name) {
    char digits[12] = "";
    if (strncmp(name, "crun-", 5) != 0) return -1;
    size_t len = strcspn(name + 5, "-");
    if (len >= sizeof digits || name[5 + len] != '-') return -1;
    memcpy(digits, name + 5, len);
    digits[len] = '\0';
    return proc_parse_pid(digits);
}

/* Removes the empty cgroups of dead launchers below `parent`. Such a cgroup is left if a launcher
 * was killed together with its warden. The pid in a name may be of another pid namespace, so
 * kill(2) may report a living launcher as dead. This does not harm its workers: the kernel never
 * removes a cgroup that has processes. */
static void remove_abandoned(const char *parent) {
    struct proc_dir dir;
    if (proc_dir_open(&dir, AT_FDCWD, parent) < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        pid_t maker = maker_of(name);
        if (maker <= 0 || kill(maker, 0) == 0 || errno != ESRCH) continue;
        CR_AUTO_FD int fd = openat(dir.fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        remove_below(fd, NESTING_MAX);
        (void) unlinkat(dir.fd, name, AT_REMOVEDIR);
    }
    proc_dir_close(&dir);
}

/* ---- making and opening a cgroup ---- */

void cgroup_open(struct cgroup *g, const char *name) {
    char parent[PATH_MAX];
    g->fd = -1;
    const char *wanted = getenv("CRUN_CGROUP");
    if (wanted != NULL && strcmp(wanted, "0") == 0) return;
    if (own_directory(parent) < 0) return;
    if (snprintf(g->path, sizeof g->path, "%s/%s", parent, name) >= (int) sizeof g->path ||
        mkdir(g->path, 0755) < 0) {
        g->path[0] = '\0';
        return;
    }
    remove_abandoned(parent);
    cgroup_reopen(g);
    if (g->fd >= 0 && faccessat(g->fd, "cgroup.kill", W_OK, 0) == 0) return;
    cr_close_fd(&g->fd);
    (void) rmdir(g->path);
    g->path[0] = '\0';
}

void cgroup_reopen(struct cgroup *g) {
    g->fd = g->path[0] == '\0' ? -1 : open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void cgroup_renew(struct cgroup *g) {
    if (g->fd < 0) return;
    if (cgroup_remove(g) == 0 && mkdir(g->path, 0755) == 0) {
        cgroup_reopen(g);
        return;
    }
    /* g->path stays set, so that guard_stop() tries once more to remove the cgroup */
    cr_close_fd(&g->fd);
}

/* ---- killing the processes of a cgroup, and removing it ---- */

void cgroup_kill(const struct cgroup *g) {
    if (g->fd < 0) return;
    CR_AUTO_FD int fd = openat(g->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    /* if cgroup.kill cannot be written, the caller kills the processes one by one */
    if (fd >= 0) (void) !write(fd, "1", 1);
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

/* Reads cgroup.procs once, and moves each listed process for which `goes` returns true. Returns how
 * many processes it has moved. */
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

/* Reads the list of processes until none is left to move, but at most RELEASES_MAX times: a process
 * may fork while the list is read, and its child is then missing in the list. */
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
        remove_below(g->fd, NESTING_MAX);
        if (rmdir(g->path) < 0) return -errno;
    }
    cr_close_fd(&g->fd);
    return 0;
}
