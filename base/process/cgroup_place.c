/* Finds the folder of a cgroup: base/process/cgroup_place.h. The parsing is pure; only
 * cr_cgroup_of_self(), cr_cgroup_read_mounts() and cr_cgroup_mounts() read files. */
#include "base/process/cgroup_place.h"

#include "base/buffer.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 4096 /* bytes that one read(2) asks for */

/* A part of a text that is not NUL-terminated. */
struct piece {
    const char *at;
    size_t len;
};

/* Removes from *rest the text up to the first character `end`, and returns this text without `end`.
 * If *rest has no such character, removes and returns all of it. */
static struct piece take(struct piece *rest, char end) {
    const char *stop = memchr(rest->at, end, rest->len);
    struct piece taken = {rest->at, stop != NULL ? (size_t) (stop - rest->at) : rest->len};
    size_t skip = stop != NULL ? taken.len + 1 : taken.len;
    *rest = (struct piece){rest->at + skip, rest->len - skip};
    return taken;
}

static bool equals(struct piece p, const char *text) {
    return p.len == strlen(text) && memcmp(p.at, text, p.len) == 0;
}

/* Returns whether a list such as "cpu,cpuacct" has the element `text`. */
static bool lists(struct piece list, const char *text) {
    while (list.len > 0) {
        if (equals(take(&list, ','), text)) return true;
    }
    return false;
}

/* Finds the line of a hierarchy in the text of /proc/self/cgroup, and stores the path in this line
 * in *out. Version 2: "/a" of the line "0::/a". Controller "memory": "/b" of the line
 * "4:memory:/b". Returns false if there is no such line. */
static bool find_path(const char *cgroups, const char *controller, struct piece *out) {
    struct piece rest = {cgroups, strlen(cgroups)};
    while (rest.len > 0) {
        struct piece line = take(&rest, '\n');
        (void) take(&line, ':');
        struct piece controllers = take(&line, ':');
        bool fits = controller[0] == '\0' ? controllers.len == 0 : lists(controllers, controller);
        if (!fits || line.len == 0 || line.at[0] != '/') continue;
        *out = line;
        return true;
    }
    return false;
}

/* A line of mountinfo: "id parent dev ROOT MOUNT options… - TYPE source SUPER-OPTIONS". */
struct mount {
    struct piece root, folder;
};

static bool is_octal(const char *at) {
    return at[0] >= '0' && at[0] <= '3' && at[1] >= '0' && at[1] <= '7' && at[2] >= '0' &&
           at[2] <= '7';
}

/* Decodes a path of mountinfo, where a blank or a backslash is written as a backslash and three
 * octal digits. Stores the path in `out`. Returns its length, or 0 if `out` is too small. */
static size_t unescape(struct piece p, char out[PATH_MAX]) {
    size_t len = 0;
    for (size_t i = 0; i < p.len; i++) {
        if (len + 1 >= PATH_MAX) return 0;
        bool coded = p.at[i] == '\\' && i + 3 < p.len && is_octal(p.at + i + 1);
        out[len++] = coded ? (char) ((p.at[i + 1] - '0') * 64 + (p.at[i + 2] - '0') * 8 +
                                     (p.at[i + 3] - '0'))
                           : p.at[i];
        if (coded) i += 3;
    }
    out[len] = '\0';
    return len;
}

/* Parses a line of mountinfo. Returns false if the line describes no mount of the hierarchy that
 * `controller` names. */
static bool parse_mount(struct piece line, const char *controller, struct mount *out) {
    for (int i = 0; i < 3; i++) (void) take(&line, ' ');
    out->root = take(&line, ' ');
    out->folder = take(&line, ' ');
    while (line.len > 0 && !equals(take(&line, ' '), "-")) continue;
    struct piece type = take(&line, ' ');
    (void) take(&line, ' ');
    if (controller[0] == '\0') return equals(type, "cgroup2");
    return equals(type, "cgroup") && lists(line, controller);
}

/* Returns the part of `path` below `root`, the root of a mount; or NULL if `path` does not lie
 * below `root`. */
static const char *below(const char *path, const char *root) {
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0')) return NULL;
    /* a path with "/.." lies outside of this process's cgroup namespace */
    if (strstr(path, "/..") != NULL) return NULL;
    return strcmp(path + len, "/") == 0 ? "" : path + len;
}

/* Joins the folder of the mount and `rest`. Returns 0 or -ENAMETOOLONG. */
static int join(const struct mount *m, const char *rest, char out[PATH_MAX]) {
    size_t len = unescape(m->folder, out);
    if (len == 0 || len + strlen(rest) >= PATH_MAX) return -ENAMETOOLONG;
    (void) stpcpy(out + len, rest);
    return 0;
}

int cr_cgroup_find(const char *cgroups, const char *mounts, const char *controller,
                   char out[PATH_MAX], bool *is_guess) {
    struct piece found, rest = {mounts, strlen(mounts)};
    char path[PATH_MAX], root[PATH_MAX];
    int rc = -ENOENT;
    bool has_guess = false;
    if (!find_path(cgroups, controller, &found)) return -ENOENT;
    if (found.len >= PATH_MAX) return -ENAMETOOLONG;
    (void) snprintf(path, sizeof(path), "%.*s", (int) found.len, found.at);
    while (rest.len > 0) {
        struct mount m;
        if (!parse_mount(take(&rest, '\n'), controller, &m)) continue;
        const char *inside = unescape(m.root, root) > 0 ? below(path, root) : NULL;
        /* An exact place replaces an earlier place, because a later mount may cover an earlier
         * mount. A guess replaces no exact place. */
        bool is_better = inside != NULL || (is_guess != NULL && (rc < 0 || has_guess));
        if (!is_better) continue;
        has_guess = inside == NULL;
        rc = join(&m, has_guess ? "" : inside, out);
    }
    if (is_guess != NULL) *is_guess = has_guess;
    return rc;
}

/* Appends the text of a file, and a NUL, to `out`. The file may be longer than its reported size,
 * as those of /proc are. Returns 0 or a negative errno. */
static int read_all(const char *path, struct cr_buffer *out) {
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    for (;;) {
        int rc = cr_buffer_reserve(out, READ_BYTES);
        if (rc < 0) return rc;
        ssize_t got = read(fd, out->data + out->len, READ_BYTES);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) return cr_buffer_append(out, "", 1);
        out->len += (size_t) got;
    }
}

/* Keeps only those lines of a text of mountinfo that describe mounts of cgroups: the lines with
 * " - cgroup". What follows " - " is always the type of the mount, because a blank in a path is
 * written as \040. */
static void keep_cgroups(struct cr_buffer *text) {
    struct piece rest = {text->data, text->len - 1};
    size_t len = 0;
    while (rest.len > 0) {
        struct piece line = take(&rest, '\n');
        if (memmem(line.at, line.len, " - cgroup", 9) == NULL) continue;
        memmove(text->data + len, line.at, line.len);
        len += line.len;
        text->data[len++] = '\n';
    }
    text->data[len] = '\0';
    text->len = len;
}

int cr_cgroup_read_mounts(const char *path, struct cr_buffer *out) {
    int rc = read_all(path, out);
    if (rc == 0) keep_cgroups(out);
    return rc;
}

static struct cr_buffer own_mounts;

static void read_own_mounts(void) {
    if (cr_cgroup_read_mounts("/proc/self/mountinfo", &own_mounts) < 0) cr_buffer_done(&own_mounts);
}

const char *cr_cgroup_mounts(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void) pthread_once(&once, read_own_mounts);
    return own_mounts.data != NULL ? own_mounts.data : "";
}

int cr_cgroup_of_self(const char *controller, char out[PATH_MAX], bool *is_guess) {
    struct cr_buffer cgroups = {0};
    int rc = read_all("/proc/self/cgroup", &cgroups);
    if (rc == 0) rc = cr_cgroup_find(cgroups.data, cr_cgroup_mounts(), controller, out, is_guess);
    cr_buffer_done(&cgroups);
    return rc;
}
