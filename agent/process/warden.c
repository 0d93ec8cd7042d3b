/* The warden: a small process that waits at one end of a pipe for us to die, of whatever, and then
 * ends every process of the nursery.
 *
 *     we die (kill -9, out of memory, a bug)  ->  the pipe's last writer is gone  ->  read() returns
 *       cgroup.kill, and: scan /proc for our processes, kill them, wait for their deaths; again,
 *       until two scans in a row find none  ->  remove the cgroup  ->  exit
 *
 * Ours is a process that has our token in its environment, or is in a worker's session, or descends
 * from such a one. It is a fork, in a session of its own with every signal blocked, so that whatever
 * is sent to the launcher's process group or terminal does not reach it; it holds no descriptor but
 * the pipe, and until the pipe ends it sleeps in one read. It may be the fork of a
 * process with threads: system calls only, no heap.
 *
 * A process that is about to execute a program has no environment for a moment. Nobody knows then
 * whose it is, so a scan that met one proves nothing. */
#include "agent/process/warden.h"

#include "agent/process/proc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES_MAX (1 << 18) /* in one scan; memory is touched as far as it is used */
#define WAIT_MAX      256       /* deaths that one round waits for */
#define ROUND_MS      200       /* a round ends with the deaths of its victims, or after this */
#define CLEAN_SCANS   2
#define DOUBT_MS      10000 /* so long we wait until it can be told whose a process is */
#define LIFELINE_FD   3

struct process {
    pid_t pid, parent;
    uint64_t start;
    int ours;
};

/* What a scan found: alive and ours; alive, and about to tell whose it is. */
struct found {
    size_t ours, doubtful;
};

/* ---- one scan ---- */

static int in_roster(const struct warden_roster *roster, const struct proc_stat *stat) {
    for (int i = 0; i < WARDEN_SESSION_MAX; i++) {
        pid_t each = roster->session[i];
        if (each > 0 && (each == stat->session || each == stat->group)) return 1;
    }
    return 0;
}

static size_t read_processes(struct process *all, const char *token,
                             const struct warden_roster *roster, struct found *found) {
    struct proc_dir dir;
    size_t count = 0;
    pid_t self = getpid();
    if (proc_dir_open(&dir, AT_FDCWD, "/proc") < 0) return 0;
    const char *name;
    while (count < PROCESSES_MAX && (name = proc_dir_next(&dir)) != NULL) {
        pid_t pid = proc_parse_pid(name);
        struct proc_stat stat;
        if (pid <= 0 || pid == self || proc_stat(pid, &stat) < 0 || !stat.alive) continue;
        int ours = in_roster(roster, &stat) ? 1 : proc_environ_has(pid, token);
        found->doubtful += ours < 0;
        all[count++] = (struct process){
            .pid = pid, .parent = stat.parent, .start = stat.start, .ours = ours > 0};
    }
    proc_dir_close(&dir);
    return count;
}

/* The kernel lists /proc in ascending order. */
static int is_ours(const struct process *all, size_t count, pid_t pid) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && all[low].pid == pid && all[low].ours;
}

/* Children of ours are ours, to any depth. */
static void mark_descendants(struct process *all, size_t count) {
    for (int found = 1; found;) {
        found = 0;
        for (size_t i = 0; i < count; i++) {
            if (all[i].ours || !is_ours(all, count, all[i].parent)) continue;
            all[i].ours = 1;
            found = 1;
        }
    }
}

/* ---- one round ---- */

/* Through a pidfd, and only if the pid is still the process that was read. Returns the pidfd. */
static int kill_process(const struct process *p) {
    int fd = (int) syscall(SYS_pidfd_open, p->pid, 0);
    struct proc_stat now;
    if (proc_stat(p->pid, &now) < 0 || now.start != p->start) {
        cr_close_fd(&fd);
        return -1;
    }
    if (fd < 0)
        (void) kill(p->pid, SIGKILL);
    else
        (void) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    return fd;
}

static void await_deaths(struct pollfd *dying, nfds_t count) {
    for (nfds_t left = count; left > 0;) {
        if (poll(dying, count, ROUND_MS) <= 0) break;
        left = 0;
        for (nfds_t i = 0; i < count; i++) {
            if (dying[i].fd >= 0 && dying[i].revents != 0) cr_close_fd(&dying[i].fd);
            left += dying[i].fd >= 0;
        }
    }
    for (nfds_t i = 0; i < count; i++) cr_close_fd(&dying[i].fd);
}

static struct found kill_round(struct process *all, const char *token,
                               const struct warden_roster *roster) {
    struct found found = {0};
    size_t count = read_processes(all, token, roster, &found);
    mark_descendants(all, count);
    struct pollfd dying[WAIT_MAX];
    nfds_t waiting = 0;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].ours) continue;
        found.ours++;
        int fd = kill_process(&all[i]);
        if (fd < 0) continue;
        if (waiting < WAIT_MAX)
            dying[waiting++] = (struct pollfd){.fd = fd, .events = POLLIN};
        else
            (void) close(fd);
    }
    if (found.ours > 0 && waiting == 0) (void) poll(NULL, 0, 1); /* no pidfds here: let them die */
    await_deaths(dying, waiting);
    return found;
}

static void end_everything(const char *token, struct cgroup *cgroup,
                           const struct warden_roster *roster) {
    struct process *all = mmap(NULL, PROCESSES_MAX * sizeof *all, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return;
    int clean = 0, doubted_ms = 0;
    while (clean < CLEAN_SCANS) {
        cgroup_kill(cgroup);
        struct found found = kill_round(all, token, roster);
        clean = found.ours == 0 ? clean + 1 : 0;
        if (clean > 0 && found.doubtful > 0 && doubted_ms < DOUBT_MS) {
            int wait_ms = 1 + doubted_ms / 8;
            clean = 0;
            doubted_ms += wait_ms;
            (void) poll(NULL, 0, wait_ms);
        }
        if (clean > 0 && cgroup_populated(cgroup)) { /* the last of them are on their way out */
            clean = 0;
            (void) poll(NULL, 0, 1);
        }
    }
    (void) cgroup_remove(cgroup);
}

/* ---- the process ---- */

/* The lifeline becomes LIFELINE_FD, and there is nothing behind it. */
static void keep_only(int lifeline) {
    int spare =
        fcntl(lifeline, F_DUPFD_CLOEXEC, LIFELINE_FD + 1); /* out of the way of what follows */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < LIFELINE_FD; i++) (void) dup2(null, i);
    (void) dup2(spare, LIFELINE_FD);
    if (syscall(SYS_close_range, LIFELINE_FD + 1, ~0U, 0) == 0) return;
    struct proc_dir dir; /* before Linux 5.9 */
    if (proc_dir_open(&dir, AT_FDCWD, "/proc/self/fd") < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        int fd = proc_parse_pid(name);
        if (fd > LIFELINE_FD && fd != dir.fd) (void) close(fd);
    }
    proc_dir_close(&dir);
}

static _Noreturn void warden_main(int lifeline, const char *token, struct cgroup cgroup,
                                  const struct warden_roster *roster) {
    (void) setsid();
    (void) prctl(PR_SET_NAME, "crun-warden");
    (void) chdir("/");
    keep_only(lifeline);
    char byte;
    while (read(LIFELINE_FD, &byte, 1) < 0 && errno == EINTR) continue;
    cgroup_reopen(&cgroup); /* it may have been renewed */
    end_everything(token, &cgroup, roster);
    _exit(0);
}

int warden_start(struct warden *w, const char *token, const struct cgroup *cgroup,
                 const struct warden_roster *roster) {
    int ends[2];
    *w = (struct warden){.pidfd = -1, .lifeline = -1};
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    uint64_t all = UINT64_MAX, before = 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    pid_t pid = fork();
    if (pid == 0) {
        (void) close(ends[1]);
        warden_main(ends[0], token, *cgroup, roster); /* with every signal still blocked */
    }
    int code = pid < 0 ? -errno : 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    (void) close(ends[0]);
    if (code < 0) {
        (void) close(ends[1]);
        return code;
    }
    *w = (struct warden){.pid = pid, .lifeline = ends[1]};
    w->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

void warden_bury(struct warden *w) {
    if (w->pid <= 0) return;
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
    cr_close_fd(&w->pidfd);
    cr_close_fd(&w->lifeline);
}

void warden_kill(struct warden *w) {
    if (w->pid > 0)
        (void) kill(w->pid, SIGKILL); /* our child, not waited for: the pid is its own */
}

void warden_release(struct warden *w) {
    w->pid = 0;
    cr_close_fd(&w->pidfd);
    cr_close_fd(&w->lifeline);
}
