/* Makes the folders and files of a job's logs. */
#include "agent/output/log_dir.h"

#include "agent/system/system.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* length in bytes at which an encoded run id is cut, because a file name has at most 255 bytes */
#define RUN_ID_MAX 180
/* Output of workers may contain secrets. So only their owner can read the folders and files that
 * are made here, whatever the umask is. */
#define FOLDER_MODE 0700
#define FILE_MODE   0600
/* If folders are nested in more levels than this, log_dir_remove_empty() removes none of them. A
 * worker may have nested folders to any depth in its own folder. */
#define DEPTH_MAX 32
#define REMEDY     "; give --log-dir a folder that you can write to, or /dev/null for no logs"

/* ---- names and paths ---- */

/* Encodes any run id as a valid file name. */
static void encode_run_id(const char *run_id, char out[RUN_ID_MAX + 4]) {
    size_t n = 0;
    for (; *run_id != '\0' && n < RUN_ID_MAX; run_id++) {
        unsigned char c = (unsigned char) *run_id;
        if (c < 0x20 || c == 0x7f || c == '/' || c == '%') {
            n += (size_t) snprintf(out + n, 4, "%%%02X", c);
        } else {
            out[n++] = (char) c;
        }
    }
    out[n] = '\0';
}

static int random_suffix(char out[9]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t) sizeof(bytes)) return -EIO;
    for (size_t i = 0; i < 8; i++) out[i] = letters[bytes[i] % (sizeof(letters) - 1)];
    out[8] = '\0';
    return 0;
}

static bool is_writable_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, W_OK | X_OK) == 0;
}

/* Returns the temp directory: the first writable one of the folders that Python's tempfile tries,
 * in the same order. If none is writable, returns the first one that is set, so that the error text
 * names it. */
static const char *temp_folder(void) {
    const char *const places[] = {
        getenv("TMPDIR"), getenv("TEMP"), getenv("TMP"), "/tmp", "/var/tmp", "/usr/tmp", "."};
    const char *first = NULL;
    for (size_t i = 0; i < CR_ARRAY_LEN(places); i++) {
        if (places[i] == NULL || places[i][0] == '\0') continue;
        if (is_writable_folder(places[i])) return places[i];
        if (first == NULL) first = places[i];
    }
    return first;
}

/* Appends `text` to the path. Returns 0 or -ENAMETOOLONG. */
static int extend(char path[LOG_PATH_MAX], const char *text) {
    size_t len = strlen(path), more = strlen(text);
    if (len + more >= LOG_PATH_MAX) return -ENAMETOOLONG;
    memcpy(path + len, text, more + 1);
    return 0;
}

static int make_absolute(const char *path, char out[LOG_PATH_MAX]) {
    out[0] = '\0';
    if (path[0] == '/') return extend(out, path);
    if (getcwd(out, LOG_PATH_MAX) == NULL) return -errno;
    int rc = extend(out, "/");
    return rc < 0 ? rc : extend(out, path);
}

/* ---- the job's folder ---- */

/* Makes the folder and its missing parents, like mkdir -p. */
static int make_folders(char *path) {
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0') continue;
        char end = *at;
        *at = '\0';
        int rc = mkdir(path, FOLDER_MODE) < 0 && errno != EEXIST ? -errno : 0;
        *at = end;
        if (rc < 0 || end == '\0') return rc;
    }
}

/* Appends "/<prefix>_<8 random characters>" to the path and makes that folder, which must not exist
 * yet. Only this user may enter the new folder. Returns 0 or a negative errno. */
static int make_unique(char path[LOG_PATH_MAX], const char *prefix) {
    size_t len = strlen(path);
    for (int tries = 0; tries < 100; tries++) {
        char suffix[9];
        int rc = random_suffix(suffix);
        path[len] = '\0';
        if (rc == 0) rc = extend(path, "/");
        if (rc == 0) rc = extend(path, prefix);
        if (rc == 0) rc = extend(path, "_");
        if (rc == 0) rc = extend(path, suffix);
        if (rc < 0) return rc;
        if (mkdir(path, FOLDER_MODE) == 0) return 0;
        if (errno != EEXIST) return -errno;
    }
    return -EEXIST;
}

/* Returns whether named pipes can be made in the job's folder. The usual local file systems of
 * Linux support them, and some network file systems do not. So in any other file system this makes
 * a pipe and removes it again, to find out. */
static bool find_pipes(const struct log_dir *d) {
    static const char name[] = ".pipe";
    struct statfs fs;
    bool is_known = fstatfs(d->fd, &fs) == 0;
    if (is_known && (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
                     fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == TMPFS_MAGIC)) {
        return true;
    }
    if (mkfifoat(d->fd, name, FILE_MODE) < 0) return false;
    return unlinkat(d->fd, name, 0) == 0;
}

int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err) {
    char name[RUN_ID_MAX + 4];
    *d = (struct log_dir){.fd = -1, .attempt_fd = -1};
    if (base != NULL && strcmp(base, "/dev/null") == 0) return 0;
    encode_run_id(run_id, name);
    const char *wanted = base != NULL && base[0] != '\0' ? base : temp_folder();
    int rc = make_absolute(wanted, d->path);
    if (rc < 0) {
        log_dir_done(d);
        return cr_fail(err, rc,
                       "cannot make the path of the log folder '%s' absolute: %s; give --log-dir a "
                       "path that begins with '/'",
                       wanted, strerror(-rc));
    }
    if (rc == 0 && base != NULL) rc = make_folders(d->path);
    if (rc == 0 && base == NULL) rc = make_unique(d->path, "torchelastic");
    d->base_len = base == NULL ? strlen(d->path) : 0;
    if (rc == 0) rc = make_unique(d->path, name);
    if (rc == 0) d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (rc == 0 && d->fd < 0) rc = -errno;
    if (rc == 0) {
        d->has_pipes = find_pipes(d);
        return 0;
    }
    (void) cr_fail(err, rc, "cannot create the log folder '%s': %s" REMEDY, d->path, strerror(-rc));
    log_dir_done(d);
    return rc;
}

void log_dir_done(struct log_dir *d) {
    cr_close_fd(&d->attempt_fd);
    cr_close_fd(&d->fd);
    d->path[0] = '\0';
}

/* ---- removing folders in which nothing was written ---- */

/* Returns whether `name` is a folder in which there is nothing but folders, on all levels. Returns
 * false if folders are nested deeper than `depth` levels, `name` included. */
static bool has_only_folders(int at, const char *name, int depth) {
    struct proc_dir dir;
    const char *entry;
    bool only = true;
    if (depth == 0 || proc_dir_open(&dir, at, name) < 0) return false;
    while (only && (entry = proc_dir_next(&dir)) != NULL) {
        only = has_only_folders(dir.fd, entry, depth - 1);
    }
    proc_dir_close(&dir);
    return only;
}

static void remove_folder(int at, const char *name, struct log_dir_removed *out);

static void remove_folders_in(int at, struct log_dir_removed *out) {
    struct proc_dir dir;
    const char *entry;
    if (proc_dir_open(&dir, at, ".") < 0) return;
    while ((entry = proc_dir_next(&dir)) != NULL) remove_folder(at, entry, out);
    proc_dir_close(&dir);
}

/* Removes the folder and all folders in it, and adds descriptors of removed folders to *out. Most
 * folders are empty, so the first unlinkat() removes them. No file is lost: if a file was made
 * after has_only_folders() ran, unlinkat() fails for the folder with that file. */
static void remove_folder(int at, const char *name, struct log_dir_removed *out) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    bool is_removed = unlinkat(at, name, AT_REMOVEDIR) == 0;
    if (!is_removed) {
        remove_folders_in(fd, out);
        is_removed = unlinkat(at, name, AT_REMOVEDIR) == 0;
    }
    if (is_removed && out->count < LOG_DIR_REMOVED_MAX) out->fds[out->count++] = fd;
    else (void) close(fd);
}

void log_dir_remove_empty(struct log_dir *d, struct log_dir_removed *out) {
    char path[LOG_PATH_MAX];
    if (d->path[0] == '\0') return;
    memcpy(path, d->path, sizeof(path));
    if (d->base_len > 0) path[d->base_len] = '\0';
    if (!has_only_folders(AT_FDCWD, path, DEPTH_MAX)) return;
    remove_folder(AT_FDCWD, path, out);
    cr_close_fd(&d->attempt_fd);
    cr_close_fd(&d->fd);
}

/* ---- the folders of an attempt ---- */

static void name_attempt(struct log_attempt attempt, char out[LOG_ATTEMPT_MAX]) {
    if (attempt.again == 0)
        (void) snprintf(out, LOG_ATTEMPT_MAX, "attempt_%" PRIu32, attempt.restart);
    else
        (void) snprintf(out, LOG_ATTEMPT_MAX, "attempt_%" PRIu32 ".%" PRIu32, attempt.restart,
                        attempt.again);
}

static void begin_attempt(struct log_dir *d, uint32_t restart) {
    bool is_again = d->has_attempt && d->attempt.restart == restart;
    d->attempt.again = is_again ? d->attempt.again + 1 : 0;
    d->attempt.restart = restart;
    d->has_attempt = true;
}

static int make_worker_folders(const struct log_dir *d, uint32_t workers, const bool *starts) {
    char name[16];
    for (uint32_t i = 0; i < workers; i++) {
        (void) snprintf(name, sizeof(name), "%" PRIu32, i);
        if (!starts[i]) continue;
        if (mkdirat(d->attempt_fd, name, FOLDER_MODE) < 0 && errno != EEXIST) return -errno;
    }
    return 0;
}

int log_dir_begin(struct log_dir *d, uint32_t restart, uint32_t workers, const bool *starts,
                  struct cr_error *err) {
    char name[LOG_ATTEMPT_MAX];
    if (d->fd < 0) return 0;
    cr_close_fd(&d->attempt_fd);
    begin_attempt(d, restart);
    name_attempt(d->attempt, name);
    int rc = mkdirat(d->fd, name, FOLDER_MODE) < 0 && errno != EEXIST ? -errno : 0;
    if (rc == 0) {
        d->attempt_fd = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = d->attempt_fd < 0 ? -errno : make_worker_folders(d, workers, starts);
    }
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot create the log folder '%s/%s': %s" REMEDY, d->path, name,
                   strerror(-rc));
}

int log_dir_add_workers(const struct log_dir *d, uint32_t workers, const bool *starts,
                        struct cr_error *err) {
    int rc = d->attempt_fd < 0 ? 0 : make_worker_folders(d, workers, starts);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot create a worker's log folder in '%s': %s" REMEDY, d->path,
                   strerror(-rc));
}

int log_dir_create(const struct log_dir *d, int64_t local_rank, const char *name, int *fd,
                   struct cr_error *err) {
    char at[64], folder[LOG_ATTEMPT_MAX];
    if (local_rank < 0)
        (void) snprintf(at, sizeof(at), "%s", name);
    else
        (void) snprintf(at, sizeof(at), "%" PRId64 "/%s", local_rank, name);
    *fd = openat(d->attempt_fd, at, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, FILE_MODE);
    if (*fd >= 0) return 0;
    name_attempt(d->attempt, folder);
    return cr_fail_errno(err, "cannot create the log file '%s/%s/%s'", d->path, folder, at);
}

int log_dir_open_worker(const struct log_dir *d, uint32_t local_rank) {
    char name[16];
    (void) snprintf(name, sizeof(name), "%" PRIu32, local_rank);
    return openat(d->attempt_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void log_dir_path(const struct log_dir *d, struct log_attempt attempt, uint32_t local_rank,
                  const char *name, char out[LOG_PATH_MAX]) {
    char folder[LOG_ATTEMPT_MAX];
    out[0] = '\0';
    if (d->path[0] == '\0') return;
    name_attempt(attempt, folder);
    int n = snprintf(out, LOG_PATH_MAX, "%s/%s/%" PRIu32 "%s%s", d->path, folder, local_rank,
                     name[0] != '\0' ? "/" : "", name);
    if (n < 0 || n >= LOG_PATH_MAX) out[0] = '\0';
}
