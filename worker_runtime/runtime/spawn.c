/* crunrt_spawn(): starts workers without a launcher. It forks one child per worker, hosts the store
 * of these workers, and waits until all children have ended. When a child fails, it ends the other
 * children.
 *
 * The children are forked before the store is opened, because the store starts a thread: a lock
 * that this thread held during a fork() would stay locked in the child for ever. So each child
 * first waits until it can read the store's port from a pipe. */
#include "worker_runtime/runtime/runtime.h"

#include "base/cleanup.h"
#include "base/time/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAWN_MAX   1024
#define SPAWN_GRACE INT64_C(5000) /* grace: ms between SIGTERM and SIGKILL */
#define REASON_MAX  512           /* longest text, with its NUL, of a worker's last error */

struct child {
    pid_t pid;
    int pidfd;           /* pidfd of the child; -1 after the child's end */
    int status;          /* status as waitpid() stores it; valid if pidfd is -1 */
    bool is_status_lost; /* true if `status` is unknown because other code of this process has
                          * called waitpid() for the child */
};

struct spawn {
    crunrt_spawn_fn fn;
    void *arg;
    int count, started;
    int gate[2]; /* pipe from which each child reads the store's port; the parent writes the port
                  * once per child */
    struct child *children;
    /* reasons[rank] is the last error of a worker that has returned a value other than 0. The
     * memory is shared with the children, each of which writes only its own text. */
    char (*reasons)[REASON_MAX];
    struct hosted_store store;
};

/* ---- the child: run_child() ---- */

static void set_number(const char *name, int n) {
    char text[16];
    (void) snprintf(text, sizeof(text), "%d", n);
    (void) setenv(name, text, 1);
}

static void run_child(const struct spawn *s, int rank, pid_t parent) {
    uint16_t port = 0;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* If the parent has died before prctl(), the kernel will not kill this child, so it ends
     * now. */
    if (getppid() != parent) _exit(1);
    (void) close(s->gate[1]);
    if (read(s->gate[0], &port, sizeof(port)) != (ssize_t) sizeof(port)) _exit(1);
    (void) close(s->gate[0]);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", s->count);
    set_number("LOCAL_WORLD_SIZE", s->count);
    set_number("MASTER_PORT", port);
    (void) setenv("MASTER_ADDR", "127.0.0.1", 1);
    (void) setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    (void) setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    /* The channel of an agent that has started the parent is for the parent only. */
    (void) unsetenv(CHANNEL_VARIABLE);
    *rt_last_error() = (struct cr_error){0}; /* clears the parent's error, which fork() copied */
    int rc = s->fn(rank, s->arg);
    const char *reason = rt_last_error()->text;
    if (rc != 0) (void) snprintf(s->reasons[rank], REASON_MAX, "%.*s", REASON_MAX - 1, reason);
    (void) fflush(NULL);
    /* An exit status has only 8 bits. Without this expression, a result such as 256 would look like
     * success. */
    _exit(rc != 0 && (rc & 0xff) == 0 ? 1 : rc & 0xff);
}

/* ---- the parent: crunrt_spawn() ---- */

static int start_children(struct spawn *s) {
    pid_t parent = getpid();
    /* Without fflush(), each child would inherit the parent's buffered output, and write it once
     * more. */
    (void) fflush(NULL);
    for (; s->started < s->count; s->started++) {
        struct child *c = &s->children[s->started];
        c->pid = fork();
        if (c->pid < 0) return cr_fail_errno(rt_last_error(), "start worker %d", s->started);
        if (c->pid == 0) run_child(s, s->started, parent);
        c->pidfd = (int) syscall(SYS_pidfd_open, c->pid, 0);
        if (c->pidfd < 0) return cr_fail_errno(rt_last_error(), "watch worker %d", s->started++);
    }
    return 0;
}

static int open_store(struct spawn *s) {
    uint16_t port = 0;
    int rc = hosted_store_open(&s->store, 0, &port, rt_last_error());
    for (int i = 0; rc == 0 && i < s->count; i++) {
        if (write(s->gate[1], &port, sizeof(port)) != (ssize_t) sizeof(port)) {
            rc = cr_fail_errno(rt_last_error(), "let worker %d begin", i);
        }
    }
    return rc;
}

/* Waits until a child has ended, and returns its index. Returns -1 if no child is left, or -2 if
 * the deadline has passed. */
static int wait_for_one(struct spawn *s, int64_t deadline_ms) {
    struct pollfd fds[SPAWN_MAX];
    int left = 0;
    for (int i = 0; i < s->started; i++) {
        fds[i] = (struct pollfd){.fd = s->children[i].pidfd, .events = POLLIN};
        left += s->children[i].pidfd >= 0;
    }
    if (left == 0) return -1;
    int n = 0;
    do {
        n = poll(fds, (nfds_t) s->started, cr_poll_timeout(deadline_ms));
    } while (n < 0 && errno == EINTR);
    for (int i = 0; n > 0 && i < s->started; i++) {
        struct child *c = &s->children[i];
        if (c->pidfd < 0 || fds[i].revents == 0) continue;
        c->is_status_lost = waitpid(c->pid, &c->status, 0) != c->pid;
        cr_close_fd(&c->pidfd);
        return i;
    }
    return -2;
}

static void end_children(struct spawn *s) {
    static const int signals[] = {SIGTERM, SIGKILL};
    for (size_t k = 0; k < CR_ARRAY_LEN(signals); k++) {
        for (int i = 0; i < s->started; i++) {
            if (s->children[i].pidfd >= 0) (void) kill(s->children[i].pid, signals[k]);
        }
        int64_t deadline = signals[k] == SIGKILL ? CR_FOREVER : cr_deadline_ms(SPAWN_GRACE);
        while (wait_for_one(s, deadline) >= 0) {
        }
    }
}

static int wait_for_children(struct spawn *s) {
    for (;;) {
        int i = wait_for_one(s, CR_FOREVER);
        if (i == -1) return 0;
        int status = i >= 0 ? s->children[i].status : 0;
        if (i >= 0 && s->children[i].is_status_lost) {
            return cr_fail(rt_last_error(), -ECHILD,
                           "worker %d ended, and how is not known: the program takes the status of "
                           "children that it did not start",
                           i);
        }
        if (i < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        if (WIFSIGNALED(status)) {
            return cr_fail(rt_last_error(), -ECHILD, "worker %d was killed by signal %d (SIG%s)", i,
                           WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
        }
        /* the worker can write this memory at any time, so the NUL of its text may be missing */
        char reason[REASON_MAX];
        (void) snprintf(reason, sizeof(reason), "%.*s", REASON_MAX - 1, s->reasons[i]);
        return cr_fail(rt_last_error(), -ECHILD, "worker %d returned %d%s%s", i,
                       WEXITSTATUS(status), reason[0] != '\0' ? "; its last error: " : "", reason);
    }
}

static void spawn_done(struct spawn *s) {
    struct cr_error kept = *rt_last_error();
    /* A child that still waits for the port ends when both ends of the pipe are closed. */
    cr_close_fd(&s->gate[0]);
    cr_close_fd(&s->gate[1]);
    end_children(s);
    hosted_store_close(&s->store);
    if (s->reasons != NULL) (void) munmap(s->reasons, (size_t) s->count * REASON_MAX);
    free(s->children);
    *rt_last_error() = kept;
}

static int new_reasons(struct spawn *s) {
    void *memory = mmap(NULL, (size_t) s->count * REASON_MAX, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return cr_fail_errno(rt_last_error(), "start workers");
    s->reasons = memory;
    return 0;
}

static bool statuses_are_lost(void) {
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) < 0) return false;
    bool ignored = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
    return ignored || (now.sa_flags & SA_NOCLDWAIT) != 0;
}

int crunrt_spawn(crunrt_spawn_fn fn, int nprocs, void *arg) {
    if (fn == NULL) return rt_fail_null("start workers", "the function");
    if (nprocs < 1 || nprocs > SPAWN_MAX) {
        return cr_fail(rt_last_error(), -EINVAL, "start %d workers: 1 to %d can be started", nprocs,
                       SPAWN_MAX);
    }
    if (statuses_are_lost()) {
        return cr_fail(rt_last_error(), -EINVAL,
                       "start workers: the program ignores SIGCHLD, so their exit statuses would "
                       "be lost; set it to SIG_DFL first");
    }
    struct spawn s = {.fn = fn, .arg = arg, .count = nprocs, .gate = {-1, -1}};
    s.children = calloc((size_t) nprocs, sizeof(*s.children));
    if (s.children == NULL)
        return cr_fail(rt_last_error(), -ENOMEM, "start workers: out of memory");
    for (int i = 0; i < nprocs; i++) s.children[i].pidfd = -1;
    int rc = pipe2(s.gate, O_CLOEXEC) < 0 ? cr_fail_errno(rt_last_error(), "start workers") : 0;
    if (rc == 0) rc = new_reasons(&s);
    if (rc == 0) rc = start_children(&s);
    if (rc == 0) rc = open_store(&s);
    if (rc == 0) rc = wait_for_children(&s);
    spawn_done(&s);
    return rc;
}
