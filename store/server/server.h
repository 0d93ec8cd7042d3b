/* The store's server: one thread with one event loop, and any number of key spaces on it.
 *
 * A space is a listening address with a key space of its own. The agent opens a new one for every
 * round, so that no round reads the keys of another. All calls are thread-safe and synchronous: a
 * call from another thread waits until the server's thread has carried it out. */
#ifndef STORE_SERVER_SERVER_H
#define STORE_SERVER_SERVER_H

#include "base/error.h"
#include "store/bytes/bytes.h"

struct store_server;
struct store_space;

/* 0 means the default. A client that exceeds a limit loses its connection, and one line is
 * logged. */
struct store_server_options {
    size_t key_max;    /* bytes of a key, without torch's leading '/'; STORE_KEY_MAX */
    size_t value_max;  /* bytes of one value in one request; STORE_VALUE_MAX */
    size_t list_max;   /* keys or pairs in one request; STORE_LIST_MAX */
    size_t memory_max; /* bytes of one space: keys, values, waits, incomplete requests, unread
                          replies; half of this machine's memory */
    size_t client_max; /* connections in one space; no limit */
    size_t client_buffer_max; /* bytes of one request, and of the unread replies of one connection;
                                 STORE_CLIENT_BUFFER_MAX */
    int no_thread; /* the loop runs in store_server_run(); every call comes from that thread */
};

/* Starts the thread, unless options->no_thread. `options` may be NULL; it is copied. */
int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err);

/* With no_thread: serves until `signal_fd`, which it does not read, is readable; then the caller
 * calls store_server_stop(). In a process with one thread each system call is cheaper, because the
 * kernel need not lock the table of descriptors; that made 2 to 3 % of a request
 * (docs/benchmarks.md, "The store"). SIGPIPE must be ignored. Returns 0 or negative. */
int store_server_run(struct store_server *server, int signal_fd);

/* Listens on host:port (port 0: any free one) with an empty key space; *bound_port is the real
 * port. `host` is a name or address of this machine; NULL or "" is all interfaces, both families.
 * Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -ENOENT (unknown host) with a text that names
 * the address. */
int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err);

/* Closes every connection of the space and removes all keys; the port stays open. For clients the
 * effect is immediate. What takes time is done in pieces, and other clients are served in between:
 * sending each client its FIN, and freeing the memory of the keys, which counts toward memory_max
 * until it is freed. */
void store_space_clear(struct store_space *space);

/* The same, then closes the port and frees the space. NULL is fine. */
void store_space_close(struct store_space *space);

/* The numeric address that the space listens on, such as "0.0.0.0:29500". Borrowed from the
 * space. */
const char *store_space_address(const struct store_space *space);

/* A connection that opened with a registered magic. `fd` is non-blocking and now belongs to the
 * receiver; `data` holds the bytes that were read from it, magic included, until the call
 * returns. */
struct store_handoff {
    struct store_space *space;
    int fd;
    const void *data;
    size_t len;
};

/* Runs on the server's thread and must not block. */
typedef void (*store_handoff_fn)(void *arg, const struct store_handoff *handoff);

/* Hands connections to any space that open with these four bytes to `fn`. The first byte must
 * be above 0x08, so that no client of torch can send it. Returns 0, -EINVAL, -EEXIST, or
 * -ENOSPC (eight magics can be registered). */
int store_server_register_magic(struct store_server *server, const void *magic,
                                store_handoff_fn fn, void *arg);

/* Closes all spaces, ends the thread, waits for it and frees everything. NULL is fine. */
void store_server_stop(struct store_server *server);

#endif
