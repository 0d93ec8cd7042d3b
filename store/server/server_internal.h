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

/* bytes of one recv() at most; size of server->rx */
#define STORE_READ_SIZE    ((size_t) 256 << 10)
/* bytes of unread replies at which the server stops reading from a client */
#define STORE_OUTPUT_PAUSE ((size_t) 1 << 20)
#define STORE_MAGICS_MAX   8
#define STORE_READY_MAX    256 /* connections served in one turn of the loop */

union store_peer {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* One client's connection. The fields that every request uses stand first and together, so that a
 * request touches few cache lines. */
struct store_connection {
    int fd;
    uint32_t events;  /* events that the server's epoll waits for on fd */
    bool sends_big;   /* the last request carried a big value, which was received into `block` */
    /* the connection's requests are not carried out before a later turn, see turn.c */
    bool stalled;
    /* the client closed its sending side; the server closes when all replies are sent */
    bool half_closed;
    bool closing; /* the connection has left its space; it is only kept until its memory is freed */
    bool dismissed;   /* closing, and fd is still open: free_left() in close.c closes it */
    bool admin;
    /* the space had client_max clients when this connection was accepted, so the server closes it
     * unless it speaks the administration dialect */
    bool spare;
    struct store_session session;
    struct store_parser parser;
    /* links of space->connections, or of server->left once `closing` is set */
    LIST_ENTRY(store_connection) next;
    struct store_space *space;
    struct cr_buffer rx;       /* received bytes of a request that is not complete yet */
    /* big value that is being received, or NULL; rx then holds the request's bytes in front of the
     * value */
    struct store_value *block;
    size_t block_len;          /* length of the value in `block` once it is complete, in bytes */
    size_t charged;            /* bytes that this connection has added to space->keys.memory */
    union store_peer peer;
};

struct store_space {
    uv_poll_t poll;
    uv_timer_t resume; /* runs while `paused` is set; accepting is tried again after RESUME_MS */
    uv_idle_t waking;  /* runs while the ready list is not empty, to send to the sessions on it */
    STAILQ_ENTRY(store_space) clearing_next;
    bool clearing; /* the space is in server->cleared: it has cleared keys to free */
    struct store_server *server;
    LIST_ENTRY(store_space) next;
    struct store_keyspace keys;
    LIST_HEAD(, store_connection) connections;
    size_t connection_count, admin_count;
    int fd;
    /* count of open libuv handles, plus 1 while `clearing`; the space is freed when it drops to
     * 0 */
    int users;
    bool paused; /* no connections are accepted, because descriptors ran out */
    bool closing;
    char address[80];
    uint64_t opened_ms;
    uint64_t bytes_in, bytes_out;
    uint64_t operations;
    /* `operations` and the time when the current window of `rate` began */
    uint64_t rate_operations, rate_since_ms;
    double rate;                             /* operations per second in the last window */
};

struct store_magic {
    uint8_t magic[STORE_MAGIC_LEN];
    store_handoff_fn fn;
    void *arg;
};

struct store_server {
    uv_loop_t loop;
    uv_async_t wake;
    int epoll_fd; /* epoll instance with all connections; the loop polls it through `clients` */
    uv_poll_t clients;
    uv_idle_t freeing; /* runs while `left` is not empty; it closes and frees those connections */
    struct epoll_event ready[STORE_READY_MAX];
    int ready_count, ready_at; /* events in `ready`, and the index of the next one to serve */
    /* cost of the requests that the current client has had carried out in this turn, see turn.c */
    size_t turn_cost;
    /* connections that have left their space and are not freed yet */
    LIST_HEAD(, store_connection) left;
    uv_idle_t clearing; /* runs while `cleared` is not empty; it frees cleared keys */
    /* spaces with cleared keys to free; some of these spaces are closed already */
    STAILQ_HEAD(, store_space) cleared;
    pthread_t thread;                   /* the thread that runs the loop */
    struct store_server_options options; /* as given, with each 0 replaced by its default */
    struct store_limits limits;
    LIST_HEAD(, store_space) spaces;
    struct store_magic magics[STORE_MAGICS_MAX];
    size_t magic_count;
    /* receive buffer of STORE_READ_SIZE bytes that all connections share, see connection.c */
    uint8_t *rx;
    /* output memory that the connection being served uses until it is flushed */
    struct cr_buffer out;
    int lending[2];       /* read and write end of the pipe in lend.c; -1 while it is not open */
    uint64_t log_since_ms;
    unsigned log_count, log_suppressed;
    /* called after a descriptor was closed: resumes a paused listener */
    void (*on_descriptor_free)(struct store_space *space);

    pthread_mutex_t lock;
    pthread_cond_t done;
    /* calls from other threads that wait to be carried out; access it only with `lock` held */
    STAILQ_HEAD(, store_call) calls;
};

/* ---- space.c ---- */

/* These functions run on the server's thread. store_space_attach() adds a space with a listening
 * socket to the loop and returns 0 or a negative errno. */
int store_space_attach(struct store_space *space);
void store_space_clear_now(struct store_space *space);
void store_space_close_now(struct store_space *space);
/* initialises the handles that all spaces share; call it once the loop exists */
void store_spaces_init(struct store_server *server);
void store_spaces_close(struct store_server *server); /* closes all spaces and frees cleared keys */

/* ---- listen.c ---- */

/* Creates a listening, non-blocking socket in *fd; accepted sockets inherit its options. Sets
 * *bound_port to the port in use and `address` to the numeric address. */
int store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port, char address[80],
                 struct cr_error *err);
/* starts to accept connections; returns 0 or a negative errno */
int store_listener_attach(struct store_space *space);
/* Call this when a descriptor has become free. If accepting was paused for want of descriptors, it
 * goes on. */
void store_listener_resume(struct store_space *space);
/* Accepts all connections that wait in the kernel's queue and closes each of them, which sends a
 * FIN. Closing the listening socket instead would reset them. */
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
    size_t used; /* bytes of complete requests; the caller drops them */
    size_t kept; /* bytes behind `used` that the caller must keep until more is received */
};

/* Carries out every complete request in data[0..len), unless the client is stalled before the end.
 * May close the connection. */
struct store_progress store_serve(struct store_connection *c, const uint8_t *data, size_t len);
/* Carries out the request whose value is complete in c->block. */
void store_serve_block(struct store_connection *c);

/* ---- turn.c ---- */

/* Costs are counted in bytes: one unit is the time that sending one byte takes. */
#define STORE_TURN_COST    ((size_t) 4 << 20) /* a client is stalled above this cost in one turn */
#define STORE_COST_OF_NAME ((size_t) 64)      /* cost of looking up or listing one key */

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
/* Call this if store_turn_goes_on() returned false. If only unread replies stand in the way, it
 * tries to send them. Returns false if the next request may be carried out after all; otherwise
 * stalls the client and returns true. May close the connection. */
bool store_turn_stall(struct store_connection *c);
/* Continues the client's LIST_KEYS by one piece. Returns true if more pieces are to follow or the
 * connection was closed, false if the reply is complete. */
bool store_turn_list_on(struct store_connection *c);
/* Sends the output of the sessions on the ready list: up to WAKES_MAX of them now, the others in
 * the next turns of the loop. */
void store_turn_flush_woken(struct store_space *space);

/* ---- flush.c ---- */

/* Sends as much output as the socket takes, then sets the events for which the connection waits
 * next. May close the connection. */
void store_flush(struct store_connection *c);
/* Gives the server's shared output memory to the connection that is being served, if it has none.
 * store_flush() takes the memory back. */
void store_lend_output(struct store_connection *c);

/* ---- close.c ---- */

/* Closes the connection with a FIN and takes it out of its space. If `reason` is not NULL, it is
 * logged. The caller must not use `c` afterwards, except that c->closing may still be read in the
 * current turn of the loop: the memory is freed in a later turn. */
void store_connection_close(struct store_connection *c, const char *reason);
/* Takes the connection out of its space without closing the descriptor. The caller then closes the
 * descriptor, or passes it to the handler of a magic number. */
void store_connection_release(struct store_connection *c);
/* Dismisses the connection: takes it out of its space at once, without a system call. A later turn
 * of the loop sends the FIN and closes the descriptor. This is for closing many connections at a
 * time. */
void store_connection_dismiss(struct store_connection *c);
/* Updates the space's memory count by what the connection's buffers use now. Closes the connection
 * if the count exceeds memory_max and the connection holds much of it. */
void store_connection_charge(struct store_connection *c);
/* Closes and frees all connections that have left their spaces. */
void store_connections_free(struct store_server *server);
/* Closes a socket so that the client gets a FIN. It first reads and discards unread input, because
 * closing a socket with unread input sends an RST. */
void store_close_softly(int fd);

/* ---- send.c ---- */

/* Sends output until nothing is left, the socket's buffer is full, or SEND_TURN bytes are sent and
 * other clients shall be served first. Returns 0, or a negative errno if the connection is
 * broken. */
int store_send_pending(struct store_connection *c);

/* ---- lend.c ---- */

/* Sends some bytes of `v`, from `offset` on, without a copy. Returns like send() the number of
 * bytes sent, or -1 with errno set. Returns 0 if no pipe could be opened, or if the kernel or a
 * sandbox forbids vmsplice(); in that case the caller sends a copy. */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset);
void store_lend_done(struct store_server *server);

/* ---- stat.c ---- */

/* Appends the JSON text with the space's statistics to `out`. Returns 0 or -ENOMEM. */
int store_stat(const struct store_space *space, struct cr_buffer *out);
/* Call this often: once the current window of space->rate is a second old, it computes the rate and
 * begins a new window. */
void store_count_rate(struct store_space *space);

/* ---- log.c ---- */

/* Writes one log line about a client, or about the server if `peer` is NULL. Writes nothing if too
 * many lines were written lately (log.c). */
void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason);

#endif
