/* Starts a process with as little work as possible, and lets several starts overlap.
 *
 * The child runs on the memory of its parent (CLONE_VM) with a stack of its own. No page table is
 * copied, and the child reports a failure by storing it in that memory. vfork would suspend the
 * parent until the child has executed the program. With CLONE_VM alone the parent goes on, and
 * clones the next child while the first one runs on another processor. When the child stops using
 * the memory, by exec or by death, the kernel sets a word to 0 and wakes the parent
 * (CLONE_CHILD_CLEARTID, a futex). Sharing memory has these consequences:
 *
 *   - The child at first also shares the parent's table of descriptors, because copying the table
 *     would be slow. close_range(CLOSE_RANGE_UNSHARE) then gives the child a table of its own.
 *   - Every signal is blocked around the clone, because no signal handler of the parent may run in
 *     the child.
 *   - The child writes only to its own slot, and makes system calls without the C library, because
 *     the C library would write to errno, a variable of the parent's thread.
 *   - clone3 with a new stack needs a few instructions of assembly, because the child cannot return
 *     from the function that called it.
 *
 * Where a child cannot run on the memory of its parent, it is forked, and a close-on-exec pipe
 * carries its report: on kernels without clone3 or close_range, on processors for which there is no
 * assembly below, in sandboxes that refuse clone3, and in sanitizer builds, whose shadow memory
 * assumes one stack per thread and one address space. */
#include "agent/system/spawn.h"

#include "agent/system/proc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL_SIGSET 8  /* bytes of the kernel's sigset_t */
#define SIGNAL_LAST   64 /* the largest signal number of the kernel */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if !defined(SANITIZED) && (defined(__x86_64__) || defined(__aarch64__))
#define MAY_BORROW 1
#else
#define MAY_BORROW 0
#endif

static const char *const step_name[] = {"start", "make a session for", "move", "redirect",
                                        "set the CPUs of", "execute"};

/* ---- system calls without the C library ---- */

/* Makes a system call without touching errno. Returns its result, or a negative errno. */
static inline long kernel_call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long ret;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return ret;
#elif defined(__aarch64__)
    register long nr __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    __asm__ volatile("svc #0"
                     : "+r"(first)
                     : "r"(nr), "r"(second), "r"(third), "r"(fourth)
                     : "memory", "cc");
    return first;
#else
    /* on this processor children are forked, so errno here is the child's own copy */
    long ret = syscall(number, a, b, c, d);
    return ret < 0 ? -errno : ret;
#endif
}

/* Calls clone3. The child calls run(slot) on its new stack; `run` must not return. In the parent,
 * returns the child's pid or a negative errno. */
static long clone3_run(struct clone_args *args, void (*run)(struct spawn_slot *),
                       struct spawn_slot *slot) {
#if !MAY_BORROW
    (void) args, (void) run, (void) slot;
    return -ENOSYS;
#elif defined(__x86_64__)
    long ret = SYS_clone3;
    register void (*entry)(struct spawn_slot *) __asm__("r8") = run;
    register struct spawn_slot *entry_arg __asm__("r9") = slot;
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
    register void (*entry)(struct spawn_slot *) __asm__("x9") = run;
    register struct spawn_slot *entry_arg __asm__("x10") = slot;
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

/* ---- the child: system calls only, from here to exec ---- */

static _Noreturn void child_exit(void) {
    for (;;) (void) kernel_call(SYS_exit_group, 127, 0, 0, 0);
}

static _Noreturn void child_fail(struct spawn_slot *slot, enum spawn_step step, long rc) {
    struct spawn_report report = {.rc = (int) rc, .step = step};
    slot->report = report;
    if (slot->report_out >= 0)
        (void) kernel_call(SYS_write, slot->report_out, (long) &report, sizeof report, 0);
    child_exit();
}

/* Sets all signals to their default and unblocks them. It uses system calls, because the C library
 * does not let a program change two real-time signals that it keeps for itself. */
static void reset_signals(void) {
    /* an empty struct sigaction in the kernel's layout: SIG_DFL, no flags, empty mask */
    const uint64_t standard[4] = {0};
    const uint64_t none = 0;
    for (int sig = 1; sig <= SIGNAL_LAST; sig++)
        (void) kernel_call(SYS_rt_sigaction, sig, (long) standard, 0, KERNEL_SIGSET);
    (void) kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, (long) &none, 0, KERNEL_SIGSET);
}

static void set_file_limit(const struct rlimit *files) {
    const uint64_t limits[2] = {files->rlim_cur, files->rlim_max};
    (void) kernel_call(SYS_prlimit64, 0, RLIMIT_NOFILE, (long) limits, 0);
}

/* Makes the descriptors in wanted[] the child's descriptors 0, 1 and 2; -1 leaves a descriptor as
 * it is. A descriptor in wanted[] that is itself 0, 1 or 2 is first duplicated to a higher number.
 * Otherwise it might be overwritten before it is moved. Returns 0 or a negative errno. */
static long place_stdio(const int wanted[3]) {
    int from[3];
    for (int i = 0; i < 3; i++) {
        from[i] = wanted[i];
        if (from[i] < 0 || from[i] > 2 || from[i] == i) continue;
        from[i] = (int) kernel_call(SYS_fcntl, from[i], F_DUPFD_CLOEXEC, 3, 0);
        if (from[i] < 0) return from[i];
    }
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0) continue;
        long rc = from[i] == i ? kernel_call(SYS_fcntl, i, F_SETFD, 0, 0)
                               : kernel_call(SYS_dup3, from[i], i, 0, 0);
        if (rc < 0) return rc;
    }
    return 0;
}

/* Does the same as close_range() with CLOSE_RANGE_CLOEXEC, on Linux before 5.11, which lacks that
 * flag. The C library may be used here, because on these kernels children are forked. */
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

/* Gives the child a table of descriptors of its own that ends at the highest descriptor it needs.
 * With hundreds of workers, a start would otherwise spend most of its time on copying and closing
 * the pipes of all other workers. Returns 0 or a negative errno. */
static long leave_shared_files(const int stdio[3]) {
    unsigned top = 2;
    for (int i = 0; i < 3; i++)
        if (stdio[i] > (int) top) top = (unsigned) stdio[i];
    return kernel_call(SYS_close_range, top + 1, ~0U, CLOSE_RANGE_UNSHARE, 0);
}

/* Moves the calling child, which was forked, into the cgroup. Returns 0 or a negative errno. */
static long enter_cgroup(int cgroup_fd) {
    long fd = kernel_call(SYS_openat, cgroup_fd, (long) "cgroup.procs", O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return fd;
    /* writing "0" moves the calling process */
    long written = kernel_call(SYS_write, fd, (long) "0", 1, 0);
    (void) kernel_call(SYS_close, fd, 0, 0, 0);
    return written < 0 ? written : 0;
}

static void child_main(struct spawn_slot *slot) {
    const struct spawn_request *request = &slot->request;
    slot->report.step = SPAWN_SESSION;
    /* The kernel sends no parent-death signal if the parent died before prctl. So the child checks
     * after prctl that its parent still lives. */
    (void) kernel_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    if (kernel_call(SYS_getppid, 0, 0, 0, 0) != slot->parent) child_exit();
    /* Yama, a part of the kernel, may allow only ancestors to trace a process. This call also
     * allows crun's other descendants: the inspector, a child of crun, reads the stacks of a hung
     * worker. */
    (void) kernel_call(SYS_prctl, PR_SET_PTRACER, slot->parent, 0, 0);
    long rc = kernel_call(SYS_setsid, 0, 0, 0, 0);
    if (rc < 0) child_fail(slot, SPAWN_SESSION, rc);
    bool is_forked = slot->report_out >= 0;
    if (is_forked && request->cgroup_fd >= 0) rc = enter_cgroup(request->cgroup_fd);
    if (rc < 0) child_fail(slot, SPAWN_CGROUP, rc);
    rc = slot->uses_our_memory ? leave_shared_files(request->stdio) : 0;
    if (rc == 0) rc = place_stdio(request->stdio);
    if (rc < 0) child_fail(slot, SPAWN_STDIO, rc);
    if (kernel_call(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC, 0) < 0)
        close_on_exec_one_by_one();
    if (request->files != NULL) set_file_limit(request->files);
    if (request->cpus != NULL) {
        rc = kernel_call(SYS_sched_setaffinity, 0, sizeof *request->cpus, (long) request->cpus, 0);
        if (rc < 0) child_fail(slot, SPAWN_CPUS, rc);
    }
    reset_signals();
    rc = kernel_call(SYS_execve, (long) request->path, (long) request->argv, (long) request->envp,
                     0);
    child_fail(slot, SPAWN_EXEC, rc);
}

/* ---- the parent: spawn_begin() and spawn_finish() ---- */

static uint64_t block_all_signals(void) {
    uint64_t all = UINT64_MAX, before = 0;
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, KERNEL_SIGSET);
    return before;
}

static void restore_signals(uint64_t before) {
    (void) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGSET);
}

bool spawn_can_borrow(void) {
    return MAY_BORROW && syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

static int begin_borrowing(struct spawn_slot *slot) {
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_CHILD_CLEARTID,
        .pidfd = (uintptr_t) &slot->child.pidfd,
        .child_tid = (uintptr_t) &slot->uses_our_memory,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t) slot->stack,
        .stack_size = sizeof slot->stack,
    };
    if (slot->request.cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (unsigned long long) slot->request.cgroup_fd;
    }
    slot->uses_our_memory = 1;
    long pid = clone3_run(&args, child_main, slot);
    if (pid < 0) slot->uses_our_memory = 0;
    if (pid < 0) return (int) pid;
    slot->child.pid = (pid_t) pid;
    return 0;
}

/* Forks the child, with a pipe for its report. A successful exec closes the child's end of the pipe
 * without a report, and the parent's read() returns 0 bytes. */
static int begin_forking(struct spawn_slot *slot) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    slot->report_out = ends[1];
    pid_t pid = fork();
    if (pid == 0) child_main(slot);
    int rc = pid < 0 ? -errno : 0;
    slot->report_out = -1;
    (void) close(ends[1]);
    if (rc < 0) {
        (void) close(ends[0]);
        return rc;
    }
    slot->report_in = ends[0];
    slot->child.pid = pid;
    slot->child.pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

static int begin(struct spawn_slot *slot, bool *borrow) {
    const struct spawn_test_hooks *hooks = SPAWN_TEST_HOOKS;
    if (*borrow && (hooks == NULL || !hooks->force_fork)) {
        int rc = begin_borrowing(slot);
        if (rc >= 0) return rc;
        /* -ENOMEM (no memory) and -EAGAIN (limit of processes) are not caused by the cgroup, so a
         * start without the cgroup would fail, too */
        if (rc == -ENOMEM || rc == -EAGAIN) return rc;
        if (slot->request.cgroup_fd >= 0 && rc != -ENOSYS) {
            slot->report.rc = rc;
            return -ENOTSUP;
        }
        if (rc != -ENOSYS && rc != -EPERM && rc != -EINVAL) return rc;
        /* an old kernel or a sandbox refuses clone3: children are forked from now on */
        *borrow = false;
    }
    int rc = begin_forking(slot);
    if (rc == 0 && hooks != NULL && hooks->force_no_pidfd) cr_close_fd(&slot->child.pidfd);
    return rc;
}

int spawn_begin(struct spawn_slot *slot, const struct spawn_request *request, bool *borrow) {
    slot->request = *request;
    slot->report = (struct spawn_report){0};
    slot->child = (struct spawned){.pid = -1, .pidfd = -1};
    slot->parent = getpid();
    slot->report_in = slot->report_out = -1;
    uint64_t before = block_all_signals();
    int rc = begin(slot, borrow);
    restore_signals(before);
    if (rc == 0 && SPAWN_TEST_HOOKS != NULL && SPAWN_TEST_HOOKS->after_clone != NULL)
        SPAWN_TEST_HOOKS->after_clone(slot->child.pid);
    return rc;
}

static void await_exec(struct spawn_slot *slot) {
    while (__atomic_load_n(&slot->uses_our_memory, __ATOMIC_ACQUIRE) != 0)
        (void) syscall(SYS_futex, &slot->uses_our_memory, FUTEX_WAIT, 1, NULL);
}

/* Reads a forked child's report into slot->report. If the pipe was closed without a report, exec
 * has succeeded, and slot->report says that there was no error. */
static void read_report(struct spawn_slot *slot) {
    struct spawn_report report;
    ssize_t got;
    do {
        got = read(slot->report_in, &report, sizeof report);
    } while (got < 0 && errno == EINTR);
    slot->report =
        got == (ssize_t) sizeof report ? report : (struct spawn_report){.step = SPAWN_EXEC};
    cr_close_fd(&slot->report_in);
}

int spawn_finish(struct spawn_slot *slot, const char **what) {
    if (slot->report_in >= 0)
        read_report(slot);
    else
        await_exec(slot);
    *what = step_name[slot->report.step];
    int rc = slot->report.rc;
    /* If the child executed no instruction, the kernel has killed it: Linux 6.18 kills a new
     * process if cgroup.kill was used more often on its cgroup than on the parent's cgroup. A
     * forked child may also have failed to enter the cgroup. For -ENOTSUP the caller repeats the
     * start without the cgroup. */
    bool is_outside = slot->report.step == SPAWN_CLONE || slot->report.step == SPAWN_CGROUP;
    if (is_outside && slot->request.cgroup_fd >= 0) rc = -ENOTSUP;
    if (rc < 0)
        while (waitpid(slot->child.pid, NULL, 0) < 0 && errno == EINTR) continue;
    return rc;
}
