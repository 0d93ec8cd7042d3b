/* One of the launcher's own output streams, written without ever blocking the loop and without making
 * it non-blocking for anybody else who has it (the workers, the shell).
 *
 * What the reader does not take yet is kept; whoever feeds us asks console_is_full() and holds back.
 * A reader that has gone (EPIPE) ends the console, not the job: what is written then goes nowhere. */
#ifndef AGENT_CONSOLE_H
#define AGENT_CONSOLE_H

#include "base/buffer.h"

#include <uv.h>

#define CONSOLE_FULL  ((size_t) 1 << 20) /* bytes kept before feeders hold back */
#define CONSOLE_EMPTY ((size_t) 64 << 10) /* … and go on below this */

struct console {
    int fd;       /* ours to close, or the stream's own number */
    int private_; /* fd is an open file of our own: non-blocking harms nobody */
    int socket_;
    int waits;    /* may block: a pipe, a terminal, a socket; else a file */
    int dead;
    struct cr_buffer kept;
    size_t sent; /* of kept */
    int poll_fd; /* an epoll of our own around fd: libuv would make fd itself non-blocking */
    uv_poll_t poll;
    void (*on_room)(void *arg); /* there is room again, or the console has died */
    void *arg;
};

/* `stream_fd` is 1 or 2. Returns 0 or a negative errno. */
int console_open(struct console *c, uv_loop_t *loop, int stream_fd, void (*on_room)(void *arg),
                 void *arg);

void console_write(struct console *c, const char *data, size_t len);
int console_is_full(const struct console *c);  /* hold back */
int console_has_room(const struct console *c); /* go on */
int console_is_flushed(const struct console *c);
void console_kill(struct console *c); /* forgets what is kept; writes go nowhere */

/* Closes; `on_close` runs on the loop with the handle, whose data the caller may have set. */
void console_close(struct console *c, uv_close_cb on_close);

#endif
