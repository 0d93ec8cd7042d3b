/* Makes the folders and files of a job's logs. */
#include "agent/output/log_dir.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* length in bytes at which an encoded run id is cut, because a file name has at most 255 bytes */
#define RUN_ID_MAX 180
/* Output of workers may contain secrets. So only their owner can read the folders and files that
 * are made here, whatever the umask is. */
#define FOLDER_MODE 0700
#define FILE_MODE   0600
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
    if (rc == 0) return 0;
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

static int stop_at_file(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void) path, (void) st, (void) at;
    return type == FTW_D || type == FTW_DP ? 0 : 1;
}

static int remove_folder(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void) st, (void) type, (void) at;
    /* rmdir() fails if a file was made after stop_at_file() ran, so no file is lost */
    return rmdir(path);
}

void log_dir_remove_empty(const struct log_dir *d) {
    char path[LOG_PATH_MAX];
    if (d->path[0] == '\0') return;
    memcpy(path, d->path, sizeof(path));
    if (d->base_len > 0) path[d->base_len] = '\0';
    if (nftw(path, stop_at_file, 16, FTW_PHYS) != 0) return;
    (void) nftw(path, remove_folder, 16, FTW_DEPTH | FTW_PHYS);
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
