/* The worker of tests/bench/hosts.py: appends the time of its first instructions, in seconds since
 * 1970, as a line to the file argv[1]. It is linked statically, so that the work of the dynamic
 * linker is not measured. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct timespec now;
    char line[64];
    (void) clock_gettime(CLOCK_REALTIME, &now);
    int fd = argc == 2 ? open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
    if (fd < 0) return 2;
    int n = snprintf(line, sizeof(line), "%lld.%09ld\n", (long long) now.tv_sec, now.tv_nsec);
    return write(fd, line, (size_t) n) == n ? 0 : 1;
}
