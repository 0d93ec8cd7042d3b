/* Writes by write(2) until all bytes are written. */
#include "base/files/write_all.h"

#include <errno.h>
#include <unistd.h>

int cr_write_all(int fd, const void *data, size_t len) {
    for (const char *at = data; len > 0;) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        at += n;
        len -= (size_t) n;
    }
    return 0;
}
