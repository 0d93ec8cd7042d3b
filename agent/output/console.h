/* One of the launcher's own output streams, stdout or stderr. Writing never blocks the loop, and
 * does not make the stream non-blocking for other processes that have it (the workers, the shell).
 *
 * What the reader does not take at once is kept in memory; callers ask console_is_full() and stop
 * producing. If the reader is gone (EPIPE), the console is dead: the job goes on, and what is
 * written then is discarded. */
#ifndef AGENT_CONSOLE_H
#define AGENT_CONSOLE_H

#include "base/buffer.h"

#include <stdbool.h>
#include <uv.h>

#define CONSOLE_FULL  ((size_t) 1 << 20)  /* bytes kept from which on the console is full */
#define CONSOLE_EMPTY ((size_t) 64 << 10) /* bytes kept below which it has room again */

struct console {
    int fd;          /* opened by us if is_private, else 1 or 2 */
    bool is_private; /* fd is an open file of our own, so O_NONBLOCK affects no other process */
    bool is_socket;
    bool can_block; /* a pipe, a terminal or a socket; files cannot */
    bool dead;
    bool warned_of_memory;
    struct cr_buffer kept;
    size_t sent; /* bytes of `kept` that were written already */
    int poll_fd; /* an epoll with fd in it: libuv would make fd itself non-blocking */
    uv_poll_t poll;
    void (*on_room)(void *arg); /* there is room again, or the console has died */
    void *arg;
};

/* `stream_fd` is 1 or 2. Returns 0 or a negative errno. */
int console_open(struct console *c, uv_loop_t *loop, int stream_fd, void (*on_room)(void *arg),
                 void *arg);

void console_write(struct console *c, const char *data, size_t len);
bool console_is_full(const struct console *c);
bool console_has_room(const struct console *c);
bool console_is_flushed(const struct console *c); /* nothing is kept, or it is dead */
void console_kill(struct console *c); /* discards what is kept and all that is written later */

/* `on_close` runs on the loop with the handle, whose data the caller may have set. */
void console_close(struct console *c, uv_close_cb on_close);

#endif
