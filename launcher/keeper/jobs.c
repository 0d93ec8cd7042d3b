/* Makes, reads and removes the folders of kept jobs: implements jobs_internal.h. */
#include "launcher/keeper/jobs_internal.h"

#include "base/cleanup.h"
#include "base/memory.h"
#include "base/text/parse.h"
#include "base/files/read_file.h"
#include "base/text/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const char *const files[] = {"command", "console", "socket", "status"};

/* ---- paths ---- */

/* Writes the path of a job's file, or of its folder if `file` is NULL, to `out`. Returns 0, or
 * -ENAMETOOLONG if the path would be too long for a socket's address: a job whose keeper has no
 * socket could not be stopped. */
static int path_of(const char *folder, const char *id, const char *file,
                   char out[KEPT_PATH_MAX]) {
    struct sockaddr_un address;
    int n = snprintf(out, KEPT_PATH_MAX, "%s/%s%s%s", folder, id, file != NULL ? "/" : "",
                     file != NULL ? file : "");
    return n < (int) sizeof(address.sun_path) ? 0 : -ENAMETOOLONG;
}

int kept_folder(char out[KEPT_PATH_MAX], struct cr_error *err) {
    const char *given = getenv("CRUN_JOBS_DIR");
    struct stat st;
    if (given != NULL && given[0] != '\0') (void) snprintf(out, KEPT_PATH_MAX, "%s", given);
    else (void) snprintf(out, KEPT_PATH_MAX, "/tmp/crun-jobs-%u", (unsigned) geteuid());
    if (mkdir(out, 0700) < 0 && errno != EEXIST) {
        return cr_fail_errno(err, "cannot make the folder of jobs '%.300s'", out);
    }
    if (lstat(out, &st) < 0) return cr_fail_errno(err, "cannot use the folder '%.300s'", out);
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0) return 0;
    return cr_fail(err, -EPERM, "cannot use the folder of jobs '%.300s': it must be a folder that "
                   "only you may enter; give another one by CRUN_JOBS_DIR", out);
}

int kept_open(const char *folder, const char *id, const char *file, int flags) {
    char path[KEPT_PATH_MAX];
    int rc = path_of(folder, id, file, path);
    if (rc < 0) return rc;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

int kept_socket(const char *folder, const char *id, int listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[KEPT_PATH_MAX];
    int rc = path_of(folder, id, "socket", path);
    if (rc < 0) return rc;
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    rc = listens ? bind(fd, (struct sockaddr *) &address, sizeof(address))
                 : connect(fd, (struct sockaddr *) &address, sizeof(address));
    if (rc == 0 && listens) rc = listen(fd, 16);
    if (rc == 0) return fd;
    rc = -errno;
    (void) close(fd);
    return rc;
}

/* ---- the exit status ---- */

int kept_read_status(const char *folder, const char *id, int *status) {
    char path[KEPT_PATH_MAX], text[32];
    int64_t number;
    int rc = path_of(folder, id, "status", path);
    ssize_t n = rc < 0 ? rc : cr_read_file(path, text, sizeof(text));
    if (n < 0) return (int) n;
    text[strcspn(text, "\n")] = '\0';
    rc = cr_parse_i64(text, 0, 255, &number);
    if (rc == 0) *status = (int) number;
    return rc;
}

/* Uses one write(2) for the whole number, so that no reader sees a part of it. */
int kept_write_status(const char *folder, const char *id, int status) {
    char text[16];
    int len = snprintf(text, sizeof(text), "%d\n", status);
    CR_AUTO_FD int fd = kept_open(folder, id, "status", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return fd;
    return write(fd, text, (size_t) len) == len ? 0 : -EIO;
}

/* ---- making a job's folder ---- */

static int check_name(const char *name, struct cr_error *err) {
    size_t len = strlen(name);
    bool is_right = len > 0 && len < KEPT_ID_MAX && isalnum((unsigned char) name[0]);
    for (size_t i = 0; i < len; i++) {
        is_right &= isalnum((unsigned char) name[i]) || strchr("._-", name[i]) != NULL;
    }
    if (is_right) return 0;
    return cr_fail(err, -EINVAL, "--name: '%.100s' is no name of a job; give at most %d letters, "
                   "digits and . _ -, beginning with a letter or digit", name, KEPT_ID_MAX - 1);
}

static int draw_id(char id[KEPT_ID_MAX]) {
    unsigned char random[3];
    if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random)) return -EIO;
    (void) snprintf(id, KEPT_ID_MAX, "%02x%02x%02x", random[0], random[1], random[2]);
    return 0;
}

static int write_command(const char *folder, const char *id, char *const *words) {
    char line[sizeof(((struct kept_job *) 0)->command)];
    size_t n = 0;
    CR_AUTO_FD int fd = kept_open(folder, id, "command", O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0) return fd;
    for (; *words != NULL && n + 2 < sizeof(line); words++) {
        if (n > 0) line[n++] = ' ';
        n += cr_text_copy(line + n, sizeof(line) - n, *words, strlen(*words));
    }
    return write(fd, line, n) == (ssize_t) n ? 0 : -EIO;
}

/* If the job `id` has ended, removes its folder, so that a new job can have its name. */
static void forget_ended(const char *folder, const char *id) {
    char path[KEPT_PATH_MAX];
    int status;
    if (kept_read_status(folder, id, &status) < 0) return;
    for (size_t i = 0; i < CR_ARRAY_LEN(files); i++) {
        if (path_of(folder, id, files[i], path) == 0) (void) unlink(path);
    }
    if (path_of(folder, id, NULL, path) == 0) (void) rmdir(path);
}

int kept_make(const char *folder, const char *name, char *const *words, char id[KEPT_ID_MAX],
              struct cr_error *err) {
    char path[KEPT_PATH_MAX];
    int rc = name != NULL ? check_name(name, err) : 0;
    if (rc < 0) return rc;
    for (int tries = 0; tries < 100; tries++) {
        if (name != NULL) (void) snprintf(id, KEPT_ID_MAX, "%s", name);
        else if (draw_id(id) < 0) return cr_fail(err, -EIO, "cannot draw an id for the job");
        if (name != NULL) forget_ended(folder, id);
        rc = path_of(folder, id, "command", path);
        if (rc == 0) rc = path_of(folder, id, NULL, path);
        if (rc == 0 && mkdir(path, 0700) < 0) rc = -errno;
        if (rc != -EEXIST || name != NULL) break;
    }
    if (rc == -EEXIST) {
        return cr_fail(err, rc, "there is a job '%s' already; give another --name", id);
    }
    if (rc == 0) rc = write_command(folder, id, words);
    if (rc == 0) return 0;
    return cr_fail(err, rc, "cannot make the folder of the job in '%.300s': %s", folder,
                   strerror(-rc));
}

/* ---- listing ---- */

static void read_job(const char *folder, struct kept_job *job) {
    char path[KEPT_PATH_MAX];
    struct stat st;
    if (path_of(folder, job->id, "command", path) == 0 && stat(path, &st) == 0) {
        job->started_s = st.st_mtim.tv_sec;
        if (cr_read_file(path, job->command, sizeof(job->command)) < 0) job->command[0] = '\0';
    }
    /* Connect before reading the status. The keeper writes the status before it stops listening, so
     * if the job ends at this moment and connecting fails, the status is there. */
    int fd = kept_socket(folder, job->id, 0);
    job->state = fd >= 0 ? KEPT_RUNNING : KEPT_LOST;
    cr_close_fd(&fd);
    if (job->state == KEPT_RUNNING) return;
    if (kept_read_status(folder, job->id, &job->status) == 0) job->state = KEPT_ENDED;
}

static int by_start(const void *a, const void *b) {
    const struct kept_job *x = a, *y = b;
    if (x->started_s != y->started_s) return x->started_s < y->started_s ? -1 : 1;
    return strcmp(x->id, y->id);
}

int kept_list(const char *folder, struct kept_job **out, size_t *count, struct cr_error *err) {
    struct kept_job *jobs = NULL;
    size_t n = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) return cr_fail_errno(err, "cannot list the folder of jobs '%.300s'", folder);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (check_name(entry->d_name, NULL) < 0) continue;
        struct kept_job *grown = realloc(jobs, (n + 1) * sizeof(*jobs));
        if (grown == NULL) break;
        jobs = grown;
        jobs[n] = (struct kept_job){0};
        memcpy(jobs[n].id, entry->d_name, strlen(entry->d_name) + 1);
        read_job(folder, &jobs[n++]);
    }
    (void) closedir(dir);
    if (n > 1) qsort(jobs, n, sizeof(*jobs), by_start);
    *out = jobs;
    *count = n;
    return 0;
}

void kept_tidy(const char *folder, const struct kept_job *jobs, size_t count) {
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) ended += jobs[i].state == KEPT_ENDED ? 1 : 0;
    for (size_t i = 0; i < count && ended > KEPT_ENDED_MAX; i++) {
        if (jobs[i].state != KEPT_ENDED) continue;
        forget_ended(folder, jobs[i].id);
        ended--;
    }
}

/* ---- choosing a job ---- */

static const struct kept_job *choose_running(const struct kept_job *jobs, size_t count,
                                             struct cr_error *err) {
    const struct kept_job *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (jobs[i].state != KEPT_RUNNING) continue;
        if (found != NULL) {
            (void) cr_fail(err, -EINVAL, "several jobs run; name one: 'crun ps' lists them");
            return NULL;
        }
        found = &jobs[i];
    }
    if (found == NULL) (void) cr_fail(err, -ENOENT, "no job runs; 'crun ps' lists the ended ones");
    return found;
}

const struct kept_job *kept_choose(const struct kept_job *jobs, size_t count, const char *text,
                                   struct cr_error *err) {
    const struct kept_job *found = NULL;
    bool is_unique = true;
    if (text == NULL) return choose_running(jobs, count, err);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(jobs[i].id, text) == 0) return &jobs[i];
        if (strncmp(jobs[i].id, text, strlen(text)) != 0) continue;
        is_unique = found == NULL;
        found = &jobs[i];
    }
    if (found != NULL && is_unique) return found;
    (void) cr_fail(err, -ENOENT, "%s '%.100s'; 'crun ps' lists the jobs",
                   found == NULL ? "no job has the id" : "several jobs have ids that begin with",
                   text);
    return NULL;
}
