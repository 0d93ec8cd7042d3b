/* One clone and one exec, in the time that the kernel needs for them.
 *
 * The child borrows our memory (CLONE_VM) on a stack of its own while the calling thread sleeps until
 * it has executed the program (CLONE_VFORK): no page table is copied, and a failure comes back as a
 * plain store to memory. What sharing demands:
 *   - every signal is blocked around it, so that no handler of ours runs in the child;
 *   - the child makes system calls only, from a prepared request;
 *   - clone3 with a stack needs a few instructions of assembly: the child cannot return.
 *
 * Where that is not to be had (no clone3, an architecture without the assembly below, a sandbox that
 * refuses it) a fork does, and the failure comes back through a close-on-exec pipe. Sanitizer builds
 * fork too: their shadow state belongs to one address space and one stack a thread. */
#include "agent/spawn_internal.h"

#include "agent/proc_internal.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK_BYTES (32 * 1024)
#define KERNEL_SIGSET     8  /* bytes of the kernel's sigset_t */
#define SIGNAL_LAST       64 /* the kernel's last signal */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* How far the child came; the names are what the parent says. */
enum step { STEP_CLONE, STEP_SESSION, STEP_STDIO, STEP_EXEC };
static const char *const step_name[] = {"start", "make a session for", "redirect", "execute"};

struct report {
    int code;       /* 0, or the negative errno of `step` */
    enum step step; /* STEP_CLONE: not one instruction of the child was executed */
};

/* What the child works from. In the borrowed-memory case `report` is the parent's own. */
struct child {
    const struct spawn_request *request;
    struct report report;
    int report_fd; /* -1: memory is shared, nothing to write */
    pid_t parent;
};

/* ---- the child: system calls only, from here to exec ---- */

static _Noreturn void child_fail(struct child *c, enum step step) {
    struct report report = {.code = -errno, .step = step};
    c->report = report;
    if (c->report_fd >= 0) (void) !write(c->report_fd, &report, sizeof report);
    _exit(127);
}

/* The C library hides two real-time signals; the kernel's own calls reach every one. */
static void reset_signals(void) {
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        uint64_t mask;
    } standard = {.handler = SIG_DFL};
    for (int sig = 1; sig <= SIGNAL_LAST; sig++)
        (void) syscall(SYS_rt_sigaction, sig, &standard, NULL, KERNEL_SIGSET);
    uint64_t none = 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, KERNEL_SIGSET);
}

/* Moves the three streams to 0, 1, 2; a source that is itself below 3 is lifted out of the way first,
 * so that any permutation works. */
static int place_stdio(const int wanted[3]) {
    int from[3];
    for (int i = 0; i < 3; i++) {
        from[i] = wanted[i];
        if (from[i] < 0 || from[i] > 2 || from[i] == i) continue;
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3);
        if (from[i] < 0) return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0) continue;
        if (from[i] == i) {
            if (fcntl(i, F_SETFD, 0) < 0) return -1;
        } else if (dup2(from[i], i) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Before Linux 5.11 there is no close_range with this flag: walk our own descriptors. */
static void close_on_exec_one_by_one(void) {
    struct proc_dir dir;
    if (proc_dir_open(&dir, AT_FDCWD, "/proc/self/fd") < 0) return;
    const char *name;
    while ((name = proc_dir_next(&dir)) != NULL) {
        int fd = proc_parse_pid(name);
        if (fd > 2) (void) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    proc_dir_close(&dir);
}

static int child_main(void *arg) {
    struct child *c = arg;
    c->report.step = STEP_SESSION;
    /* A parent that died before prctl sends no signal any more: look once, afterwards. */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != c->parent) _exit(127);
    if (setsid() < 0) child_fail(c, STEP_SESSION);
    if (place_stdio(c->request->stdio) < 0) child_fail(c, STEP_STDIO);
    if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0) close_on_exec_one_by_one();
    reset_signals();
    (void) execve(c->request->path, c->request->argv, c->request->envp);
    child_fail(c, STEP_EXEC);
}

/* ---- the parent ---- */

static uint64_t block_all_signals(void) {
    uint64_t all = UINT64_MAX, before = 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, KERNEL_SIGSET);
    return before;
}

static void restore_signals(uint64_t before) {
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGSET);
}

static void bury(struct spawned *s) {
    cr_close_fd(&s->pidfd);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) continue;
}

#if !defined(SANITIZED) && (defined(__x86_64__) || defined(__aarch64__))
#define HAVE_BORROWING_CLONE 1

/* clone3; in the child, `run` on the new stack, never to return. */
static long clone3_run(struct clone_args *args, int (*run)(void *), void *arg) {
#if defined(__x86_64__)
    long ret = SYS_clone3;
    register int (*entry)(void *) __asm__("r8") = run;
    register void *entry_arg __asm__("r9") = arg;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "ud2\n"
                     "1:"
                     : "+a"(ret)
                     : "D"(args), "S"(sizeof *args), "r"(entry), "r"(entry_arg)
                     : "rcx", "r11", "memory", "cc");
    return ret;
#else
    register long number __asm__("x8") = SYS_clone3;
    register void *first __asm__("x0") = args;
    register size_t second __asm__("x1") = sizeof *args;
    register int (*entry)(void *) __asm__("x9") = run;
    register void *entry_arg __asm__("x10") = arg;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x0, x10\n\t"
                     "blr x9\n\t"
                     "brk #0\n"
                     "1:"
                     : "+r"(first)
                     : "r"(number), "r"(second), "r"(entry), "r"(entry_arg)
                     : "x30", "memory", "cc");
    return (long) first;
#endif
}

static int spawn_borrowing(struct child *c, struct spawned *out) {
    _Alignas(16) char stack[CHILD_STACK_BYTES];
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD,
        .pidfd = (uintptr_t) &out->pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t) stack,
        .stack_size = sizeof stack,
    };
    if (c->request->cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (unsigned long long) c->request->cgroup_fd;
    }
    long pid = clone3_run(&args, child_main, c);
    if (pid < 0) return (int) pid;
    out->pid = (pid_t) pid;
    if (c->report.step != STEP_CLONE || c->request->cgroup_fd < 0) return 0;
    /* The kernel kills at birth whoever starts in a cgroup that was ended by cgroup.kill more often
     * than our own was (seen in Linux 6.18). */
    bury(out);
    return -ENOTSUP;
}
#endif

/* The other way: fork, and a pipe that exec closes. */
static int spawn_forking(struct child *c, struct spawned *out) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    CR_AUTO_FD int report_in = ends[0];
    c->report_fd = ends[1];
    pid_t pid = fork();
    if (pid == 0) child_main(c);
    int code = pid < 0 ? -errno : 0;
    (void) close(ends[1]);
    if (code < 0) return code;
    struct report report;
    ssize_t got;
    do {
        got = read(report_in, &report, sizeof report);
    } while (got < 0 && errno == EINTR);
    if (got == (ssize_t) sizeof report) c->report = report;
    out->pid = pid;
    out->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

static int spawn_any(struct child *c, struct spawned *out) {
    const struct spawn_test_hooks *hooks = SPAWN_TEST_HOOKS;
#ifdef HAVE_BORROWING_CLONE
    if (hooks == NULL || !hooks->force_fork) {
        int code = spawn_borrowing(c, out);
        /* What an old kernel or a sandbox answers; anything else is the answer. */
        if (code != -ENOSYS && code != -EPERM && code != -EINVAL && code != -E2BIG) return code;
    }
#endif
    if (c->request->cgroup_fd >= 0) return -ENOTSUP; /* a forked child would start outside */
    int code = spawn_forking(c, out);
    if (code == 0 && hooks != NULL && hooks->force_no_pidfd) cr_close_fd(&out->pidfd);
    return code;
}

int spawn_process(const struct spawn_request *request, struct spawned *out, const char **what) {
    struct child c = {.request = request, .report_fd = -1, .parent = getpid()};
    struct spawned s = {.pid = -1, .pidfd = -1};
    uint64_t before = block_all_signals();
    int code = spawn_any(&c, &s);
    restore_signals(before);
    *what = step_name[c.report.step];
    if (code < 0) return request->cgroup_fd >= 0 ? -ENOTSUP : code;
    if (c.report.code < 0) {
        bury(&s);
        return c.report.code;
    }
    if (SPAWN_TEST_HOOKS != NULL && SPAWN_TEST_HOOKS->after_clone != NULL)
        SPAWN_TEST_HOOKS->after_clone(s.pid);
    *out = s;
    return 0;
}
