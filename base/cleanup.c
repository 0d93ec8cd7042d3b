/* In a file of its own, so that base/cleanup.h needs no <unistd.h>: code without I/O includes it. */
#include "base/cleanup.h"

#include <unistd.h>

void cr_close_fd(int *fd) {
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
}
