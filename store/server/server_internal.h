/* The server's own structs, shared by its five files:
 *
 *   server.c             the thread, its loop, calls from other threads, spaces
 *   server_listen.c      binding, accepting, pausing when descriptors run out
 *   server_connection.c  bytes in, requests, bytes out, closing
 *   server_lend.c        big values to the socket without a copy
 *   server_stat.c        the answer to 'crun-store stat'
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
#include <uv.h>

#define STORE_READ_SIZE    ((size_t) 256 << 10) /* at most that much a wake-up of one client */
#define STORE_BIG_PEEK     ((size_t) 4 << 10)   /* first bite, where a big value is expected */
#define STORE_OUTPUT_PAUSE ((size_t) 1 << 20) /* unread replies at which we stop reading requests */
#define STORE_HELD_FREE     ((size_t) 64 << 10)  /* nobody is closed for holding less, full or not */
#define STORE_SEND_TURN     ((size_t) 4 << 20)   /* to one client, before the others have their turn */

/* What one client may cost the others before it is their turn, in bytes sent or what takes as
 * long. */
#define STORE_TURN_COST    ((size_t) 4 << 20)
#define STORE_COST_OF_NAME ((size_t) 64)       /* one that is looked up, or listed */
#define STORE_COST_OF_STAT ((size_t) 64 << 10) /* and the length of its text */

#define STORE_STAT_TEXT_MAX ((size_t) 1 << 20)   /* no further waiter is listed behind that */
#define STORE_MAGICS_MAX   8
#define STORE_ADMIN_SPARE                                                                          \
    8 /* connections beyond client_max, so that a full store can be looked into */
#define STORE_ACCEPTS_MAX   1024 /* a wake-up */
#define STORE_WAKES_MAX     512  /* waiters answered in one go */
#define STORE_BURIALS_MAX   64   /* closed connections let go of in one turn */
#define STORE_RESUME_MS     200  /* accept again, after descriptors ran out */
#define STORE_LOGS_MAX      20   /* lines about clients in one window; the others are counted */
#define STORE_LOG_WINDOW_MS 10000

/* A peer is dead after a minute of silence plus six lost probes, or when data stays
 * unacknowledged, or its window shut, for two minutes. */
#define STORE_READY_MAX 256 /* connections served in one turn of the loop */

#define STORE_KEEPALIVE_IDLE_S     60
#define STORE_KEEPALIVE_INTERVAL_S 10
#define STORE_KEEPALIVE_PROBES     6
#define STORE_USER_TIMEOUT_MS      120000u

union store_peer {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* What every request touches comes first, and together. */
struct store_connection {
    int fd;
    uint32_t events; /* what the server's epoll watches */
    bool sends_big;  /* its last request was a value received into a block */
    bool stalled;    /* it does not read its replies: neither do we its requests */
    bool finished;   /* it closed its sending side; closed when everything is sent */
    bool closing;
    bool dismissed; /* closing, and its descriptor is still open */
    bool admin;
    bool spare; /* beyond the limit of clients: only an administrator may stay */
    struct store_session session;
    struct store_parser parser;
    struct store_connection *next, *prev; /* of the space */
    struct store_space *space;            /* NULL once it left */
    struct cr_buffer rx;                  /* the beginning of a request whose end has not come */
    struct store_value *block;            /* a big value being received; rx has its head */
    size_t block_len;                     /* its full length */
    size_t charged;                       /* bytes of it counted in the key space's memory */
    union store_peer peer;
};

struct store_space {
    uv_poll_t poll;
    uv_timer_t resume;
    uv_idle_t waking; /* runs while woken clients have not been sent their byte */
    struct store_space *clearing_next;
    bool clearing; /* in the server's list */
    struct store_server *server;
    struct store_space *next, *prev;
    struct store_keyspace keys;
    struct store_connection *connections;
    size_t connection_count, admin_count;
    int fd;
    int users; /* its open handles, and the list of clearing; freed with the last */
    bool paused; /* not accepting */
    bool closing;
    char address[80];
    uint64_t opened_ms;
    uint64_t bytes_in, bytes_out;
    uint64_t operations, rate_operations, rate_since_ms; /* rate_…: when the window began */
    double rate;
};

struct store_magic {
    uint8_t magic[STORE_MAGIC_LEN];
    store_handoff_fn fn;
    void *arg;
};

struct store_server {
    uv_loop_t loop;
    uv_async_t wake;
    int epoll_fd;       /* of all connections; one handle of the loop watches it … */
    uv_poll_t clients;  /* … this one */
    uv_idle_t burial;   /* runs while connections wait to be freed */
    struct epoll_event ready[STORE_READY_MAX];
    int ready_count, ready_at; /* the batch that is being served, and how far */
    size_t turn_cost; /* of the client being served, see STORE_TURN_COST */
    struct store_connection *closed; /* by .next: left, and not freed or not closed yet */
    uv_idle_t clearing;              /* runs while there is something cleared to free */
    struct store_space *clearing_first, *clearing_last; /* whose it is; some are closed */
    pthread_t thread; /* runs the loop */
    struct store_server_options options; /* defaults filled in */
    struct store_limits limits;
    struct store_space *spaces;
    struct store_magic magics[STORE_MAGICS_MAX];
    size_t magic_count;
    uint8_t *rx;          /* one read at a time lands here */
    struct cr_buffer out; /* spare output memory, lent to who is being served */
    int lending[2];       /* a pipe, -1 while there is none */
    uint64_t log_since_ms;
    unsigned log_count, log_suppressed;

    pthread_mutex_t lock;
    pthread_cond_t done;
    struct store_call *calls; /* under lock: what other threads ask for */
};

/* ---- server_listen.c ---- */

/* A listening, non-blocking socket, its options set so that accepted ones inherit them. */
int store_listen(const char *host, uint16_t port, int *fd, uint16_t *bound_port, char address[80],
                 struct cr_error *err);
void store_listener_attach(struct store_space *space);
void store_listener_resume(struct store_space *space); /* a descriptor became free */
/* Whoever still waits to be accepted gets a FIN instead of the RST that closing the listener is. */
void store_listener_turn_away(struct store_space *space);

/* ---- server_connection.c ---- */

/* The server's epoll and its handles. 0 or a negative errno. */
int store_clients_open(struct store_server *server);
void store_clients_close(struct store_server *server);
void store_clients_free(struct store_server *server); /* once the loop has ended */

void store_connection_open(struct store_space *space, int fd, const union store_peer *peer);
/* Says FIN and frees. With a reason it is logged. Nothing of c may be used afterwards, but the
 * memory stays until one of the loop's next turns. */
void store_connection_close(struct store_connection *c, const char *reason);
/* Takes it out of the space at once; FIN, and everything that needs system calls, follows in
 * one of the loop's next turns. For many at a time: each of those calls is a few us. */
void store_connection_dismiss(struct store_connection *c);
/* Reads away what is unread, which would turn our FIN into a RST, and closes. */
void store_close_softly(int fd);

/* ---- server_lend.c ---- */

/* Like send(): some of v's bytes from offset on, or -1 and errno. 0: no descriptor is left, or this
 * kernel or sandbox does not let us; copy them. */
ssize_t store_lend(struct store_server *server, int fd, struct store_value *v, size_t offset);
void store_lend_done(struct store_server *server);

/* ---- server_stat.c ---- */

/* Appends the JSON text; 0 or -ENOMEM. */
int store_stat(const struct store_space *space, struct cr_buffer *out);

/* ---- server.c ---- */

/* One line about a client, unless there were many just now. */
void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason);

#endif
