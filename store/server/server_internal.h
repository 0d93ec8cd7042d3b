/* The structs of the server, and the functions that its files call in each other. The files form
 * layers; each file calls only those below it:
 *
 *   server.c       the thread, its loop, calls from other threads
 *   space.c        opening, clearing and closing spaces
 *   listen.c       binding, accepting, pausing when descriptors run out
 *   connection.c   opening a connection, reading from it, its events
 *   serve.c        parsing the received bytes into requests, and carrying them out
 *   turn.c         fairness: how much one client gets before the others are served
 *   flush.c        sending replies, and choosing the events to wait for next
 *   close.c        closing connections, one or many at a time; counting their memory
 *   send.c         writing output to the socket
 *   lend.c         sending big values to the socket without a copy
 *   stat.c         the reply to 'crun-store stat'
 *   log.c          log lines about clients
 *
 * Only the server's thread uses these structs, except the fields that are marked "under lock". */
#ifndef STORE_SERVER_SERVER_INTERNAL_H
#define STORE_SERVER_SERVER_INTERNAL_H

#include "base/buffer.h"
#include "store/keyspace/keyspace.h"
#include "store/server/server.h"
#include "store/wire/wire.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <uv.h>

/* most bytes of one recv(), and size of server->rx */
#define STORE_READ_SIZE    ((size_t) 256 << 10)
/* number of bytes of unread replies at which the server stops reading from a client */
#define STORE_OUTPUT_PAUSE ((size_t) 1 << 20)
#define STORE_MAGICS_MAX   8
#define STORE_READY_MAX    256 /* most connections that are served in one turn of the loop */

union store_peer {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* One client's connection. The fields that every request uses stand first, so that a request
 * touches few cache lines. */
struct store_connection {
    int fd;
    uint32_t events;  /* events for which the server's epoll instance watches fd */
    bool sends_big;   /* true if the value of the last request was big and was received into
                       * `block` */
    /* true if the connection's requests must wait for a later turn (turn.c) */
    bool stalled;
    /* true if the client has closed its sending side; the server closes the connection when all
     * replies are sent */
    bool half_closed;
    bool closing; /* true once the connection has left its space; only its memory is still to be
                   * freed */
    bool dismissed;   /* true if `closing` is set but fd is still open; free_left() in close.c
                       * closes fd */
    bool admin;
    /* true if the space had client_max clients when it accepted this connection; the server closes
     * the connection unless it speaks the administration dialect */
    bool spare;
    struct store_session session;
    struct store_parser parser;
    /* links of space->connections; once `closing` is set, links of server->left */
    LIST_ENTRY(store_connection) next;
    struct store_space *space;
    struct cr_buffer rx;       /* received bytes of an incomplete request */
    /* the big value that is being received, or NULL; rx then holds the request's bytes before the
     * value */
    struct store_value *block;
    size_t block_len;          /* length in bytes of the complete value in `block` */
    size_t charged;            /* number of bytes by which this connection has raised
                                * space->keys.memory */
    union store_peer peer;
};

struct store_space {
    uv_poll_t poll;
    uv_timer_t resume; /* timer that runs while `paused` is set and tries to accept again after
                        * RESUME_MS */
    uv_idle_t waking;  /* idle handle that runs while the ready list is not empty, and sends output
                        * to its sessions */
    STAILQ_ENTRY(store_space) clearing_next;
    bool clearing; /* true while the space is in server->cleared, because it has cleared keys to
                    * free */
    struct store_server *server;
    LIST_ENTRY(store_space) next;
    struct store_keyspace keys;
    LIST_HEAD(, store_connection) connections;
    size_t connection_count, admin_count;
    int fd;
    /* number of open libuv handles, plus 1 while `clearing`; at 0 the space is freed */
    int users;
    bool paused; /* true while no connections are accepted, because no descriptor was left */
    bool closing;
    char address[80];
    uint64_t opened_ms;
    uint64_t bytes_in, bytes_out;
    uint64_t operations;
    /* values of `operations` and of the clock (ms) at the begin of the time for which `rate` is
     * counted */
    uint64_t rate_operations, rate_since_ms;
    double rate;                             /* operations per second, as last computed */
};

struct store_magic {
    uint8_t magic[STORE_MAGIC_LEN];
    store_handoff_fn fn;
    void *arg;
};

struct store_server {
    uv_loop_t loop;
    uv_async_t wake;
    int epoll_fd; /* epoll instance with all connections; the loop polls it by `clients` */
    uv_poll_t clients;
    uv_idle_t freeing; /* idle handle that runs while `left` is not empty, and closes and frees its
                        * connections */
    struct epoll_event ready[STORE_READY_MAX];
    int ready_count, ready_at; /* number of events in `ready`, and index of the event to serve
                                * next */
    /* cost of the current client's requests in this turn, in bytes (turn.c) */
    size_t turn_cost;
    /* connections that have left their space and are still to be freed */
    LIST_HEAD(, store_connection) left;
    uv_idle_t clearing; /* idle handle that runs while `cleared` is not empty, and frees cleared
                         * keys */
    /* spaces whose cleared keys are still to be freed; some of these spaces are closed already */
    STAILQ_HEAD(, store_space) cleared;
    pthread_t thread;                   /* the thread that runs the loop */
    struct store_server_options options; /* options as given to store_server_start(), with each 0
                                          * replaced by its default */
    struct store_limits limits;
    LIST_HEAD(, store_space) spaces;
    struct store_magic magics[STORE_MAGICS_MAX];
    size_t magic_count;
    /* receive buffer that all connections share (connection.c); STORE_READ_SIZE bytes */
    uint8_t *rx;
    /* output memory that is lent to the connection being served, until store_flush() takes it
     * back */
    struct cr_buffer out;
    int lending[2];       /* read end and write end of the pipe in lend.c, or -1 */
    uint64_t log_since_ms;
    unsigned log_count, log_suppressed;
    /* function to call when a descriptor was closed; it resumes accepting */
    void (*on_descriptor_free)(struct store_space *space);

    pthread_mutex_t lock;
    pthread_cond_t done;
    /* calls of other threads that are to be carried out; protected by `lock` */
    STAILQ_HEAD(, store_call) calls;
};

/* ---- space.c ---- */

/* These functions run on the server's thread. store_space_attach() adds a space, whose socket
 * listens already, to the loop, and returns 0 or a negative errno. */
int store_space_attach(struct store_space *space);
void store_space_clear_now(struct store_space *space);
void store_space_close_now(struct store_space *space);
/* initialises the handles that all spaces share; call it once the loop exists */
void store_spaces_init(struct store_server *server);
void store_spaces_close(struct store_server *server); /* closes all spaces and frees cleared keys */

/* ---- listen.c ---- */

/* Creates a listening, non-blocking socket in *fd with the options that its accepted sockets
 * inherit. Sets *bound_port to the port in use and `address` to the numeric address. */
int store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port, char address[80],
                 struct cr_error *err);
/* starts to accept connections; returns 0 or a negative errno */
int store_listener_attach(struct store_space *space);
/* Call this when a descriptor has become free. If accepting was paused because no descriptor was
 * left, it resumes accepting. */
void store_listener_resume(struct store_space *space);
/* Accepts all connections that wait in the kernel's queue and closes each with a FIN. If only the
 * listening socket were closed, the kernel would reset these connections. */
void store_listener_turn_away(struct store_space *space);

/* ---- connection.c ---- */

/* Creates the epoll instance for all connections and the libuv handles that serve it. Returns 0 or
 * a negative errno. */
int store_clients_open(struct store_server *server);
void store_clients_close(struct store_server *server);
/* frees what store_clients_open() has allocated; call it once the loop has ended */
void store_clients_free(struct store_server *server);

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer);

/* ---- serve.c ---- */

struct store_progress {
    size_t used; /* bytes of the requests that were carried out; the caller drops them */
    size_t kept; /* bytes after `used` that the caller must keep until more bytes have arrived */
};

/* Carries out the complete requests in data[0..len), until the client is stalled or no complete
 * request is left. May close the connection. */
struct store_progress store_serve(struct store_connection *c, const uint8_t *data, size_t len);
/* Carries out the request whose value is complete in c->block. */
void store_serve_block(struct store_connection *c);

/* ---- turn.c ---- */

/* Costs are measured in bytes: a cost of n is the time that it takes to send n bytes. */
#define STORE_TURN_COST    ((size_t) 4 << 20) /* cost in one turn above which a client is stalled */
#define STORE_COST_OF_NAME ((size_t) 64)      /* cost of one key that is looked up or listed */

/* Adds the cost of looking up `names` keys to the cost of the current client's turn. */
static inline void store_turn_add(struct store_server *server, size_t names) {
    server->turn_cost += STORE_COST_OF_NAME * names;
}
void store_turn_add_stat(struct store_server *server, size_t text_len);

/* Returns whether the next request of this client may be carried out in this turn. */
static inline bool store_turn_goes_on(const struct store_connection *c) {
    return c->session.listing == NULL && c->space->server->turn_cost <= STORE_TURN_COST &&
           c->session.out.pending < STORE_OUTPUT_PAUSE;
}
/* Call this if store_turn_goes_on() has returned false. If the only reason is unread replies, it
 * tries to send them. Returns false if the next request may now be carried out; otherwise stalls
 * the client and returns true. May close the connection. */
bool store_turn_stall(struct store_connection *c);
/* Makes the next piece of the client's LIST_KEYS. Returns false if the reply is complete; true if
 * more pieces follow or the connection was closed. */
bool store_turn_list_on(struct store_connection *c);
/* Sends the output of the sessions on the ready list: up to WAKES_MAX of them now, the others in
 * the next turns of the loop. */
void store_turn_flush_woken(struct store_space *space);

/* ---- flush.c ---- */

/* Sends as much output as the socket takes, then sets the events for which the connection waits
 * next. May close the connection. */
void store_flush(struct store_connection *c);
/* Lends the server's shared output memory to the connection that is being served, unless the
 * connection has output memory. store_flush() takes the memory back. */
void store_lend_output(struct store_connection *c);

/* ---- close.c ---- */

/* Closes the connection with a FIN and takes it out of its space. If `reason` is not NULL, logs it.
 * After the call, the caller may only read c->closing, and that only in the same turn of the loop:
 * a later turn frees the memory. */
void store_connection_close(struct store_connection *c, const char *reason);
/* Takes the connection out of its space without closing the descriptor. The caller then closes the
 * descriptor, or passes it to the handler of a magic number. */
void store_connection_release(struct store_connection *c);
/* Dismisses the connection: takes it out of its space at once, without a system call. A later turn
 * of the loop sends the FIN and closes the descriptor. This is for closing many connections at a
 * time. */
void store_connection_dismiss(struct store_connection *c);
/* Updates the space's count of memory to what the connection's buffers use now. If the space then
 * exceeds memory_max and the connection holds more than HELD_FREE bytes, closes the connection. */
void store_connection_charge(struct store_connection *c);
/* Closes and frees all connections that have left their spaces. */
void store_connections_free(struct store_server *server);
/* Closes a socket so that the client gets a FIN. It first reads and discards unread input, because
 * the kernel answers the closing of a socket with unread input by an RST. */
void store_close_softly(int fd);

/* ---- send.c ---- */

/* Sends output until nothing is left, the socket's buffer is full, or SEND_TURN bytes are sent and
 * other clients must be served. Returns 0, or a negative errno if the connection is broken. */
int store_send_pending(struct store_connection *c);

/* ---- lend.c ---- */

/* Sends a part of `v`, from `offset` on, without a copy. Returns the number of bytes sent, or -1
 * and sets errno, as send() does. Returns 0 if no pipe can be opened, or if the kernel or a sandbox
 * forbids vmsplice(); the caller must then send a copy. */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset);
void store_lend_done(struct store_server *server);

/* ---- stat.c ---- */

/* Appends the JSON text with the space's statistics to `out`. Returns 0 or -ENOMEM. */
int store_stat(const struct store_space *space, struct cr_buffer *out);
/* Call this at each request. If a second has passed since the rate was computed, it computes
 * space->rate for that time. */
void store_count_rate(struct store_space *space);

/* ---- log.c ---- */

/* Writes one log line about the client `peer`, or about the server if `peer` is NULL. Writes
 * nothing if too many lines were written recently (log.c). */
void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason);

#endif
