/* Writes to stdout or stderr without blocking. */
#include "agent/output/console.h"

#include "base/cleanup.h"
#include "base/log/log.h"

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

/* When poll(2) reports a pipe as writable, this number of bytes can be written to it without
 * blocking. */
#define POLLED_MAX PIPE_BUF

/* ---- opening ---- */

/* Opens the pipe or terminal behind `stream_fd` once more, through /proc. The new open file
 * description has flags of its own, so its O_NONBLOCK does not affect other processes. After su, a
 * terminal may refuse to be opened; in that case the stream is written in pieces of POLLED_MAX
 * bytes. */
static void open_private(struct console *c, int stream_fd) {
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", stream_fd);
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return;
    c->fd = fd;
    c->is_private = true;
}

static int watch(struct console *c, uv_loop_t *loop) {
    struct epoll_event event = {.events = EPOLLOUT};
    c->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->poll_fd < 0) return -errno;
    int rc = epoll_ctl(c->poll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0 ? -errno : 0;
    /* EPERM: epoll refuses files that never block, such as regular files */
    if (rc == -EPERM) {
        c->can_block = false;
        rc = 0;
    }
    return rc < 0 ? rc : uv_poll_init(loop, &c->poll, c->poll_fd);
}

int console_open(struct console *c, uv_loop_t *loop, int stream_fd, void (*on_room)(void *arg),
                 void *arg) {
    struct stat st;
    *c = (struct console){.fd = stream_fd, .poll_fd = -1, .on_room = on_room, .arg = arg};
    if (fstat(stream_fd, &st) < 0)
        c->dead = true;
    else if (S_ISSOCK(st.st_mode))
        c->can_block = c->is_socket = true;
    else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
        c->can_block = true;
    if (c->can_block && !c->is_socket) open_private(c, stream_fd);
    int rc = watch(c, loop);
    if (rc == 0) {
        c->poll.data = c;
        return 0;
    }
    if (c->is_private) cr_close_fd(&c->fd);
    cr_close_fd(&c->poll_fd);
    return rc;
}

/* ---- writing ---- */

static bool is_writable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

static ssize_t write_some(struct console *c, const char *data, size_t len) {
    if (c->is_socket) return send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (c->is_private || !c->can_block) return write(c->fd, data, len);
    if (!is_writable(c->fd)) {
        errno = EAGAIN;
        return -1;
    }
    return write(c->fd, data, len < POLLED_MAX ? len : POLLED_MAX);
}

/* Gives the console up after a write error. Logs a warning, because nothing else would show that
 * output is missing. It logs none if the reader has closed the pipe or if the terminal is gone,
 * because both are usual. */
static void give_up(struct console *c, int error) {
    console_kill(c);
    if (error == EPIPE || error == EIO || error == ECONNRESET) return;
    cr_warn("cannot write to the console any more: %s; the job goes on, but its further "
            "output is not shown here",
            strerror(error));
}

/* Writes as much as the reader takes without blocking. Returns the number of bytes written. After
 * an error the console is dead. */
static size_t write_now(struct console *c, const char *data, size_t len) {
    size_t done = 0;
    while (done < len && !c->dead) {
        ssize_t n = write_some(c, data + done, len - done);
        if (n >= 0)
            done += (size_t) n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            break;
        else if (errno != EINTR)
            give_up(c, errno);
    }
    return done;
}

static void on_writable(uv_poll_t *poll, int status, int events) {
    struct console *c = poll->data;
    (void) status, (void) events; /* write() reports errors */
    c->sent += write_now(c, c->kept.data + c->sent, c->kept.len - c->sent);
    if (!c->dead && c->sent < c->kept.len) return;
    cr_buffer_done(&c->kept);
    c->sent = 0;
    (void) uv_poll_stop(&c->poll);
    c->on_room(c->arg);
}

static size_t kept_len(const struct console *c) { return c->kept.len - c->sent; }

/* Logs a warning that output was lost, but only once, because the warning itself may go to this
 * console. */
static void warn_of_memory(struct console *c) {
    if (c->warned_of_memory) return;
    c->warned_of_memory = true;
    cr_warn("no memory left for output that the console's reader has not taken yet: "
            "some of it is lost");
}

void console_write(struct console *c, const char *data, size_t len) {
    if (c->dead) return;
    size_t done = kept_len(c) > 0 ? 0 : write_now(c, data, len);
    if (c->dead || done == len) return;
    if (cr_buffer_append(&c->kept, data + done, len - done) < 0) {
        warn_of_memory(c);
        return;
    }
    /* c->poll watches the epoll that contains fd. An epoll is readable when one of its descriptors
     * is ready, so this one is readable when fd is writable. */
    (void) uv_poll_start(&c->poll, UV_READABLE, on_writable);
}

bool console_is_full(const struct console *c) { return kept_len(c) >= CONSOLE_FULL; }
bool console_has_room(const struct console *c) { return kept_len(c) <= CONSOLE_EMPTY; }
bool console_is_dead(const struct console *c) { return c->dead; }
bool console_is_flushed(const struct console *c) { return c->dead || kept_len(c) == 0; }

void console_kill(struct console *c) {
    c->dead = true;
    c->sent = c->kept.len;
}

void console_close(struct console *c, uv_close_cb on_close) {
    cr_buffer_done(&c->kept);
    c->sent = 0;
    uv_close((uv_handle_t *) &c->poll, on_close);
    if (c->is_private) cr_close_fd(&c->fd);
    cr_close_fd(&c->poll_fd);
}
