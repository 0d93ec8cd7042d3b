/* The fork server: starts a Python process that imports modules once, and obtains workers from it
 * by fork(2). See nursery.h. The server is a kept worker of the nursery, so it lives through the
 * ends of rounds and dies with this process. fork_server_program.h has its program, and the
 * protocol between it and this file. */
#include "agent/process/fork_server_program.h"
#include "agent/process/nursery_internal.h"
#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/files/write_all.h"
#include "base/log/log.h"
#include "base/time/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DESCRIPTORS 5    /* descriptors in a request; fork_server_program.h lists them */
#define FORK_MS     2000 /* longest wait in ms for the forks of one fork_server_start() */
#define END_MS      2000 /* longest wait in ms for the end of the server after SIGKILL */

struct fork_server {
    struct nursery *nursery;
    struct worker_process *process; /* NULL when the server has ended */
    /* the launcher's end of the control connection; -1 if it is closed */
    int control;
    bool is_ready;                  /* true if the server has imported the modules */
    char *python;                   /* path of the interpreter */
};

/* ---- opening and closing ---- */

static char **server_arguments(const char *python, char *const *modules) {
    size_t count = 0;
    while (modules[count] != NULL) count++;
    const char **argv = calloc(count + 5, sizeof(*argv));
    if (argv == NULL) return NULL;
    argv[0] = python;
    argv[1] = "-u";
    argv[2] = "-c";
    argv[3] = fork_server_program;
    memcpy(argv + 4, modules, count * sizeof(*argv));
    return (char **) argv;
}

static int start_server(struct fork_server *fs, char *const *modules, char *const *envp,
                        struct cr_error *err) {
    int ends[2];
    CR_AUTO_FREE char **argv = server_arguments(fs->python, modules);
    if (argv == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return cr_fail_errno(err, "cannot make a connection");
    }
    fs->control = ends[0];
    const struct worker_spawn how = {.path = fs->python, .argv = argv, .envp = envp,
                                     .stdin_fd = ends[1], .stdout_fd = -1, .stderr_fd = -1};
    int rc = worker_spawn(fs->nursery, &how, NULL, &fs->process, err);
    cr_close_fd(&ends[1]);
    if (rc == 0) worker_keep(fs->process, true);
    return rc;
}

int fork_server_open(struct nursery *n, const char *python, char *const *modules,
                     char *const *envp, struct fork_server **out, struct cr_error *err) {
    struct fork_server *fs = calloc(1, sizeof(*fs));
    if (fs == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    *fs = (struct fork_server){.nursery = n, .control = -1, .python = strdup(python)};
    int rc = fs->python != NULL ? start_server(fs, modules, envp, err)
                                : cr_fail(err, -ENOMEM, "no memory left");
    if (rc < 0) fork_server_close(fs);
    else *out = fs;
    return rc;
}

/* Ends the server without a call of on_exit. If the server lives, kills it and waits END_MS at most
 * for its death. The server does nothing but wait, so it dies at once. If it does not, it is left
 * to the warden. */
static void end_server(struct fork_server *fs) {
    struct worker_process *w = fs->process;
    siginfo_t info = {0};
    if (worker_is_dead(w)) {
        TAILQ_REMOVE(&fs->nursery->dead, w, entry);
        free(w);
        return;
    }
    (void) kill(-w->how.pid, SIGKILL);
    struct pollfd end = {.fd = w->pidfd, .events = POLLIN};
    if (w->pidfd < 0 || poll(&end, 1, END_MS) > 0) {
        (void) waitid(P_PID, (id_t) w->how.pid, &info, WEXITED);
    }
    worker_unregister(w);
    free(w);
}

bool fork_server_gone(struct fork_server *fs) {
    fs->process = NULL;
    cr_close_fd(&fs->control);
    return fs->is_ready;
}

void fork_server_release(struct fork_server *fs) {
    if (fs->process != NULL) worker_keep(fs->process, false);
}

void fork_server_close(struct fork_server *fs) {
    if (fs == NULL) return;
    cr_close_fd(&fs->control);
    if (fs->process != NULL) end_server(fs);
    free(fs->python);
    free(fs);
}

/* ---- starting workers ---- */

static bool has_become_ready(struct fork_server *fs) {
    char word;
    if (!fs->is_ready) fs->is_ready = recv(fs->control, &word, 1, MSG_DONTWAIT) == 1;
    return fs->is_ready;
}

/* Returns whether the worker can be a fork of the server. It can if it runs the server's
 * interpreter with -u and with a script, a module or a program text. It cannot if its script is on
 * stdin ("-"). */
static bool can_become(const struct fork_server *fs, const struct worker_spawn *how) {
    return strcmp(how->path, fs->python) == 0 && how->argv[1] != NULL &&
           strcmp(how->argv[1], "-u") == 0 && how->argv[2] != NULL &&
           strcmp(how->argv[2], "-") != 0;
}

static int append_words(struct cr_buffer *text, char *const *words) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && words[i] != NULL; i++) {
        rc = cr_buffer_append(text, words[i], strlen(words[i]) + 1);
    }
    return rc;
}

/* Appends the description of the worker that the server reads (fork_server_program.h). Returns 0 or
 * -ENOMEM. */
static int describe(const struct fork_server *fs, const struct worker_spawn *how,
                    struct cr_buffer *text) {
    size_t count = 0;
    while (how->argv[count] != NULL) count++;
    int rc = cr_buffer_printf(text, "%d", (int) getpid());
    if (rc == 0) rc = cr_buffer_append(text, "", 1);
    const char *comma = "";
    for (uint32_t cpu = 0; rc == 0 && how->cpus != NULL; cpu++) {
        cpu = cr_cpu_next(how->cpus, cpu);
        if (cpu == CR_CPUS_MAX) break;
        rc = cr_buffer_printf(text, "%s%u", comma, cpu);
        comma = ",";
    }
    if (rc == 0) rc = cr_buffer_append(text, "", 1);
    if (rc == 0) rc = cr_buffer_printf(text, "%zu", count);
    if (rc == 0) rc = cr_buffer_append(text, "", 1);
    if (rc == 0) rc = append_words(text, how->argv);
    if (rc == 0) rc = append_words(text, how->envp);
    return rc < 0 ? rc : append_words(text, (char *[]){fs->nursery->variable, NULL});
}

/* Returns the descriptor of a file with the description of the worker, or -1. */
static int description_file(const struct fork_server *fs, const struct worker_spawn *how) {
    struct cr_buffer text = {0};
    CR_AUTO_FD int fd = memfd_create("crun-worker", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : describe(fs, how, &text);
    if (rc == 0) rc = cr_write_all(fd, text.data, text.len);
    cr_buffer_done(&text);
    return rc == 0 && lseek(fd, 0, SEEK_SET) == 0 ? cr_take_fd(&fd) : -1;
}

static bool send_request(const struct fork_server *fs, const int fds[DESCRIPTORS]) {
    char word = 'w';
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = &word, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(DESCRIPTORS * sizeof(int));
    memcpy(CMSG_DATA(head), fds, DESCRIPTORS * sizeof(int));
    return sendmsg(fs->control, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* Requests one worker from the server. Returns the launcher's end of the worker's connection, or -1
 * on error. */
static int request_worker(const struct fork_server *fs, const struct worker_spawn *how) {
    int ends[2];
    CR_AUTO_FD int text = description_file(fs, how);
    if (text < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return -1;
    const int fds[DESCRIPTORS] = {how->stdin_fd >= 0 ? how->stdin_fd : STDIN_FILENO,
                                  how->stdout_fd >= 0 ? how->stdout_fd : STDOUT_FILENO,
                                  how->stderr_fd >= 0 ? how->stderr_fd : STDERR_FILENO,
                                  ends[1], text};
    if (!send_request(fs, fds)) cr_close_fd(&ends[0]);
    cr_close_fd(&ends[1]);
    return ends[0];
}

/* Waits until `deadline_ms` for the server to send the pid of a worker. Returns the pid if that
 * process is a child of this process; otherwise, or if no pid comes, returns 0. */
static pid_t receive_pid(int own, int64_t deadline_ms) {
    char text[32];
    siginfo_t info;
    struct pollfd answer = {.fd = own, .events = POLLIN};
    if (poll(&answer, 1, (int) cr_time_left_ms(deadline_ms)) <= 0) return 0;
    ssize_t len = recv(own, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (len <= 0) return 0;
    text[len] = '\0';
    long pid = strtol(text, NULL, 10);
    if (pid <= 1 || waitid(P_PID, (id_t) pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return 0;
    return (pid_t) pid;
}

/* Makes the process `pid`, which the server has forked, a worker of the nursery, and lets it run
 * its program. Returns the worker, or NULL if memory is short. */
static struct worker_process *adopt(struct nursery *n, pid_t pid, int own, void *arg) {
    struct worker_process *w = calloc(1, sizeof(*w));
    if (w == NULL || known_children_begin() < 0) {
        free(w);
        return NULL;
    }
    known_children_end(pid);
    *w = (struct worker_process){.watched = WATCHED_WORKER, .nursery = n, .arg = arg};
    worker_register(w, &(struct spawned){.pid = pid,
                                         .pidfd = (int) syscall(SYS_pidfd_open, pid, 0)});
    if (w->pidfd < 0) nursery_schedule_turn(n);
    /* an error is ignored: if the worker is dead, its end is reported like that of any worker */
    (void) send(own, "go", 2, MSG_DONTWAIT | MSG_NOSIGNAL);
    return w;
}

size_t fork_server_start(struct fork_server *fs, const struct worker_spawn *how,
                         void *const *worker_args, size_t count, struct worker_process **out) {
    CR_AUTO_FREE int *own = calloc(count, sizeof(*own));
    size_t started = 0, requested = 0;
    for (size_t i = 0; i < count; i++) out[i] = NULL;
    if (own == NULL || fs->process == NULL || fs->control < 0 || !has_become_ready(fs)) return 0;
    if (fs->nursery->state != NURSERY_OPEN) return 0;
    int64_t deadline_ms = cr_monotonic_ms() + FORK_MS;
    for (size_t i = 0; i < count; i++) {
        own[i] = can_become(fs, &how[i]) ? request_worker(fs, &how[i]) : -1;
        requested += own[i] >= 0 ? 1 : 0;
    }
    for (size_t i = 0; i < count; i++) {
        pid_t pid = own[i] >= 0 ? receive_pid(own[i], deadline_ms) : 0;
        if (pid > 0) out[i] = adopt(fs->nursery, pid, own[i], worker_args[i]);
        started += out[i] != NULL ? 1 : 0;
        cr_close_fd(&own[i]); /* a worker that was not adopted finds its connection closed, and
                               * exits */
    }
    if (started < requested) {
        cr_warn("the process with the preloaded modules did not fork %zu workers; they are "
                "executed", requested - started);
        cr_close_fd(&fs->control); /* the server exits; a new server is opened at the next start of
                                    * workers */
    }
    return started;
}
