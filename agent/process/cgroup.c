/* One cgroup v2 beneath our own: the only container that no process can leave without the right to
 * move itself, and that ends all of them in one write.
 *
 * Our own cgroup is the "0::" line of /proc/self/cgroup, below the root of the cgroup2 mount that
 * /proc/self/mountinfo names (on hybrid machines not /sys/fs/cgroup itself). "Delegated" means no more
 * than that mkdir works there. We enable no controllers, so the rule that inner cgroups hold no
 * processes does not touch us. */
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

#define NESTING_MAX 16 /* cgroups beneath ours that a worker made, in depth */

/* ---- where we are ---- */

/* Our path in the v2 hierarchy, from "0::/a/b". */
static int own_path(char out[PATH_MAX]) {
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return -errno;
    char line[PATH_MAX + 8];
    int code = -ENOENT;
    while (code < 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "0::/", 4) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        (void) stpcpy(out, line + 3);
        code = 0;
    }
    (void) fclose(f);
    return code;
}

/* mountinfo writes blanks and backslashes as three octal digits. */
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

/* Of "id parent dev ROOT MOUNT options… - cgroup2 …" the two in capitals. */
static int parse_mount(char *line, char **root, char **mount) {
    char *type = strstr(line, " - ");
    if (type == NULL || strncmp(type, " - cgroup2 ", 11) != 0) return 0;
    char *save = NULL, *field = strtok_r(line, " ", &save);
    for (int i = 0; i < 3 && field != NULL; i++) field = strtok_r(NULL, " ", &save);
    *root = field;
    *mount = strtok_r(NULL, " ", &save);
    if (*root == NULL || *mount == NULL) return 0;
    unescape(*root);
    unescape(*mount);
    return 1;
}

/* `path` as seen through a mount whose root is `root`: NULL if it lies outside. */
static const char *below(const char *path, const char *root) {
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0')) return NULL;
    if (strstr(path, "/..") != NULL) return NULL; /* outside our cgroup namespace */
    return path + len;
}

static int own_directory(char out[PATH_MAX]) {
    char path[PATH_MAX], line[PATH_MAX];
    int code = own_path(path);
    if (code < 0) return code;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL) return -errno;
    code = -ENOENT;
    while (code < 0 && fgets(line, sizeof line, f) != NULL) {
        char *root, *mount;
        if (!parse_mount(line, &root, &mount)) continue;
        const char *rest = below(path, root);
        if (rest == NULL) continue;
        int len = snprintf(out, PATH_MAX, "%s%s", mount, strcmp(rest, "/") == 0 ? "" : rest);
        code = len < PATH_MAX ? 0 : -ENAMETOOLONG;
    }
    (void) fclose(f);
    return code;
}

/* ---- removing ---- */

/* Every folder in a cgroup is a cgroup. */
static void remove_beneath(int fd, int depth) {
    struct proc_dir dir;
    if (fd < 0 || depth == 0 || proc_dir_open(&dir, fd, ".") < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        if (name[0] == '.') continue;
        int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child < 0) continue; /* one of the kernel's files */
        remove_beneath(child, depth - 1);
        (void) close(child);
        (void) unlinkat(fd, name, AT_REMOVEDIR);
    }
    proc_dir_close(&dir);
}

/* Of "crun-<pid>-…" the pid, or -1. */
static pid_t maker_of(const char *name) {
    char digits[12] = "";
    if (strncmp(name, "crun-", 5) != 0) return -1;
    size_t len = strcspn(name + 5, "-");
    if (len >= sizeof digits || name[5 + len] != '-') return -1;
    memcpy(digits, name + 5, len);
    digits[len] = '\0';
    return proc_parse_pid(digits);
}

/* Who was killed together with its warden left an empty cgroup: whoever comes next removes it. One
 * that is not empty cannot be removed, so nobody is harmed by a pid that we read wrongly. */
static void remove_abandoned(const char *parent) {
    struct proc_dir dir;
    if (proc_dir_open(&dir, AT_FDCWD, parent) < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        pid_t maker = maker_of(name);
        if (maker <= 0 || kill(maker, 0) == 0 || errno != ESRCH) continue;
        CR_AUTO_FD int fd = openat(dir.fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        remove_beneath(fd, NESTING_MAX);
        (void) unlinkat(dir.fd, name, AT_REMOVEDIR);
    }
    proc_dir_close(&dir);
}

/* ---- making one ---- */

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
    cr_close_fd(&g->fd); /* the path is kept: it is removed in the end */
}

/* ---- ending what is in it ---- */

void cgroup_kill(const struct cgroup *g) {
    if (g->fd < 0) return;
    CR_AUTO_FD int fd = openat(g->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) (void) !write(fd, "1", 1); /* those who live are seen, and killed one by one */
}

int cgroup_events_open(const struct cgroup *g) {
    return g->fd < 0 ? -1 : openat(g->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
}

int cgroup_events_populated(int fd) {
    char text[256];
    ssize_t got = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (got < 0) return 0;
    text[got] = '\0';
    return strstr(text, "populated 1") != NULL;
}

int cgroup_populated(const struct cgroup *g) {
    CR_AUTO_FD int fd = cgroup_events_open(g);
    return cgroup_events_populated(fd);
}

int cgroup_remove(struct cgroup *g) {
    if (g->path[0] == '\0') return 0;
    if (rmdir(g->path) < 0 && errno != ENOENT) {
        if (errno != EBUSY && errno != ENOTEMPTY) return -errno;
        remove_beneath(g->fd, NESTING_MAX);
        if (rmdir(g->path) < 0) return -errno;
    }
    cr_close_fd(&g->fd);
    return 0;
}
