/* The warden is a small process that ends every process of a nursery if this process (the launcher)
 * dies. It waits at the reading end of a line, which is a pair of sockets; only this process has
 * the writing end:
 *
 *     this process dies (kill -9, out of memory, a bug)
 *       -> the kernel closes the line's last writing end -> the warden's read() returns
 *       -> cgroup.kill; scan /proc for processes of the nursery, kill them, wait for their deaths;
 *          repeat until two scans in a row find none
 *       -> remove the cgroup -> exit
 *
 * The warden also ends the processes of the nursery when this process lives but stands still
 * (SIGSTOP, a debugger, a frozen cgroup) until its fence: after that time other nodes may run
 * workers with the same ranks. In that case the warden goes on waiting for the end of this process.
 *
 * The warden has a deputy, which is its child. The deputy ends everything as the warden does if
 * both this process and the warden are killed, for example by pkill -9 crun. So the deputy's name
 * and command line do not contain "crun". The deputy also sweeps up what launchers before this one
 * have left. It does so SWEEP_AFTER_MS after its start, because sweeping takes processor time that
 * the start of workers needs; or at the end of the job, if that comes earlier.
 *
 * A process belongs to the nursery if it has the nursery's token in its environment, if it is in a
 * worker's Unix session, or if it descends from such a process.
 *
 * The warden is a fork in a Unix session of its own with every signal blocked, so that signals to
 * the launcher's Unix process group or terminal do not end it. Its only descriptors are its lines
 * and /dev/null. The warden may be the fork of a process with threads, so it makes system calls
 * only and never uses the heap. */
#include "agent/system/warden.h"

#include "agent/system/proc.h"
#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* the most processes that one scan of /proc reads; the array for them takes memory only as far as
 * it is used */
#define PROCESSES_MAX (1 << 18)
#define WAIT_MAX      256       /* the most killed processes for whose deaths one kill_round()
                                 * waits */
#define ROUND_MS      200       /* kill_round() stops waiting for deaths after this many ms without
                                 * a death; each call that sees no death doubles the time */
#define ROUND_MAX_MS  10000     /* longest time in ms to which ROUND_MS doubles */
#define CLEAN_SCANS   2         /* number of scans in a row that must find nothing before the warden
                                 * exits */
#define UNDECIDED_MS  10000     /* total ms for which the warden waits for processes to leave
                                 * execve */
/* in the warden: the reading end of the lifeline; in the deputy: the reading end of the deputy's
 * line */
#define LIFELINE_FD   3
#define DEPUTY_FD     4 /* in the warden: the writing end of the deputy's line */
#define DEPUTY_NAME   "nursery-deputy"
#define SWEEP_AFTER_MS 100 /* ms after its start at which the deputy sweeps up */

struct process {
    pid_t pid, parent;
    uint64_t start;
    bool ours;
};

/* The result of a scan of /proc: how many living processes belong to the nursery, and for how many
 * that is undecided. A process in the middle of execve has no environment and so no token. So a
 * scan with undecided processes does not prove that the nursery is empty. */
struct found {
    size_t ours, undecided;
};

/* ---- lines: pairs of sockets, of which a process sees when the other end is closed ---- */

/* Opens a line: line[0] is for reading, line[1] for writing. Sockets are used and not a pipe,
 * because a write to a pipe whose reader has died raises SIGPIPE. Returns 0, or -1 and sets
 * errno. */
static int open_line(int line[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line);
}

/* Wakes the reader of a line with one byte. `line` is the writing end; if it is -1, does nothing.
 * It is no error if the line is full, because its reader already has bytes that wake it. */
static void poke(int line) {
    if (line >= 0) (void) send(line, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int64_t fence_of(const struct warden_roster *roster) {
    return __atomic_load_n(&roster->fence_ms, __ATOMIC_ACQUIRE);
}

/* ---- finding the processes of the nursery ---- */

static bool in_roster(const struct warden_roster *roster, const struct proc_stat *stat) {
    for (int i = 0; i < WARDEN_SESSION_MAX; i++) {
        pid_t each = roster->session[i];
        if (each > 0 && (each == stat->session || each == stat->group)) return true;
    }
    return false;
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
        found->undecided += ours < 0;
        all[count++] = (struct process){
            .pid = pid, .parent = stat.parent, .start = stat.start, .ours = ours > 0};
    }
    proc_dir_close(&dir);
    return count;
}

/* Returns whether the process `pid` belongs to the nursery. Uses a binary search: the array is
 * sorted by pid, because the kernel lists /proc in ascending order. */
static bool is_ours(const struct process *all, size_t count, pid_t pid) {
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

/* Sets `ours` in all descendants, of any depth, of the processes in which it is set. */
static void mark_descendants(struct process *all, size_t count) {
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < count; i++) {
            if (all[i].ours || !is_ours(all, count, all[i].parent)) continue;
            all[i].ours = true;
            found = true;
        }
    }
}

/* ---- killing the processes of the nursery, in several scans of /proc ---- */

/* Sleeps for `ms` milliseconds. The warden may sleep, because it has no event loop that would be
 * blocked. It has to sleep, because there is no event to wait for: the kernel reports neither the
 * end of an execve nor, on kernels without pidfds, the death of a process that is not a child. */
static void pause_for(int ms) { (void) poll(NULL, 0, ms); }

/* Kills a process if its pid still belongs to the process that the scan read, which has the same
 * start time. Uses a pidfd if the kernel has pidfds. Returns the pidfd; or -1 if there is none. */
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

/* Waits until the killed processes are dead, or until none has died for *round_ms ms. Sets
 * *round_ms for the next call: to ROUND_MS if a process has died, otherwise to twice the value, but
 * at most ROUND_MAX_MS. The time doubles because a process in an uninterruptible sleep may live on
 * for days, and scanning /proc five times a second takes much of a processor's time. */
static void await_deaths(struct pollfd *dying, nfds_t count, int *round_ms) {
    bool any = count == 0;
    for (nfds_t left = count; left > 0;) {
        if (poll(dying, count, *round_ms) <= 0) break;
        left = 0;
        any = true;
        for (nfds_t i = 0; i < count; i++) {
            if (dying[i].fd >= 0 && dying[i].revents != 0) cr_close_fd(&dying[i].fd);
            left += dying[i].fd >= 0;
        }
    }
    *round_ms = any ? ROUND_MS : *round_ms < ROUND_MAX_MS / 2 ? 2 * *round_ms : ROUND_MAX_MS;
    for (nfds_t i = 0; i < count; i++) cr_close_fd(&dying[i].fd);
}

/* Scans /proc, kills the processes of the nursery and waits for their deaths. If the launcher has
 * set another fence than `fence_ms` during the scan, kills nothing and returns zeros, because the
 * launcher goes on and may have started new workers. */
static struct found kill_round(struct process *all, const char *token,
                               const struct warden_roster *roster, int64_t fence_ms,
                               int *round_ms) {
    struct found found = {0};
    size_t count = read_processes(all, token, roster, &found);
    if (fence_of(roster) != fence_ms) return (struct found){0};
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
    /* if the kernel has no pidfds, nothing reports the deaths of the killed processes, so wait 1 ms
     * before the next scan */
    if (found.ours > 0 && waiting == 0) pause_for(1);
    await_deaths(dying, waiting, round_ms);
    return found;
}

/* Returns how many ms to pause before the next scan, so that undecided processes can leave execve.
 * Returns 0 if there are no undecided processes, or if the earlier pauses, paused_ms in all, have
 * reached UNDECIDED_MS. The next pause is the longer, the longer the earlier pauses were. */
static int undecided_pause(const struct found *found, int paused_ms) {
    return found->undecided > 0 && paused_ms < UNDECIDED_MS ? 1 + paused_ms / 8 : 0;
}

static struct process *map_processes(void) {
    void *all = mmap(NULL, PROCESSES_MAX * sizeof(struct process), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return all == MAP_FAILED ? NULL : all;
}

static void end_everything(const char *token, struct cgroup *cgroup,
                           const struct warden_roster *roster) {
    struct process *all = map_processes();
    if (all == NULL) return;
    int populated_ms = 1; /* ms to wait for the cgroup to become empty; doubles each time */
    for (int clean = 0, paused_ms = 0, round_ms = ROUND_MS; clean < CLEAN_SCANS;) {
        cgroup_kill(cgroup);
        struct found found = kill_round(all, token, roster, fence_of(roster), &round_ms);
        clean = found.ours == 0 ? clean + 1 : 0;
        if (clean == 0) continue;
        int pause_ms = undecided_pause(&found, paused_ms);
        if (pause_ms > 0) {
            clean = 0;
            paused_ms += pause_ms;
            pause_for(pause_ms);
        }
        /* A killed process stays in the cgroup until it is dead. So scans that found nothing are
         * not counted while the cgroup has processes. */
        if (clean > 0 && cgroup_populated(cgroup)) {
            clean = 0;
            pause_for(populated_ms);
            if (populated_ms < ROUND_MAX_MS) populated_ms *= 2;
        }
    }
    (void) cgroup_remove(cgroup);
}

/* ---- the fence ---- */

/* Ends the workers because the launcher has not set a later fence in time. Does not use
 * cgroup.kill: the launcher may go on at any moment and start new workers in the cgroup, and a
 * write to cgroup.kill would end these, too, not only the processes that the scan has found. */
static void end_workers(const char *token, struct warden_roster *roster, int64_t fence_ms) {
    struct process *all = map_processes();
    if (all == NULL) return;
    __atomic_store_n(&roster->fenced, true, __ATOMIC_RELEASE);
    int clean = 0, round_ms = ROUND_MS;
    while (clean < CLEAN_SCANS && fence_of(roster) == fence_ms) {
        struct found found = kill_round(all, token, roster, fence_ms, &round_ms);
        clean = found.ours == 0 ? clean + 1 : 0;
    }
    (void) munmap(all, PROCESSES_MAX * sizeof *all);
}

/* Waits until the launcher dies. Until then, ends the workers at each fence that passes. */
static void watch(const char *token, struct warden_roster *roster) {
    struct pollfd lifeline = {.fd = LIFELINE_FD, .events = POLLIN};
    int64_t passed_ms = CR_FOREVER; /* the last fence at which workers were ended; CR_FOREVER if
                                     * none */
    char bytes[64];
    for (;;) {
        int64_t fence_ms = fence_of(roster);
        int wait_ms = cr_poll_timeout(fence_ms == passed_ms ? CR_FOREVER : fence_ms);
        int ready = poll(&lifeline, 1, wait_ms);
        if (ready > 0 && read(LIFELINE_FD, bytes, sizeof bytes) <= 0) return;
        if (ready != 0 || fence_of(roster) != fence_ms || cr_time_left_ms(fence_ms) > 0) continue;
        end_workers(token, roster, fence_ms);
        passed_ms = fence_ms;
    }
}

void warden_set_fence(struct warden *w, struct warden_roster *roster, int64_t fence_ms) {
    int64_t before_ms = roster->fence_ms;
    if (fence_ms == before_ms) return;
    __atomic_store_n(&roster->fence_ms, fence_ms, __ATOMIC_RELEASE);
    if (fence_ms < before_ms || cr_time_left_ms(before_ms) == 0) poke(w->lifeline);
}

/* ---- starting and ending the warden ---- */

/* Makes `first` the descriptor LIFELINE_FD and `second`, unless it is -1, DEPUTY_FD; opens
 * /dev/null as descriptors 0, 1 and 2, and closes all other descriptors. */
static void keep_only(int first, int second) {
    /* The numbers of `first` and `second` may be used for other descriptors below, so both are
     * duplicated first. */
    int spare = fcntl(first, F_DUPFD_CLOEXEC, DEPUTY_FD + 1);
    int spare_second = second < 0 ? -1 : fcntl(second, F_DUPFD_CLOEXEC, DEPUTY_FD + 1);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), last = LIFELINE_FD;
    for (int i = 0; i < LIFELINE_FD; i++) (void) dup2(null, i);
    (void) dup2(spare, LIFELINE_FD);
    if (spare_second >= 0 && dup2(spare_second, DEPUTY_FD) >= 0) last = DEPUTY_FD;
    if (syscall(SYS_close_range, last + 1, ~0U, 0) == 0) return;
    struct proc_dir dir; /* Linux before 5.9 has no close_range(), so close one by one */
    if (proc_dir_open(&dir, AT_FDCWD, "/proc/self/fd") < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        int fd = proc_parse_pid(name);
        if (fd > last && fd != dir.fd) (void) close(fd);
    }
    proc_dir_close(&dir);
}

/* Overwrites the command line that ps and pkill -f show for this process, which is a copy of the
 * launcher's. Two fields of /proc/self/stat say where the command line lies in memory. */
static void hide_command_line(void) {
    struct proc_stat stat;
    if (proc_stat(getpid(), &stat) < 0 || stat.args_end <= stat.args) return;
    char *args = (char *) (uintptr_t) stat.args; // NOLINT: the kernel reports it as a number
    size_t size = (size_t) (stat.args_end - stat.args);
    memset(args, 0, size);
    if (size > sizeof DEPUTY_NAME) memcpy(args, DEPUTY_NAME, sizeof DEPUTY_NAME);
}

/* Waits until the deputy's line has a byte, or until all its writing ends are closed. Returns true
 * if a byte has come, which means that the deputy is not needed any more; false if this process and
 * the warden are dead. */
static bool await_dismissal(void) {
    char byte;
    ssize_t got;
    while ((got = read(LIFELINE_FD, &byte, 1)) < 0 && errno == EINTR) continue;
    return got > 0;
}

static _Noreturn void deputy_main(int line, const char *token, struct cgroup cgroup,
                                  const struct warden_roster *roster) {
    struct pollfd over = {.fd = LIFELINE_FD, .events = POLLIN};
    (void) setsid();
    (void) prctl(PR_SET_NAME, DEPUTY_NAME);
    hide_command_line();
    keep_only(line, -1);
    bool sweeps_last = poll(&over, 1, SWEEP_AFTER_MS) > 0;
    if (!sweeps_last) cgroup_sweep(&cgroup);
    if (!await_dismissal()) {
        cgroup_reopen(&cgroup);
        end_everything(token, &cgroup, roster);
    }
    if (sweeps_last) cgroup_sweep(&cgroup);
    _exit(0);
}

/* Forks the deputy. If that fails, the warden goes on without a deputy. */
static void start_deputy(const int line[2], const char *token, const struct cgroup *cgroup,
                         struct warden_roster *roster) {
    pid_t pid = fork();
    if (pid == 0) {
        (void) close(line[1]);
        deputy_main(line[0], token, *cgroup, roster);
    }
    __atomic_store_n(&roster->deputy, pid > 0 ? pid : 0, __ATOMIC_RELEASE);
}

bool warden_has_deputy(const struct warden_roster *roster) {
    return __atomic_load_n(&roster->deputy, __ATOMIC_ACQUIRE) != 0;
}

static _Noreturn void warden_main(int lifeline, const int deputy_line[2], const char *token,
                                  struct cgroup cgroup, struct warden_roster *roster) {
    (void) setsid();
    (void) prctl(PR_SET_NAME, "crun-warden");
    (void) chdir("/");
    /* the launcher has locked this folder, and the lock must end when the launcher dies. But the
     * folder stays locked while a copy of its descriptor is open */
    cr_close_fd(&cgroup.fd);
    if (WARDEN_TEST_HOOKS != NULL && WARDEN_TEST_HOOKS->before_deputy != NULL)
        WARDEN_TEST_HOOKS->before_deputy();
    start_deputy(deputy_line, token, &cgroup, roster);
    keep_only(lifeline, deputy_line[1]);
    watch(token, roster);
    if (__atomic_load_n(&roster->is_over, __ATOMIC_ACQUIRE)) _exit(0);
    cgroup_reopen(&cgroup); /* the cgroup may have been replaced since the fork */
    end_everything(token, &cgroup, roster);
    poke(DEPUTY_FD);
    _exit(0);
}

static void close_both(int ends[2]) {
    cr_close_fd(&ends[0]);
    cr_close_fd(&ends[1]);
}

int warden_start(struct warden *w, const char *token, const struct cgroup *cgroup,
                 struct warden_roster *roster) {
    int ends[2], line[2];
    *w = (struct warden){.pidfd = -1, .lifeline = -1, .deputy_line = -1};
    if (open_line(ends) < 0) return -errno;
    if (open_line(line) < 0) {
        int rc = -errno;
        close_both(ends);
        return rc;
    }
    uint64_t all = UINT64_MAX, before = 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    pid_t pid = fork();
    if (pid == 0) {
        (void) close(ends[1]);
        /* every signal stays blocked in the warden */
        warden_main(ends[0], line, token, *cgroup, roster);
    }
    int rc = pid < 0 ? -errno : 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    cr_close_fd(&ends[0]);
    cr_close_fd(&line[0]);
    if (rc < 0) {
        close_both(ends);
        close_both(line);
        return rc;
    }
    *w = (struct warden){.pid = pid, .lifeline = ends[1], .deputy_line = line[1]};
    w->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

void warden_wait(struct warden *w) {
    if (w->pid <= 0) return;
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
    cr_close_fd(&w->pidfd);
    cr_close_fd(&w->lifeline);
}

void warden_dismiss_deputy(int *deputy_line) {
    poke(*deputy_line);
    cr_close_fd(deputy_line);
}

/* The message carries copies of the descriptors (SCM_RIGHTS). The deputy reads the message with
 * read(), which cannot receive descriptors. So the kernel closes the copies, in the deputy. */
void warden_pass_on(const struct warden *w, const int *fds, size_t count) {
    char byte = '!';
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(WARDEN_PASSED_MAX * sizeof(int))];
    } control;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    if (w->deputy_line < 0 || count > WARDEN_PASSED_MAX) return;
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                      .cmsg_len = CMSG_LEN(count * sizeof(int))};
    memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
    (void) sendmsg(w->deputy_line, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* w->pid cannot belong to another process: the warden is a child of this process, and the kernel
 * gives its pid to no other process before this process has waited for it. */
void warden_kill(struct warden *w) {
    warden_dismiss_deputy(&w->deputy_line);
    if (w->pid > 0) (void) kill(w->pid, SIGKILL);
}

void warden_retire(struct warden *w, struct warden_roster *roster) {
    __atomic_store_n(&roster->is_over, true, __ATOMIC_RELEASE);
    warden_dismiss_deputy(&w->deputy_line);
    warden_release(w);
}

void warden_release(struct warden *w) {
    w->pid = 0;
    cr_close_fd(&w->deputy_line);
    cr_close_fd(&w->pidfd);
    cr_close_fd(&w->lifeline);
}
