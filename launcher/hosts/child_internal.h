/* A child process of the starter or of a deputy, with pipes. The kernel kills the child when its
 * parent dies (PR_SET_PDEATHSIG). This file replaces libuv's uv_spawn(), which cannot request
 * that. */
#ifndef LAUNCHER_HOSTS_CHILD_H
#define LAUNCHER_HOSTS_CHILD_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct child;
typedef void (*child_exit_fn)(void *arg, int status);

struct child {
    pid_t pid;  /* 0 if no process runs */
    int pidfd;
    uv_poll_t poll; /* watches the pidfd */
    child_exit_fn on_exit; /* called once, with the exit status, or 128 + the signal */
    void *arg;
};

/* The parent's ends of a child's pipes; -1 for a pipe that does not exist. */
struct child_pipes {
    int in, out, err;
};

/* Starts argv[0], found through PATH, in a Unix session of its own with default signals. If
 * has_input is false, its stdin is /dev/null and pipes->in is -1. If kept_fd is not negative, the
 * child inherits this descriptor under the same number. Returns 0; or a negative errno, and sets
 * err. */
int child_start(struct child *c, uv_loop_t *loop, const char *const *argv, bool has_input,
                int kept_fd, struct child_pipes *pipes, struct cr_error *err);

void child_kill(struct child *c, int signum); /* does nothing if no process runs */

#endif
