/* A bare relay of one thread, to which tests/bench/output.py compares crun: it starts PROGRAM with
 * its arguments COUNT times, reads the stdout of each process through a pipe, and writes the bytes
 * unchanged to its own stdout. It does not split the output into lines and writes no log files. So
 * its speed is an upper limit for relays that do this work. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COUNT_MAX 64

static char chunk[65536];

static int start(char **argv) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) exit(1);
    pid_t pid = fork();
    if (pid < 0) exit(1);
    if (pid == 0) {
        (void) dup2(ends[1], 1);
        (void) execvp(argv[0], argv);
        _exit(127);
    }
    (void) close(ends[1]);
    return ends[0];
}

static void write_all(const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(1, data, len);
        if (n <= 0) exit(1);
        data += n;
        len -= (size_t) n;
    }
}

/* Reads once from `fd` and writes the bytes to stdout. Returns `fd`; or closes it and returns -1 at
 * the end of the stream. */
static int relay(int fd) {
    ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n > 0) write_all(chunk, (size_t) n);
    if (n > 0) return fd;
    (void) close(fd);
    return -1;
}

int main(int argc, char **argv) {
    struct pollfd fds[COUNT_MAX];
    int count = argc > 2 ? (int) strtol(argv[1], NULL, 10) : 0, open = count;
    if (count < 1 || count > COUNT_MAX) {
        (void) fprintf(stderr, "usage: bare_relay COUNT PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    for (int i = 0; i < count; i++) {
        fds[i] = (struct pollfd){.fd = start(argv + 2), .events = POLLIN};
    }
    while (open > 0 && poll(fds, (nfds_t) count, -1) > 0) {
        for (int i = 0; i < count; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0) continue;
            fds[i].fd = relay(fds[i].fd);
            open -= fds[i].fd < 0;
        }
    }
    return 0;
}
