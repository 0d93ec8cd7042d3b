/* Reads a file by read(2) until its end or until the buffer is full. */
#include "base/files/read_file.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

ssize_t cr_read_file(const char *path, char *out, size_t cap) {
    size_t len = 0;
    ssize_t n = 0;
    out[0] = '\0';
    CR_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    while (len < cap - 1) {
        n = read(fd, out + len, cap - 1 - len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        len += (size_t) n;
    }
    int code = n < 0 ? errno : 0;
    out[code == 0 ? len : 0] = '\0';
    return code == 0 ? (ssize_t) len : -code;
}
