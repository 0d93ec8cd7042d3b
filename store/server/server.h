/* The store's server: one thread with one event loop, which serves any number of spaces.
 *
 * A space is one listening address together with its own key space. The agent opens a new space for
 * every round, so that no round can read the keys of another round.
 *
 * Any thread may call the functions below. If the caller's thread is not the server's, the call
 * waits until the server's thread has carried it out; store_space_restrict() and store_space_know()
 * do not wait, but take effect before every later call. */
#ifndef STORE_SERVER_SERVER_H
#define STORE_SERVER_SERVER_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/network/network.h"
#include "base/network/port_range.h"
#include "store/bytes/bytes.h"

#include <stdbool.h>

struct store_server;
struct store_space;

/* Limits of the server. 0 in a field means its default. If a client exceeds a limit, the server
 * closes the client's connection and logs one line. */
struct store_server_options {
    size_t key_max;    /* longest key in bytes, without torch's '/'; default STORE_KEY_MAX */
    size_t value_max;  /* longest value of a request in bytes; default STORE_VALUE_MAX */
    /* largest number of keys, or of pairs of key and value, in one request; default
     * STORE_LIST_MAX */
    size_t list_max;
    /* how many bytes one space may use for keys, values, waits, incomplete requests and unread
     * replies; default: half of the memory that this process may use, see
     * base/process/memory_limit.h */
    size_t memory_max;
    size_t client_max; /* how many connections a space may have at a time; default: no limit */
    /* longest request in bytes; also, how many bytes of replies the server keeps for a connection
     * whose client does not read them; default STORE_CLIENT_BUFFER_MAX */
    size_t client_buffer_max;
    /* the ports among which store_server_open() chooses if it is called with port 0; default: the
     * kernel chooses any free port */
    struct cr_port_range ports;
    /* true: the spaces are restricted: a space serves the clients of this machine, and those that
     * store_space_restrict() admits. If no magic number is registered, a space accepts no
     * connection before the first call of store_space_restrict(); clients wait until then. */
    bool restricted;
    /* If a request names the key refused_key, written without torch's leading '/', the server
     * closes the client's connection and logs the reason refused_why. If refused_key is NULL, no
     * key is refused. Both texts are copied. */
    const char *refused_key, *refused_why;
    /* 1: the server starts no thread. The caller runs the loop by store_server_run(), and must call
     * all other functions from the thread that runs the loop. 0: the server starts a thread. */
    int no_thread;
};

/* Creates a server and stores it in *out. Starts its thread unless options->no_thread is set. The
 * options are copied; `options` may be NULL, which means all defaults. Returns 0 or a negative
 * errno. */
int store_server_start(const struct store_server_options *options, struct store_server **out,
                       struct cr_error *err);

/* Runs the loop of a server that was started with no_thread. SIGPIPE must be ignored in this
 * process. Returns 0 as soon as `signal_fd` is readable, without reading from it; the caller then
 * calls store_server_stop(). Returns a negative errno if `signal_fd` cannot be polled.
 *
 * The advantage over a server with a thread: in a process with a single thread each system call is
 * cheaper, because the kernel does not have to lock the table of descriptors. This saves 2 to 3 %
 * of the time of a request (docs/benchmarks.md, "The store"). */
int store_server_run(struct store_server *server, int signal_fd);

/* Opens a space that listens on host:port and has no keys yet, and stores it in *out. Port 0
 * chooses any free port, or a free one of options.ports if these were given; *bound_port is set to
 * the port in use. `host` is a name or address of this machine; NULL or "" means all interfaces,
 * IPv4 and IPv6. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EACCES or -ENOENT (unknown host) and
 * sets err to a text that names the address. If no port of the range is free, returns
 * -EADDRNOTAVAIL and a text that names the range. */
int store_server_open(struct store_server *server, const char *host, uint16_t port,
                      struct store_space **out, uint16_t *bound_port, struct cr_error *err);

/* Closes every connection of the space and removes all keys; the port stays open for new clients.
 * When this function returns, no connection is served any more and no key exists. Two things are
 * done later, in pieces, so that other clients need not wait for them: to send a FIN to each
 * client, and to free the memory of the keys. This memory counts toward memory_max until it is
 * freed. */
void store_space_clear(struct store_space *space);

/* Clears the space as store_space_clear() does, then closes its port and frees the space. `space`
 * may be NULL. */
void store_space_close(struct store_space *space);

/* From now on, the space serves only the clients of this machine and those whose address is in
 * `admitted`, a sorted list, which is copied. Connections of other clients are closed. A connection
 * that begins with a registered magic number is passed on all the same, because its protocol
 * decides itself who may take part. Returns 0; or -ENOMEM, in which case nothing changes. */
int store_space_restrict(struct store_space *space, const struct cr_network_list *admitted);

/* Tells a space that is not restricted the addresses of its round's nodes (`nodes`). Clients at
 * these addresses have precedence when connections run short. Connections of other clients are
 * closed if nothing comes on them for some time (limit.c). Returns 0 or -ENOMEM. */
int store_space_know(struct store_space *space, const struct cr_network_list *nodes);

/* Returns the numeric address on which the space listens, such as "0.0.0.0:29500". The text is
 * valid until the space is closed. */
const char *store_space_address(const struct store_space *space);

/* A connection that began with a registered magic number, as its callback gets it. `fd` is
 * non-blocking; the callback takes it over and must close it in the end. `data` holds all bytes
 * that the server has read from `fd`, the magic number included, and is valid only during the
 * callback. */
struct store_handoff {
    struct store_space *space;
    int fd;
    const void *data;
    size_t len;
};

/* A callback that takes over a connection that began with a registered magic number. The callback
 * runs on the server's thread, so it must not block. */
typedef void (*store_handoff_fn)(void *arg, const struct store_handoff *handoff);

/* Registers another protocol on the ports of the server: from now on, if the first four bytes of a
 * connection to any space are the first four bytes of `magic`, the server passes the connection to
 * `fn`. The first byte of `magic` must be above 0x08, because clients of torch send a first byte of
 * at most 0x08. Returns 0, -EINVAL if the first byte is not above 0x08, -EEXIST if the magic number
 * is in use, or -ENOSPC if eight magic numbers are registered already. */
int store_server_register_magic(struct store_server *server, const void *magic,
                                store_handoff_fn fn, void *arg);

/* Ends the counting of a connection that the callback of a magic number has taken over: until this
 * call, the connection counts against the limit of connections. Call this when the connection is
 * closed, from any thread. */
void store_server_given_back(struct store_server *server);

/* ---- gateways (store/gateway) ---- */

/* What lies between a gateway's connection and its trunk, such as encryption. All functions but
 * work() are called on the server's thread. If `open` is NULL, the bytes of the connection are
 * those of the trunk. */
struct store_codec {
    /* Begins a connection. Returns the pointer that the other functions get as `codec`, or NULL if
     * memory is short. */
    void *(*open)(void *arg);
    /* Handles bytes that were received on the connection: appends the plain bytes of the trunk to
     * `in`, and bytes that must be sent in reply to `out`. Returns 0. After a negative errno, the
     * server closes the connection. */
    int (*receive)(void *codec, const void *data, size_t len, struct cr_buffer *in,
                   struct cr_buffer *out);
    /* Appends to `out` the bytes that must be sent on the connection so that the other end gets the
     * plain bytes `data`. Returns 0 or -ENOMEM. */
    int (*send)(void *codec, const void *data, size_t len, struct cr_buffer *out);
    /* needs_work() returns whether something is to be computed that takes long: after receive(),
     * the server then calls work() on another thread, and worked() once work() has returned.
     * Meanwhile it may call receive(), but neither send() nor close(). worked() does what receive()
     * does, without new bytes. */
    bool (*needs_work)(const void *codec);
    void (*work)(void *codec);
    int (*worked)(void *codec, struct cr_buffer *in, struct cr_buffer *out);
    /* Ends a connection. May be called after the space is closed, so it must not use `arg`. */
    void (*close)(void *codec);
    void *arg;
};

/* Makes all spaces of the server accept connections of gateways. `magic` is the magic number with
 * which these connections begin: STORE_GATEWAY_MAGIC, or that of the codec's protocol. Returns what
 * store_server_register_magic() returns. */
int store_server_serve_gateways(struct store_server *server, const void *magic);
/* From now on, the space serves the gateways of this round, until the space is cleared. Before this
 * call, the space closes the connections of gateways, which try again. `codec` is copied;
 * codec->arg must live until the space is cleared or closed. */
void store_space_begin_round(struct store_space *space, uint64_t incarnation, uint64_t round,
                             const struct store_codec *codec);

/* Closes all spaces, ends the server's thread, waits for the thread and frees the server. `server`
 * may be NULL. */
void store_server_stop(struct store_server *server);

#endif
