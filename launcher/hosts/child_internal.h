/* Starts a child process, with pipes, for the starter or a deputy. The kernel kills the child when
 * its parent dies (PR_SET_PDEATHSIG). libuv's uv_spawn() is not used, because it has no option for
 * that. */
#ifndef LAUNCHER_HOSTS_CHILD_H
#define LAUNCHER_HOSTS_CHILD_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <uv.h>

struct child;
typedef void (*child_exit_fn)(void *arg, int status);
typedef int (*child_run_fn)(const char *const *argv);

struct child {
    pid_t pid;  /* 0 if no process runs */
    int pidfd;
    uv_poll_t poll; /* watches the pidfd */
    /* called once when the child has ended, with its exit status, or 128 + the signal that ended
     * it */
    child_exit_fn on_exit;
    void *arg;
    /* If this is not NULL, the child does not execute argv[0], but calls this function with argv,
     * in the copy of this process that fork(2) has made, and exits with its result. That costs less
     * processor time than to execute crun anew. The child has only descriptors 0, 1 and 2. */
    child_run_fn run;
};

/* The parent's ends of a child's pipes; -1 for a pipe that was not made. */
struct child_pipes {
    int in, out, err;
};

enum child_input {
    CHILD_NO_INPUT, /* stdin is /dev/null */
    CHILD_PIPE,     /* stdin is a pipe */
    CHILD_PTY,      /* stdin, stdout and stderr are a pseudo terminal that controls the child */
};

/* Starts argv[0], searched in PATH (or calls c->run, see there), in a Unix session of its own and
 * with default signal actions. With CHILD_NO_INPUT, pipes->in is -1. With CHILD_PTY, pipes->in and
 * pipes->out are two descriptors of the terminal's master, pipes->err is -1, and `size` is the
 * terminal's size. If kept_fd is not negative, the child inherits this descriptor under the same
 * number. Returns 0; or a negative errno, and sets err. */
int child_start(struct child *c, uv_loop_t *loop, const char *const *argv, enum child_input input,
                const struct winsize *size, int kept_fd, struct child_pipes *pipes,
                struct cr_error *err);

void child_kill(struct child *c, int signum); /* does nothing if no process runs */

#endif
