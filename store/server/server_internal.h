/* The structs of the server, and the functions that its files call in each other. The files form
 * layers; each file calls only those below it:
 *
 *   server.c       the thread, its loop, calls from other threads
 *   space.c        opening, clearing and closing spaces
 *   listen.c       binding, accepting, pausing when descriptors run out
 *   access.c       who may use a space
 *   limit.c        how many connections there may be, and how long one may be silent
 *   connection.c   opening a connection, reading from it, its events
 *   serve.c        parsing the received bytes into requests, and carrying them out
 *   turn.c         fairness: how much one client gets before the others are served
 *   flush.c        sending replies, and choosing the events to wait for next
 *   close.c        closing connections, one or many at a time; counting their memory
 *   send.c         writing output to the socket
 *   lend.c         sending big values to the socket without a copy
 *   gates.c        connections of gateways, and the trunks that outlive them
 *   stat.c         the reply to 'crun-store stat'
 *   log.c          log lines about clients
 *
 * Only the server's thread uses these structs. The exception is server->calls, which all threads
 * use with server->lock held. */
#ifndef STORE_SERVER_SERVER_INTERNAL_H
#define STORE_SERVER_SERVER_INTERNAL_H

#include "base/buffer.h"
#include "base/log/log_limit.h"
#include "store/keyspace/keyspace.h"
#include "store/server/server.h"
#include "store/wire/wire.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <uv.h>

/* size in bytes of server->rx, and largest number of bytes of one recv() */
#define STORE_READ_SIZE    ((size_t) 256 << 10)
/* number of bytes of unread replies at which the server stops reading from a client */
#define STORE_OUTPUT_PAUSE ((size_t) 1 << 20)
#define STORE_MAGICS_MAX   8
#define STORE_READY_MAX    256 /* number of connections served at most in one turn of the loop */

union store_peer {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Kinds of connections whose first bytes have not come yet; limit.c says what is done with each
 * kind. */
enum store_silent_kind {
    STORE_SILENT_TIMED,   /* the client is not near, in a space that knows its nodes: closed after
                           * SILENT_MAX_MS */
    STORE_SILENT_UNKNOWN, /* the client is not near, in a space that does not know its nodes */
    STORE_SILENT_NEAR,    /* the client is near: on this machine or at a node of the round */
    STORE_SILENT_KINDS
};
TAILQ_HEAD(store_silent, store_connection);

struct gate_line;
struct store_trunk;

/* One client's connection. The fields that every request uses come first, so that a request reads
 * few cache lines. */
struct store_connection {
    int fd;
    uint32_t events;  /* events for which the server's epoll instance watches fd */
    bool sends_big;   /* true if the value of the last request was big, so that it was received into
                       * `block` */
    /* true if the client is stalled: its next requests are carried out in a later turn (turn.c) */
    bool stalled;
    /* true if the client has closed its sending side; the server closes the connection once all
     * replies are sent */
    bool half_closed;
    bool closing; /* true once the connection has left its space; only its memory is still to be
                   * freed */
    bool dismissed;   /* true if `closing` is set but fd is still open; free_left() in close.c will
                       * close fd */
    bool admin;
    /* true if the space had client_max clients when it accepted this connection. The server then
     * closes the connection, unless its first bytes are those of the administration dialect. */
    bool spare;
    /* true: the space is restricted and does not admit the client's address. The server closes the
     * connection, unless its first bytes are a registered magic number. */
    bool stranger;
    struct store_session session;
    struct store_parser parser;
    /* links of the list space->connections; once `closing` is set, links of the list
     * server->left */
    LIST_ENTRY(store_connection) next;
    struct store_space *space;
    struct cr_buffer rx;       /* received bytes of an incomplete request */
    /* the big value that is being received, or NULL. While it is not NULL, rx holds the bytes of
     * the request before the value. */
    struct store_value *block;
    size_t block_len;          /* length in bytes of the complete value in `block` */
    size_t charged;            /* number of bytes by which this connection has raised
                                * space->keys.memory */
    union store_peer peer;
    bool near; /* true: the client is on this machine or at a node of the round */
    uint64_t opened_ms;
    struct store_silent *silent_in; /* the list of silent connections that has this one; NULL once
                                     * the dialect is known */
    TAILQ_ENTRY(store_connection) silent_next;
};

struct store_space {
    uv_poll_t poll;
    uv_timer_t resume; /* timer that runs while `paused` is set: after RESUME_MS the space tries to
                        * accept again */
    uv_idle_t waking;  /* idle handle that runs while the ready list of `keys` is not empty, and
                        * sends output to the sessions on the list */
    STAILQ_ENTRY(store_space) clearing_next;
    bool clearing; /* true while the space is in server->cleared, because it has cleared keys to
                    * free */
    struct store_server *server;
    LIST_ENTRY(store_space) next;
    struct store_keyspace keys;
    LIST_HEAD(, store_connection) connections;
    size_t connection_count, admin_count;
    int fd;
    /* number of open libuv handles, plus 1 while `clearing` is set; the space is freed when it is
     * 0 */
    int users;
    bool paused; /* true while no connections are accepted, because no descriptor was left */
    bool closing;
    bool restricted; /* true: only clients of this machine and of `admitted` are served */
    bool waits;      /* true: no connection is accepted before store_space_restrict() is called */
    bool knows_nodes; /* true: `admitted` has the addresses of the round's nodes; the space need not
                       * be restricted */
    struct cr_network_list admitted;
    LIST_HEAD(, gate_line) lines;    /* connections of gateways */
    size_t line_count;               /* number of connections in `lines` */
    LIST_HEAD(, store_trunk) trunks; /* trunks of gateways, with and without a connection */
    bool has_round; /* true: incarnation, round and codec are set, and gateways of that round are
                     * served */
    uint64_t incarnation, round;
    struct store_codec codec;
    char address[80];
    uint64_t opened_ms;
    uint64_t bytes_in, bytes_out;
    uint64_t operations;
    /* value of `operations`, and time in ms, when the present period for computing `rate` began */
    uint64_t rate_operations, rate_since_ms;
    double rate;                             /* operations per second in the previous period */
};

struct store_magic {
    uint8_t magic[STORE_MAGIC_LEN];
    store_handoff_fn fn;
    void *arg;
};

struct store_server {
    uv_loop_t loop;
    char *refused_key, *refused_why; /* see store_server_options; NULL = none */
    uv_async_t wake;
    int epoll_fd; /* epoll instance with all connections; the handle `clients` polls it */
    uv_poll_t clients;
    uv_idle_t freeing; /* idle handle that runs while `left` is not empty, and closes and frees the
                        * connections in `left` */
    struct epoll_event ready[STORE_READY_MAX];
    int ready_count, ready_at; /* number of events in `ready`, and index of the event to serve
                                * next */
    /* cost of the current client's requests in this turn, in bytes (turn.c) */
    size_t turn_cost;
    /* connections that have left their space but are not freed yet */
    LIST_HEAD(, store_connection) left;
    uv_idle_t clearing; /* idle handle that runs while `cleared` is not empty, and frees keys of the
                         * spaces in `cleared` */
    /* spaces whose cleared keys are not freed yet; some of these spaces are closed already */
    STAILQ_HEAD(, store_space) cleared;
    pthread_t thread;                   /* the thread that runs the loop */
    struct store_server_options options; /* options as given to store_server_start(), with each 0
                                          * replaced by its default */
    struct store_limits limits;
    /* Counter: its value modulo the number of ports in options.ports is the index of the port that
     * is tried next. It is atomic, because store_server_open() binds in the thread of its
     * caller. */
    atomic_uint next_port;
    LIST_HEAD(, store_space) spaces;
    struct store_magic magics[STORE_MAGICS_MAX];
    size_t magic_count;
    /* receive buffer that all connections share (connection.c); STORE_READ_SIZE bytes */
    uint8_t *rx;
    /* output memory that connections use one after the other: store_lend_output() gives it to the
     * connection that is being served, and store_flush() takes it back */
    struct cr_buffer out;
    int lending[2];       /* read end and write end of the pipe by which lend.c sends big values
                           * without a copy; -1 if the pipe is not open */
    /* number of connections that the server holds; number of those that callbacks of magic numbers
     * have taken over and not given back; the largest sum of these two numbers */
    size_t connection_count;
    atomic_size_t passed_on;
    size_t connection_max;
    struct store_silent silent[STORE_SILENT_KINDS];
    uv_timer_t silent_timer; /* timer that ends when the oldest connection of STORE_SILENT_TIMED
                              * must be closed */
    struct cr_log_limit client_lines; /* log lines about clients */
    /* function to call when a descriptor was closed: if the space has paused accepting because no
     * descriptor was left, it accepts again */
    void (*on_descriptor_free)(struct store_space *space);

    pthread_mutex_t lock;
    pthread_cond_t done;
    /* calls of other threads that are to be carried out; use them only with `lock` held */
    STAILQ_HEAD(, store_call) calls;
};

/* ---- space.c ---- */

/* Call these functions on the server's thread. store_space_attach() adds a space, whose socket
 * listens already, to the loop. It returns 0 or a negative errno. */
int store_space_attach(struct store_space *space);
void store_space_clear_now(struct store_space *space);
void store_space_close_now(struct store_space *space);
/* Initialises the handles that all spaces share. Call this after the loop was initialised. */
void store_spaces_init(struct store_server *server);
void store_spaces_close(struct store_server *server); /* closes all spaces and frees cleared keys */

/* ---- listen.c ---- */

/* Creates a listening, non-blocking socket with the options that accepted sockets inherit from it,
 * and stores its descriptor in *fd. If `port` is 0, chooses one like store_server_open(). Sets
 * *bound_port to the port in use and `address` to the numeric address. Returns 0, or a negative
 * errno and sets err. */
int store_listen(struct store_server *server, const char *host, uint16_t port, int *fd,
                 uint16_t *bound_port, char address[80], struct cr_error *err);
/* Starts to accept connections, unless the space waits for store_space_restrict(). Returns 0 or a
 * negative errno. */
int store_listener_attach(struct store_space *space);
/* Starts to accept connections if the space has waited for store_space_restrict(). */
void store_listener_begin(struct store_space *space);
/* Call this when a descriptor has become free. If the space has paused accepting because no
 * descriptor was left, it accepts again. */
void store_listener_resume(struct store_space *space);
/* Accepts all connections that wait in the kernel's queue and closes each with a FIN. Call this
 * before the listening socket is closed: the kernel would reset connections that are left in the
 * queue. */
void store_listener_turn_away(struct store_space *space);

/* ---- access.c ---- */

/* Returns whether the client at the other end of `fd` is on this machine or in space->admitted. */
bool store_space_is_near(const struct store_space *space, int fd, const union store_peer *peer);
/* Makes the space serve only this machine and the networks in `admitted`. Closes the connections of
 * other clients. Moves the list into the space. Call this on the server's thread. */
void store_space_restrict_now(struct store_space *space, struct cr_network_list *admitted);
/* Tells the space that `nodes` are the addresses of the round's nodes. This does not restrict the
 * space: the addresses only decide which clients are near (limit.c). Moves the list into the space.
 * Call this on the server's thread. */
void store_space_know_now(struct store_space *space, struct cr_network_list *nodes);
/* Closes the connection of a client that the space does not admit; logs its address. */
void store_connection_refuse(struct store_connection *c);

/* ---- limit.c ---- */

void store_limit_init(struct store_server *server);
/* Returns how many connections this process can hold without using all its descriptors. */
size_t store_limit_of_connections(void);
/* Returns whether the server may hold another connection; `near` is true if its client is near. To
 * make room, the function may close a silent connection (limit.c). */
bool store_limit_has_room(struct store_server *server, bool near);
/* These functions keep the lists of silent connections (limit.c). store_limit_opened() adds a
 * connection that was opened. store_limit_spoke() removes it; call this when the bytes that show
 * its dialect have come, or when it leaves its space. store_limit_check_again() moves it to another
 * list if necessary; call this when the nodes of its space have changed. */
void store_limit_opened(struct store_connection *c);
void store_limit_spoke(struct store_connection *c);
void store_limit_check_again(struct store_connection *c);

/* ---- gates.c ---- */

/* Closes the connections of all gateways and frees their trunks. Call this before the keys of the
 * space are cleared. */
void store_gates_drop(struct store_space *space);
/* Sends the output of a session of the ready list that belongs to a gate. */
void store_gates_flush(struct store_space *space, struct store_session *session);

/* ---- connection.c ---- */

/* Creates the epoll instance for all connections and the libuv handles that serve it. Returns 0 or
 * a negative errno. */
int store_clients_open(struct store_server *server);
void store_clients_close(struct store_server *server);
/* Frees what store_clients_open() has allocated. Call this after the loop has ended. */
void store_clients_free(struct store_server *server);

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer);

/* ---- serve.c ---- */

struct store_progress {
    size_t used; /* bytes of requests that were carried out; the caller drops these bytes */
    size_t kept; /* bytes after the `used` ones; the caller must keep them for a later call */
};

/* Carries out the complete requests in data[0..len), until no complete request is left or the
 * client is stalled. The function may close the connection: a caller that goes on using it must
 * check c->closing. */
struct store_progress store_serve(struct store_connection *c, const uint8_t *data, size_t len);
/* Carries out a request whose value has been received completely into c->block. */
void store_serve_block(struct store_connection *c);

/* ---- turn.c ---- */

/* The cost of a request is measured in bytes: a cost of n is the time that it takes to send n
 * bytes. */
#define STORE_TURN_COST    ((size_t) 4 << 20) /* cost in one turn above which a client is stalled */
#define STORE_COST_OF_NAME ((size_t) 64)      /* cost of one key that is looked up or listed */

/* Adds the cost of looking up `names` keys to the cost of the current client's requests in this
 * turn. */
static inline void store_turn_add(struct store_server *server, size_t names) {
    server->turn_cost += STORE_COST_OF_NAME * names;
}
void store_turn_add_stat(struct store_server *server, size_t text_len);

/* Returns true if the next request of this client may be carried out in this turn. */
static inline bool store_turn_goes_on(const struct store_connection *c) {
    return c->session.listing == NULL && c->space->server->turn_cost <= STORE_TURN_COST &&
           c->session.out.pending < STORE_OUTPUT_PAUSE;
}
/* Call this if store_turn_goes_on() has returned false. If the only reason was that too many bytes
 * of replies are unsent, the function sends replies. Returns false if the next request may now be
 * carried out. Otherwise stalls the client, or closes a broken connection, and returns true. */
bool store_turn_stall(struct store_connection *c);
/* Makes the next piece of the client's LIST_KEYS. Returns false if this was the last piece; true if
 * more pieces follow or the connection was closed. */
bool store_turn_list_on(struct store_connection *c);
/* Sends the output of the sessions on the ready list: up to WAKES_MAX of them now, the others in
 * the next turns of the loop. */
void store_turn_flush_woken(struct store_space *space);

/* ---- flush.c ---- */

/* Sends as much output as the socket takes, then sets the events for which the connection waits
 * next. The function may close the connection: a caller that goes on using it must check
 * c->closing. */
void store_flush(struct store_connection *c);
/* Gives the output memory server->out to the connection that is being served, unless the connection
 * has output memory of its own. store_flush() takes the memory back. */
void store_lend_output(struct store_connection *c);

/* ---- close.c ---- */

/* Closes the connection with a FIN and takes it out of its space. If `reason` is not NULL, logs it.
 * A later turn of the loop frees `c`. Until then the caller may read c->closing, but no other
 * field. */
void store_connection_close(struct store_connection *c, const char *reason);
/* Takes the connection out of its space, but leaves the descriptor open. The caller then closes the
 * descriptor or passes it to the callback of a magic number. */
void store_connection_release(struct store_connection *c);
/* Dismisses the connection: takes it out of its space at once, without a system call. A later turn
 * of the loop sends the FIN and closes the descriptor. Use this to close many connections at a
 * time. */
void store_connection_dismiss(struct store_connection *c);
/* Updates the space's count of memory to what the connection's buffers use now. Then closes the
 * connection if its buffers have grown, hold more than HELD_FREE bytes, and the space exceeds
 * memory_max. */
void store_connection_charge(struct store_connection *c);
/* Closes and frees all connections that have left their spaces. */
void store_connections_free(struct store_server *server);
/* Closes a socket so that the client gets a FIN. The kernel sends an RST instead if a socket with
 * unread input is closed. Therefore the function first reads and discards the input. */
void store_close_softly(int fd);

/* ---- send.c ---- */

/* Sends output until no output is left, the socket's buffer is full, or SEND_TURN bytes are sent.
 * Returns 0, or a negative errno if the connection is broken. */
int store_send_pending(struct store_connection *c);

/* ---- lend.c ---- */

/* Sends bytes of `v`, beginning at `offset`, without a copy. Returns the number of bytes sent, or
 * -1 and sets errno, as send() does. Returns 0 if no pipe can be opened, or if the kernel or a
 * sandbox forbids vmsplice(); the caller must then send the bytes by send() or sendmsg(). */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset);
void store_lend_done(struct store_server *server);

/* ---- stat.c ---- */

/* Appends the JSON text with the space's statistics to `out`. Returns 0 or -ENOMEM. */
int store_stat(const struct store_space *space, struct cr_buffer *out);
/* Call this after each batch of requests. If at least a second has passed since the previous
 * computation, sets space->rate to the operations per second in this time. */
void store_count_rate(struct store_space *space);

/* ---- log.c ---- */

/* Writes one log line about the client `peer`, or about the server if `peer` is NULL. If the limit
 * of such lines is reached (server->client_lines), the line is only counted. */
void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason);

#endif
