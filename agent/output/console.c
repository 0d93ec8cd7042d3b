#include "agent/output/console.h"

#include "base/cleanup.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a pipe that poll(2) calls writable, this much can be written without blocking. */
#define POLLED_MAX PIPE_BUF

/* ---- opening ---- */

/* Opened again through /proc, a pipe or a terminal is an open file of our own, with flags of its own.
 * A terminal may refuse that (su), then the stream is written in pieces that fit. */
static void open_private(struct console *c, int stream_fd) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", stream_fd);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return;
    c->fd = fd;
    c->private_ = 1;
}

static int watch(struct console *c, uv_loop_t *loop) {
    struct epoll_event event = {.events = EPOLLOUT};
    c->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->poll_fd < 0) return -errno;
    int rc = epoll_ctl(c->poll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0 ? -errno : 0;
    if (rc == -EPERM) { /* a file of a kind that never blocks */
        c->waits = 0;
        rc = 0;
    }
    return rc < 0 ? rc : uv_poll_init(loop, &c->poll, c->poll_fd);
}

int console_open(struct console *c, uv_loop_t *loop, int stream_fd, void (*on_room)(void *arg),
                 void *arg) {
    struct stat st;
    *c = (struct console){.fd = stream_fd, .poll_fd = -1, .on_room = on_room, .arg = arg};
    if (fstat(stream_fd, &st) < 0) c->dead = 1;
    else if (S_ISSOCK(st.st_mode)) c->waits = c->socket_ = 1;
    else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) c->waits = 1;
    if (c->waits && !c->socket_) open_private(c, stream_fd);
    int rc = watch(c, loop);
    if (rc == 0) {
        c->poll.data = c;
        return 0;
    }
    if (c->private_) cr_close_fd(&c->fd);
    cr_close_fd(&c->poll_fd);
    return rc;
}

/* ---- writing ---- */

static int is_writable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

static ssize_t write_some(struct console *c, const char *data, size_t len) {
    if (c->socket_) return send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (c->private_ || !c->waits) return write(c->fd, data, len);
    if (!is_writable(c->fd)) {
        errno = EAGAIN;
        return -1;
    }
    return write(c->fd, data, len < POLLED_MAX ? len : POLLED_MAX);
}

/* A reader that has gone away, or a terminal, knows; a full disk does not tell anybody. */
static void give_up(struct console *c, int code) {
    console_kill(c);
    if (code == EPIPE || code == EIO || code == ECONNRESET) return;
    cr_warn("cannot write to the console any more: %s; the job goes on, without the rest of its output here",
            strerror(code));
}

/* Bytes written before the reader wanted no more; a console that fails is dead. */
static size_t write_now(struct console *c, const char *data, size_t len) {
    size_t done = 0;
    while (done < len && !c->dead) {
        ssize_t n = write_some(c, data + done, len - done);
        if (n >= 0) done += (size_t) n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) break;
        else if (errno != EINTR) give_up(c, errno);
    }
    return done;
}

static void on_writable(uv_poll_t *poll, int status, int events) {
    struct console *c = poll->data;
    (void) status, (void) events; /* writing tells what is wrong */
    c->sent += write_now(c, c->kept.data + c->sent, c->kept.len - c->sent);
    if (!c->dead && c->sent < c->kept.len) return;
    cr_buffer_done(&c->kept);
    c->sent = 0;
    (void) uv_poll_stop(&c->poll);
    c->on_room(c->arg);
}

static size_t kept_len(const struct console *c) { return c->kept.len - c->sent; }

void console_write(struct console *c, const char *data, size_t len) {
    if (c->dead) return;
    size_t done = kept_len(c) > 0 ? 0 : write_now(c, data, len);
    if (c->dead || done == len) return;
    if (cr_buffer_append(&c->kept, data + done, len - done) < 0) return; /* no memory: lost */
    (void) uv_poll_start(&c->poll, UV_READABLE, on_writable); /* the epoll is what is readable */
}

int console_is_full(const struct console *c) { return kept_len(c) >= CONSOLE_FULL; }
int console_has_room(const struct console *c) { return kept_len(c) <= CONSOLE_EMPTY; }
int console_is_flushed(const struct console *c) { return c->dead || kept_len(c) == 0; }

void console_kill(struct console *c) {
    c->dead = 1;
    c->sent = c->kept.len;
}

void console_close(struct console *c, uv_close_cb on_close) {
    cr_buffer_done(&c->kept);
    c->sent = 0;
    uv_close((uv_handle_t *) &c->poll, on_close);
    if (c->private_) cr_close_fd(&c->fd);
    cr_close_fd(&c->poll_fd);
}
