/* The floor under every launcher: start N copies of a program, wait for all, nothing else.
 *
 *     spawn_floor N PROGRAM [ARG …]
 *
 * posix_spawn, which is vfork-like on Linux: what a launcher can hope to approach, not to beat. */
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
