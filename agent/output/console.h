/* A console is one of the launcher's own output streams, stdout or stderr. Writing to it never
 * blocks the loop, and never makes the stream non-blocking for other processes that share it
 * (workers, the shell).
 *
 * Bytes that the reader does not take at once are kept in memory, without limit. So callers stop
 * writing much output while console_is_full() is true. If the reader has closed the stream (EPIPE),
 * the console is dead: the job goes on, and all further output to it is discarded. */
#ifndef AGENT_CONSOLE_H
#define AGENT_CONSOLE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <uv.h>

#define CONSOLE_FULL  ((size_t) 1 << 20)  /* the console is full while it keeps at least this many
                                           * bytes in memory */
/* a full console has room again when it keeps at most this many bytes in memory */
#define CONSOLE_EMPTY ((size_t) 64 << 10)

struct console {
    int fd;          /* the descriptor opened by console_open() if is_private is true, else 1 or
                      * 2 */
    /* true if fd has an open file description of its own, so that its O_NONBLOCK affects no other
     * process */
    bool is_private;
    bool is_socket;
    bool can_block; /* true for a pipe, a terminal or a socket; a file never blocks */
    bool dead;
    bool warned_of_memory;
    struct cr_buffer kept;
    size_t sent; /* number of bytes of `kept` that are written already */
    /* an epoll that contains fd; libuv would make fd non-blocking if it watched fd itself */
    int poll_fd;
    uv_poll_t poll;
    void (*on_room)(void *arg); /* called when the console has written all kept bytes, or is dead */
    void *arg;
};

/* Opens the console on `stream_fd`, which is 1 or 2. Returns 0 or a negative errno. */
int console_open(struct console *c, uv_loop_t *loop, int stream_fd, void (*on_room)(void *arg),
                 void *arg);

void console_write(struct console *c, const char *data, size_t len);
bool console_is_full(const struct console *c);
bool console_has_room(const struct console *c);
bool console_is_dead(const struct console *c);
/* Returns true if the console keeps no bytes in memory, or is dead. */
bool console_is_flushed(const struct console *c);
void console_kill(struct console *c);             /* discards the kept bytes and all later output */

/* Closes the console. When that is done, on_close runs on the loop with the handle c->poll. The
 * caller may set c->poll.data for on_close before this call. */
void console_close(struct console *c, uv_close_cb on_close);

#endif
