/* The structs of the server, and its files in layers: each calls only those below it.
 *
 *   server.c       the thread, its loop, calls from other threads
 *   space.c        opening, clearing and closing spaces
 *   listen.c       binding, accepting, pausing when descriptors run out
 *   connection.c   opening a connection, reading from it, its events
 *   serve.c        from bytes to requests, and carrying them out
 *   turn.c         fairness: how much one client gets before the others are served
 *   flush.c        sending, and what to wait for next
 *   close.c        closing connections, one or many at a time; counting their memory
 *   send.c         output to the socket     lend.c   big values to the socket without a copy
 *   stat.c         the answer to 'crun-store stat'         log.c   lines about clients
 *
 * Everything below belongs to the server's thread, except what stands under `lock`. */
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

#define STORE_READ_SIZE    ((size_t) 256 << 10) /* one read of one client; size of server->rx */
#define STORE_OUTPUT_PAUSE ((size_t) 1 << 20) /* unread replies at which no more is read from it */
#define STORE_MAGICS_MAX   8
#define STORE_READY_MAX    256 /* connections served in one turn of the loop */

union store_peer {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* What every request touches comes first, and together. */
struct store_connection {
    int fd;
    uint32_t events;  /* what the server's epoll watches */
    bool sends_big;   /* its last request was a value received into memory of its own */
    bool stalled;     /* no more of its requests are carried out for now, see turn.c */
    bool half_closed; /* it closed its sending side; we close when everything is sent */
    bool closing;     /* it has left its space */
    bool dismissed;   /* closing, and its descriptor is still open, see close.c */
    bool admin;
    bool spare; /* beyond the limit of clients: only an administrator may stay */
    struct store_session session;
    struct store_parser parser;
    LIST_ENTRY(store_connection) next; /* of the space; once it left, of server->left */
    struct store_space *space;
    struct cr_buffer rx;       /* the beginning of an incomplete request */
    struct store_value *block; /* a big value that is being received; rx has what precedes it */
    size_t block_len;          /* its full length */
    size_t charged;            /* bytes of this connection in the key space's memory */
    union store_peer peer;
};

struct store_space {
    uv_poll_t poll;
    uv_timer_t resume; /* accept again, while paused */
    uv_idle_t waking;  /* runs while woken clients have not been sent their byte */
    STAILQ_ENTRY(store_space) clearing_next;
    bool clearing; /* on the server's list of spaces with memory to free */
    struct store_server *server;
    LIST_ENTRY(store_space) next;
    struct store_keyspace keys;
    LIST_HEAD(, store_connection) connections;
    size_t connection_count, admin_count;
    int fd;
    int users;   /* its open handles, and the list of clearing; freed with the last */
    bool paused; /* not accepting */
    bool closing;
    char address[80];
    uint64_t opened_ms;
    uint64_t bytes_in, bytes_out;
    uint64_t operations;
    uint64_t rate_operations, rate_since_ms; /* when the window of `rate` began */
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
    int epoll_fd;      /* watches all connections; one handle of the loop watches it: */
    uv_poll_t clients;
    uv_idle_t freeing; /* runs while `left` is not empty */
    struct epoll_event ready[STORE_READY_MAX];
    int ready_count, ready_at; /* the batch that is being served, and how far */
    size_t turn_cost;          /* of the client that is being served, see turn.c */
    LIST_HEAD(, store_connection) left; /* left their space; not closed or not freed yet */
    uv_idle_t clearing;                 /* runs while `cleared` is not empty */
    STAILQ_HEAD(, store_space) cleared; /* spaces with memory to free; some are closed */
    pthread_t thread;                   /* runs the loop */
    struct store_server_options options; /* defaults filled in */
    struct store_limits limits;
    LIST_HEAD(, store_space) spaces;
    struct store_magic magics[STORE_MAGICS_MAX];
    size_t magic_count;
    uint8_t *rx;          /* bytes are received into this, see connection.c */
    struct cr_buffer out; /* memory for output, lent to the connection that is being served */
    int lending[2];       /* a pipe, see lend.c; -1 while there is none */
    uint64_t log_since_ms;
    unsigned log_count, log_suppressed;
    void (*on_descriptor_free)(struct store_space *space); /* a paused listener can go on */

    pthread_mutex_t lock;
    pthread_cond_t done;
    STAILQ_HEAD(, store_call) calls; /* under lock: what other threads ask for */
};

/* ---- space.c ---- */

/* These run on the server's thread. Attaching returns 0 or a negative errno. */
int store_space_attach(struct store_space *space);
void store_space_clear_now(struct store_space *space);
void store_space_close_now(struct store_space *space);
void store_spaces_init(struct store_server *server);  /* once the loop exists */
void store_spaces_close(struct store_server *server); /* all of them, and the handle */

/* ---- listen.c ---- */

/* Makes a listening, non-blocking socket whose options accepted sockets inherit. */
int store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port, char address[80],
                 struct cr_error *err);
int store_listener_attach(struct store_space *space); /* 0 or a negative errno */
/* Accepts again, if it was paused: a descriptor became free. */
void store_listener_resume(struct store_space *space);
/* Accepts and closes all connections that wait to be accepted. They get a FIN; closing the listener
 * would reset them. */
void store_listener_turn_away(struct store_space *space);

/* ---- connection.c ---- */

/* The server's epoll and its handles. Returns 0 or a negative errno. */
int store_clients_open(struct store_server *server);
void store_clients_close(struct store_server *server);
void store_clients_free(struct store_server *server); /* once the loop has ended */

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer);

/* ---- serve.c ---- */

struct store_progress {
    size_t used; /* bytes that are done with */
    size_t kept; /* bytes behind them to keep, when fewer than all */
};

/* Carries out every whole request in data[0..len). It may close the connection. */
struct store_progress store_serve(struct store_connection *c, const uint8_t *data, size_t len);
/* Carries out a request whose value was received as c->block. */
void store_serve_block(struct store_connection *c);

/* ---- turn.c ---- */

/* Costs are in bytes sent, or what takes as long. */
#define STORE_TURN_COST    ((size_t) 4 << 20) /* of the requests of one client in one turn */
#define STORE_COST_OF_NAME ((size_t) 64)      /* a name that is looked up or listed */

/* Counts what looking up `names` costs the other clients. */
static inline void store_turn_add(struct store_server *server, size_t names) {
    server->turn_cost += STORE_COST_OF_NAME * names;
}
void store_turn_add_stat(struct store_server *server, size_t text_len);

/* Whether the next request of this client may be carried out now. */
static inline bool store_turn_goes_on(const struct store_connection *c) {
    return c->session.listing == NULL && c->space->server->turn_cost <= STORE_TURN_COST &&
           c->session.out.pending < STORE_OUTPUT_PAUSE;
}
/* If it may not: stalls the client and returns true, or finds that it may after all because its
 * replies could be sent. It may close the connection. */
bool store_turn_stall(struct store_connection *c);
/* Continues a LIST_KEYS by one piece. Returns whether there is more to list, or it was closed. */
bool store_turn_list_on(struct store_connection *c);
/* Sends to the sessions on the ready list, some now and the others in the next turns of the
 * loop. */
void store_turn_flush_woken(struct store_space *space);

/* ---- flush.c ---- */

/* Sends what it can, then decides what the connection waits for next; it may close it. */
void store_flush(struct store_connection *c);
/* Lend memory for output to the connection that is being served; flushing returns it. */
void store_lend_output(struct store_connection *c);

/* ---- close.c ---- */

/* Sends FIN and frees. With a reason, which is logged. Nothing of `c` may be used afterwards,
 * but its memory stays until one of the loop's next turns. */
void store_connection_close(struct store_connection *c, const char *reason);
/* Takes it out of its space; the descriptor stays open for another owner. */
void store_connection_release(struct store_connection *c);
/* Takes it out of its space at once; its FIN and all else that needs system calls follow in one
 * of the loop's next turns. For many at a time. */
void store_connection_dismiss(struct store_connection *c);
/* Counts what the connection holds in the space's memory; closes it if that is over the limit. */
void store_connection_charge(struct store_connection *c);
/* Closes and frees all that have left. */
void store_connections_free(struct store_server *server);
/* Closes with FIN: reads away what is unread, because closing would send RST otherwise. */
void store_close_softly(int fd);

/* ---- send.c ---- */

/* Sends until nothing is left, the socket's buffer is full, or it is the others' turn. Returns
 * 0, or negative when the peer is gone. */
int store_send_pending(struct store_connection *c);

/* ---- lend.c ---- */

/* Like send(): sends some of v's bytes from `offset` on, or returns -1 with errno. Returns 0 if
 * there is no descriptor for a pipe, or this kernel or a sandbox forbids lending; then copy
 * them. */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset);
void store_lend_done(struct store_server *server);

/* ---- stat.c ---- */

/* Appends the JSON text. Returns 0 or -ENOMEM. */
int store_stat(const struct store_space *space, struct cr_buffer *out);
/* Begins a new window of space->rate if the last one is old enough. */
void store_count_rate(struct store_space *space);

/* ---- log.c ---- */

/* Writes one line about a client (or about none, if `peer` is NULL), unless there were too many. */
void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason);

#endif
