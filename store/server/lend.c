/* Lends big values to the kernel: vmsplice() puts references to the pages of a value into a pipe,
 * and splice() moves the references from the pipe to the socket. So the server does not copy the
 * bytes.
 *
 * Half of the CPU time of a big GET is the copy into the socket. Without this copy, a GET of 1 MiB
 * takes a fourth of the server's CPU time, and the server reaches 4.6 GB/s; torch's server reaches
 * 1.6 GB/s (docs/benchmarks.md, "The store"). The disadvantage: a SET of a key whose old value was
 * lent needs new pages, which doubles the CPU time of the SET. value.h explains for which sizes
 * lending pays, and how lent pages stay unchanged.
 *
 * The pipe is empty between two calls of store_lend(). */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* size of the pipe in bytes: the largest that an unprivileged process may set. If fcntl() refuses
 * this size, a smaller pipe works, too. */
#define PIPE_SIZE (1 << 20)

static int open_pipe(struct store_server *server) {
    if (server->lending[0] >= 0) return 0;
    if (pipe2(server->lending, O_CLOEXEC | O_NONBLOCK) < 0) {
        server->lending[0] = server->lending[1] = -1;
        return -1;
    }
    (void) fcntl(server->lending[1], F_SETPIPE_SZ, PIPE_SIZE);
    return 0;
}

void store_lend_done(struct store_server *server) {
    cr_close_fd(&server->lending[0]);
    cr_close_fd(&server->lending[1]);
}

/* splice() to a broken connection raises SIGPIPE, because it has no flag MSG_NOSIGNAL. So the
 * server's thread blocks SIGPIPE; a process that runs the server without a thread ignores
 * SIGPIPE. */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset) {
    struct iovec rest = {.iov_base = v->data + offset, .iov_len = v->len - offset};
    if (open_pipe(server) < 0) return 0;
    ssize_t in = vmsplice(server->lending[1], &rest, 1, SPLICE_F_NONBLOCK);
    if (in <= 0) return 0;
    v->lent = 1;
    unsigned more = (size_t) in < rest.iov_len ? SPLICE_F_MORE : 0;
    ssize_t n = splice(server->lending[0], NULL, fd, NULL, (size_t) in, SPLICE_F_NONBLOCK | more);
    /* If not all bytes were sent, the pipe still holds references to the other bytes. Closing the
     * pipe drops these references; the next call opens a new pipe and sends these bytes. */
    if (n < in) {
        int error = errno;
        store_lend_done(server);
        errno = error;
    }
    return n;
}
