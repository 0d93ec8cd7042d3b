/* Starts N copies of a program and waits for all of them; it does nothing else. The time that this
 * takes is the lower bound with which the launchers are compared.
 *
 *     spawn_floor N PROGRAM [ARG …]
 *
 * It uses posix_spawn(), which does not copy the page tables of the caller on Linux. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    int count = argc >= 3 ? atoi(argv[1]) : 0;
    if (count < 1) {
        (void) fprintf(stderr, "usage: spawn_floor N PROGRAM [ARG ...]\n");
        return 2;
    }
    for (int i = 0; i < count; i++) {
        pid_t pid;
        int rc = posix_spawn(&pid, argv[2], NULL, NULL, argv + 2, environ);
        if (rc != 0) {
            (void) fprintf(stderr, "spawn_floor: cannot start '%s': %s\n", argv[2], strerror(rc));
            return 1;
        }
    }
    int failed = 0;
    for (int left = count; left > 0;) {
        int status;
        if (wait(&status) < 0) {
            if (errno == EINTR) continue;
            return 1;
        }
        failed |= status;
        left--;
    }
    return failed != 0;
}
