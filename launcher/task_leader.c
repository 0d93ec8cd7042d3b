/* Handles the files by which the tasks of one node agree on a leader: implements
 * launcher/task_leader.h. */
#include "launcher/task_leader.h"

#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES       512
#define FOLLOWERS_MS     INT64_C(5000)  /* longest time in ms that the leader, when it ends, waits
                                         * until all other tasks have opened the files */
#define LEADER_APPEAR_MS INT64_C(60000) /* longest time in ms that another task waits until a leader
                                         * has started */

struct meeting {
    char leader_path[PATH_BYTES], tasks_path[PATH_BYTES];
    int leader, tasks; /* open files; -1: not open */
};

/* The files by which this process leads other tasks, and the number of all tasks of the node.
 * led_tasks is 0 if this process does not lead. A process leads at most one job. */
static struct meeting led = {.leader = -1, .tasks = -1};
static uint32_t led_tasks;

/* Writes the path of the user's folder in the temp directory to `path`, and creates the folder if
 * it is missing. Another user may have created a folder with this name. So the function fails if
 * the folder belongs to another user or if others may write to it. */
static int make_folder(char *path, size_t cap, struct cr_error *err) {
    struct stat st;
    const char *temp = getenv("TMPDIR");
    int n = snprintf(path, cap, "%s/crun-%u", temp != NULL && temp[0] != '\0' ? temp : "/tmp",
                     (unsigned) geteuid());
    if (n < 0 || (size_t) n >= cap) return cr_fail(err, -ENAMETOOLONG, "TMPDIR is too long");
    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return cr_fail_errno(err, "cannot make the folder '%s'", path);
    }
    if (lstat(path, &st) < 0) return cr_fail_errno(err, "cannot inspect '%s'", path);
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0) return 0;
    return cr_fail(err, -EPERM,
                   "the folder '%s' belongs to somebody else or others may write to it; remove it, "
                   "or set TMPDIR",
                   path);
}

/* Makes a file name from `name`, which contains the scheduler's job id: each character except
 * letters, digits, '.', '_' and '-' becomes '_'. */
static void make_file_name(const char *name, char *out, size_t cap) {
    size_t len = 0;
    for (const char *at = name; *at != '\0' && len + 1 < cap; at++) {
        bool fits = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                    (*at >= '0' && *at <= '9') || strchr("._-", *at) != NULL;
        out[len++] = (char) (fits ? *at : '_');
    }
    out[len] = '\0';
}

static void close_meeting(struct meeting *m) {
    if (m->leader >= 0) (void) close(m->leader);
    if (m->tasks >= 0) (void) close(m->tasks);
    m->leader = m->tasks = -1;
}

static int open_meeting(const char *name, struct meeting *m, struct cr_error *err) {
    char folder[PATH_BYTES - 272], file[256];
    const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
    m->leader = m->tasks = -1;
    int rc = make_folder(folder, sizeof(folder), err);
    if (rc < 0) return rc;
    make_file_name(name, file, sizeof(file));
    (void) snprintf(m->leader_path, PATH_BYTES, "%s/%s.leader", folder, file);
    (void) snprintf(m->tasks_path, PATH_BYTES, "%s/%s.tasks", folder, file);
    m->leader = open(m->leader_path, flags, 0600);
    if (m->leader < 0) return cr_fail_errno(err, "cannot open '%s'", m->leader_path);
    m->tasks = open(m->tasks_path, flags, 0600);
    if (m->tasks < 0) return cr_fail_errno(err, "cannot open '%s'", m->tasks_path);
    return 0;
}

/* Waits, for at most `ms` milliseconds, until the file has at least `bytes` bytes. inotify watches
 * the file before its size is read for the first time, so no write is missed. Returns 0,
 * -ETIMEDOUT, or another negative errno. */
static int wait_for_size(const char *path, int fd, int64_t bytes, int64_t ms) {
    int64_t end = cr_monotonic_ms() + ms;
    struct stat st;
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), rc = 0;
    if (watch < 0) return -errno;
    if (inotify_add_watch(watch, path, IN_MODIFY) < 0) rc = -errno;
    while (rc == 0) {
        char events[1024];
        struct pollfd p = {.fd = watch, .events = POLLIN};
        int64_t left = end - cr_monotonic_ms();
        if (fstat(fd, &st) < 0) rc = -errno;
        if (rc < 0 || st.st_size >= bytes) break;
        int n = left <= 0 ? 0 : poll(&p, 1, (int) left);
        if (n == 0) rc = -ETIMEDOUT;
        if (n < 0 && errno != EINTR) rc = -errno;
        if (n > 0) (void) !read(watch, events, sizeof(events));
    }
    (void) close(watch);
    return rc;
}

int task_lead(const char *name, uint32_t tasks, struct cr_error *err) {
    int rc = open_meeting(name, &led, err);
    if (rc == 0 && flock(led.leader, LOCK_EX | LOCK_NB) < 0) {
        rc = errno == EWOULDBLOCK
                 ? cr_fail(err, -EBUSY, "another crun already runs '%s'", name)
                 : cr_fail_errno(err, "cannot lock '%s'", led.leader_path);
    }
    if (rc == 0 && ftruncate(led.leader, 0) < 0) rc = cr_fail_errno(err, "cannot truncate '%s'",
                                                                    led.leader_path);
    if (rc == 0 && write(led.leader, "\n", 1) != 1) {
        rc = cr_fail_errno(err, "cannot write to '%s'", led.leader_path);
    }
    if (rc < 0) {
        close_meeting(&led);
        return rc;
    }
    led_tasks = tasks;
    return 0;
}

void task_lead_end(int status) {
    char text[16];
    if (led_tasks == 0) return;
    int n = snprintf(text, sizeof(text), "%d\n", status);
    (void) !write(led.leader, text, (size_t) n);
    (void) wait_for_size(led.tasks_path, led.tasks, (int64_t) led_tasks - 1, FOLLOWERS_MS);
    (void) unlink(led.leader_path);
    (void) unlink(led.tasks_path);
    close_meeting(&led);
    led_tasks = 0;
}

/* Returns the exit status in the leader's file, whose contents are "\n<status>\n". Returns 1 if the
 * file has no status, because the leader has died before it could write one. */
static int read_status(int fd) {
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 1);
    return n > 1 && text[0] >= '0' && text[0] <= '9' ? (int) strtol(text, NULL, 10) : 1;
}

int task_follow(const char *name, int *status, struct cr_error *err) {
    struct meeting m;
    /* The scheduler sends these signals to all tasks. The leader handles them and ends its workers.
     * This task ignores them, because it must wait until the leader has ended. */
    const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        (void) signal(ignored[i], SIG_IGN);
    }
    int rc = open_meeting(name, &m, err);
    if (rc == 0 && write(m.tasks, "t", 1) != 1) {
        rc = cr_fail_errno(err, "cannot write to '%s'", m.tasks_path);
    }
    if (rc == 0) rc = wait_for_size(m.leader_path, m.leader, 1, LEADER_APPEAR_MS);
    if (rc == -ETIMEDOUT) {
        (void) cr_fail(err, rc,
                       "task 0 of this node has not started crun for '%s' within %lld s; crun "
                       "runs once per node: give srun --ntasks-per-node=1",
                       name, (long long) (LEADER_APPEAR_MS / 1000));
    } else if (rc < 0) {
        (void) cr_fail(err, rc, "cannot wait for '%s': %s", m.leader_path, strerror(-rc));
    }
    while (rc == 0 && flock(m.leader, LOCK_SH) < 0) {
        if (errno != EINTR) rc = cr_fail_errno(err, "cannot lock '%s'", m.leader_path);
    }
    if (rc == 0) *status = read_status(m.leader);
    close_meeting(&m);
    return rc;
}
