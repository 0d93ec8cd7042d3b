/* What the files of rendezvous/relay share. relay.c owns the listener, trunks.c has the connections
 * to the coordinator's host, and nodes.c those of the nodes. core.c decides what is sent and
 * answered. */
#ifndef RENDEZVOUS_RELAY_INTERNAL_H
#define RENDEZVOUS_RELAY_INTERNAL_H

#include "base/log/log_limit.h"
#include "rendezvous/dial/dial.h"
#include "rendezvous/relay/core_internal.h"
#include "rendezvous/relay/relay.h"
#include "rendezvous/secure/secure.h"

#include <sys/queue.h>

/* One connection to the coordinator's host, with up to RDZV_RELAY_PLACES nodes of one job. */
struct relay_trunk {
    LIST_ENTRY(relay_trunk) entry; /* element of owner->trunks */
    struct rendezvous_relay *owner;
    struct relay core;
    char *run_id;
    struct relay_node *nodes[RDZV_RELAY_PLACES]; /* NULL = no node is at this place */
    struct secured_stream *stream;
    uv_timer_t timer;  /* runs until relay_deadline() */
    bool is_open;      /* true: the stream is connected */
    bool closing;
    int open_handles;
};

/* One connection of a node. */
struct relay_node {
    LIST_ENTRY(relay_node) entry; /* element of owner->nodes */
    struct rendezvous_relay *owner;
    struct relay_trunk *trunk; /* NULL before HELLO, and when the node has no place any more */
    uint32_t place;            /* of the node on its trunk */
    struct secure_tunnel *tunnel;
    struct cr_buffer in;       /* plain bytes received before HELLO was complete */
    struct cr_buffer plain;    /* plain bytes to send */
    struct cr_buffer writing;  /* bytes of the uv_write() that is under way */
    uv_tcp_t tcp;
    /* limits the time of the greeting, and the time from the end-of-file that this end sends until
     * the node closes its connection */
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    uv_work_t work;            /* with MUNGE: computes the answer to the node's handshake */
    bool agrees;               /* true: `work` is under way; it counts as an open handle */
    bool write_busy;
    bool ends;                 /* true: end-of-file follows the queued bytes */
    bool is_shut;              /* true: end-of-file was sent */
    bool closing;
    int open_handles;
};

struct rendezvous_relay {
    uv_loop_t *loop;
    struct cr_endpoint upstream;
    struct secure_ring *ring;  /* the secrets of the jobs; NULL = none */
    uv_tcp_t listener;
    struct refusal *refusal;   /* refuses connections when memory is short */
    struct cr_log_limit lines; /* limits the rate of log lines about refused connections */
    LIST_HEAD(relay_trunks, relay_trunk) trunks;
    LIST_HEAD(relay_nodes, relay_node) nodes;
    bool is_listening;         /* true: `listener` is open */
    bool closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
    char read_buffer[65536];
};

/* ---- trunks.c ---- */

/* Gives the node a place on a trunk of the job `run_id`, and opens a trunk if none has a free
 * place. Returns 0 or -ENOMEM. */
int relay_trunk_add(struct relay_node *node, const char *run_id, const char *addr);
/* Call this after each call of the core. Sends what the core has queued, ends the connections of
 * nodes that the core ends, and sets the timer. Closes a trunk that is over or has no nodes. */
void relay_trunk_settle(struct relay_trunk *t);
/* Ends a trunk, and resets the connections of its nodes. */
void relay_trunk_end(struct relay_trunk *t, const char *why);

/* ---- nodes.c ---- */

/* Accepts the connection that is pending at the listener. Returns 0, or -ENOMEM if there is no
 * memory for it: in that case the connection is still pending. */
int relay_node_accept(struct rendezvous_relay *relay);
void relay_node_send(struct relay_node *node, const void *data, size_t len);
/* Ends the node's connection: with end-of-file after the queued bytes, or, if is_broken, with a
 * reset at once, so that the node does not take the end for that of the coordinator's process. */
void relay_node_end(struct relay_node *node, bool is_broken);

/* ---- relay.c ---- */

/* Call this when a trunk or a node was freed. If the relay closes and nothing is left, frees it. */
void relay_freed_one(struct rendezvous_relay *relay);

#endif
