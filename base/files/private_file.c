/* Opens files that only this user may read and write; see base/files/private_file.h. */
#include "base/files/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRIVATE_MODE 0600

int cr_private_create(const char *path) {
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, flags, PRIVATE_MODE);
    if (fd < 0 && errno == EEXIST && unlink(path) == 0) fd = open(path, flags, PRIVATE_MODE);
    return fd < 0 ? -errno : fd;
}

int cr_private_open(const char *path, int flags) {
    struct stat link;
    int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, PRIVATE_MODE);
    if (fd >= 0) return fd;
    if (errno != ELOOP) return -errno;
    if (lstat(path, &link) < 0) return -errno;
    if (link.st_uid != geteuid() && link.st_uid != 0) return -EPERM;
    fd = open(path, flags | O_CLOEXEC, PRIVATE_MODE);
    return fd < 0 ? -errno : fd;
}
