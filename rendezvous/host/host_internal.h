/* What the files of rendezvous/host share. host.c opens and closes the host, and has
 * host_end_event(), with which every event ends. jobs.c has the stores of the jobs and the actions
 * of their coordinators (job_table.c is its pure part), peers.c the connections of nodes and
 * operators, relays.c the nodes behind relays (trunk_end.c is its pure part), operators.c the
 * answers to operators, guard.c whom the stores serve, handoff.c the connections that come from the
 * store's thread, and agreements.c the handshakes that other threads compute. trust.c decides what
 * a node or an operator may do, which depends on whether it has authenticated.
 *
 * A coordinator's action never frees a peer, because its caller, the coordinator, may still use the
 * peer. The actions only queue bytes and put the peer into host->unsent. host_end_event() sends the
 * bytes and closes the connections that are over. */
#ifndef RENDEZVOUS_HOST_INTERNAL_H
#define RENDEZVOUS_HOST_INTERNAL_H

#include "base/log/log_limit.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/host/host.h"
#include "rendezvous/host/job_table_internal.h"
#include "rendezvous/host/trunk_end_internal.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/secure/secure.h"
#include "store/store.h"

#include <sys/queue.h>

/* One job, and the key space of its current round. */
struct job_store {
    struct host_job job;
    struct store_space *space;
    struct cr_network_list admitted; /* addresses of the nodes of the round */
};

/* One connection of a node or an operator to this host. */
struct host_peer {
    LIST_ENTRY(host_peer) entry; /* element of host->peers */
    LIST_ENTRY(host_peer) unsent_entry;
    bool is_unsent;                /* true: the peer is in host->unsent */
    struct coordinator_host *host;
    /* the job of the node, or of the operator that waits for an inquiry; NULL before HELLO */
    struct host_job *job;
    /* If this peer is an operator that has ordered an inspection: the number of the inspection,
     * which the nodes' answers carry, and how many nodes have not answered yet. inspection 0 = none
     * was ordered. */
    uint64_t inspection;
    uint32_t inspected_left;
    /* the node's wall clock minus the wall clock of this process, and the largest error of this
     * difference, both in ns; error -1 = the node has not sent its clock yet */
    int64_t offset_ns, offset_error_ns;
    /* the job of the inspection. This pointer is only compared, because the job may have been
     * freed. */
    const struct host_job *inspects;
    struct coordinator_seat *seat; /* NULL before JOIN, and after host_peer_hang_up() */
    struct host_session session;
    /* the addresses from which the node's workers may use the store */
    struct cr_network_list addresses;
    bool local;
    /* true: this peer is an operator that waits for the result of an inquiry; the operator's order
     * was sent to nodes_told nodes */
    bool awaits_inquiry;
    uint32_t nodes_told;

    /* used only if the node is in this process (`local`) */
    void (*deliver)(void *arg, const char *data, size_t len);
    void *deliver_arg;

    /* the TCP connection of a node, an operator or a relay; NULL = a node in this process, or one
     * behind a relay */
    struct host_wire *wire;
    struct host_trunk *trunk; /* used only if this peer is a relay; else NULL */

    /* used only if the node is behind a relay */
    struct trunk_member member;
    struct cr_ip relayed_ip;  /* address of the node, as the relay has seen it; all 0 = not known */
    bool is_relayed;          /* true: the node is behind a relay, or was when the relay was lost */

    uint64_t named_epoch; /* the epoch in the node's HELLO */
    bool closing; /* true: the connection is being closed, and its session is over */
};

/* The TCP connection of a peer in another process. */
struct host_wire {
    STAILQ_ENTRY(host_wire) agreement_entry; /* element of host->agreements.waiting */
    struct secure_tunnel *tunnel; /* between `tcp` and the peer's session */
    uv_tcp_t tcp;
    uv_timer_t timer;         /* runs until host_session_deadline() */
    int64_t armed_ms;         /* time to which `timer` is set; CR_FOREVER = it is stopped */
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct cr_buffer writing; /* bytes of the uv_write() that is under way */
    bool resets; /* true: the connection ends with a reset, so that the node may resume */
    bool write_busy, shut;
    bool agrees; /* true: the answer to the peer's first handshake message is being computed */
    int open_handles; /* the answer that is being computed counts as a handle */
};

/* What a host keeps about the connection of a relay (relays.c). */
struct host_trunk {
    struct trunk_end end;
    char *run_id; /* the job of all members behind the relay */
};

/* A connection on its way from the store's thread to the agent's loop, with the bytes that the
 * store's server has already read from it. */
struct handoff {
    STAILQ_ENTRY(handoff) entry;
    int fd;
    size_t len;
    char data[];
};

/* The answers to first handshake messages that are computed outside the loop (agreements.c). */
struct host_agreements {
    STAILQ_HEAD(, host_wire) waiting; /* connections of peers that are in no batch yet */
    uint32_t running;  /* number of batches that libuv's pool has now */
    /* upper limit of `running`; 0 = this machine has one core, and the host does not use MUNGE */
    uint32_t threads;
    bool has_threads;  /* true: `threads` was determined */
    int64_t since_ms;  /* time in ms at which the present window began */
    /* number of connections in the present window; it begins at the largest number that the loop
     * answers itself if the window before had more connections than that */
    uint32_t count;
};

struct coordinator_host {
    uv_loop_t *loop;
    struct store_server *store;
    /* the key space to whose port nodes connect; NULL if they connect to the store's fixed port */
    struct store_space *door;
    char *store_host;
    char store_addr[RDZV_ADDR_MAX];
    uint16_t store_port;
    struct rendezvous_store_guard guard;
    bool is_restricted; /* true: the stores serve only nodes of their round and guard.networks */
    struct host_session_terms terms;
    struct secure_ring *ring; /* see coordinator_host_options */
    /* true: if the jobs of this host are open, host_say_if_open() has to log it */
    bool says_open;

    /* store of the first round; opened together with the host, so that an error is reported at
     * once; NULL = the first round has begun, or there was no such store */
    struct store_space *spare;
    uint16_t spare_port, door_port;
    struct job_table jobs;
    LIST_HEAD(host_peers, host_peer) peers;
    uint64_t inspections; /* number of inspections that operators have ordered */
    /* peers that host_end_event() has to flush. Relays are in a list of their own and are flushed
     * last, so that the bytes for all members of a relay go in one write. */
    LIST_HEAD(host_unsent, host_peer) unsent, unsent_relays;

    uv_mutex_t lock;   /* protects `handoffs` and `listens` */
    STAILQ_HEAD(host_handoffs, handoff) handoffs;
    bool listens;      /* true: `wake` is initialised, so uv_async_send() may be called with it */
    uv_async_t wake;   /* sent by the store's thread */
    /* Expires at stand_by_ms or at the next deadline of a job, whichever is earlier. While the host
     * closes, it expires when close_timeout_ms are over. */
    uv_timer_t timer;
    /* buffer of READ_MAX bytes, which the reads from all nodes use in turn; NULL until the first
     * read */
    char *read_buffer;

    /* limit the rate of log lines about jobs and nodes: `infos` of lines of the level info,
     * `warnings` of warnings and errors */
    struct cr_log_limit warnings, infos;
    /* limits the rate of log lines about peers that could not authenticate */
    struct cr_log_limit refusals;
    struct host_agreements agreements;

    /* true if coordinator_host_close() was called, but jobs of other launchers still run; when
     * these jobs are over, the host begins to close */
    bool lingers;
    char *own_run_id;    /* run id of this launcher's own job; "" in crun-agent */
    int64_t held_ms;     /* see coordinator_host_options */
    int64_t stand_by_ms; /* time at which the host stands by; CR_FOREVER = no round is held */

    bool closing, closing_handles;
    bool time_is_up; /* true: close_timeout_ms have passed since the host began to close */
    int open_handles;
    char why[256]; /* why the host closes */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- host.c ---- */

int64_t host_now_ms(const struct coordinator_host *host);
void host_end_event(struct coordinator_host *host);
/* Logs a line that a coordinator or a session has written. Nodes cause these lines, so their rate
 * is limited, except for lines of the level debug. */
void host_log(struct coordinator_host *host, enum cr_log_level level, const char *text);

/* ---- jobs.c ---- */

/* The host's actions for its struct job_table. */
extern const struct job_table_actions host_job_actions;

struct coordinator_host *host_of_job(const struct host_job *job);
struct job_store *host_job_store(struct host_job *job);
/* Calls job_table_get() with the address from which the connection of `peer`, or of its relay, has
 * come; if `peer` is NULL, the job is made for this host's own node. */
int host_get_job(struct coordinator_host *host, const struct host_peer *peer, const char *run_id,
                 struct host_job **out, struct cr_error *err);
/* Calls job_table_connect() for the peer, and stores the job in peer->job. */
int host_connect_job(struct host_peer *peer, const char *run_id, struct cr_error *err);
/* Call this after store_server_stop(), which has closed and freed the spaces. */
void host_forget_spaces(struct coordinator_host *host);
/* Returns whether a closing host has to wait for nodes (job_table_awaits_nodes()). It does not wait
 * once close_timeout_ms have passed. */
bool host_awaits_nodes(const struct coordinator_host *host);

int host_open_space(struct coordinator_host *host, struct store_space **space, uint16_t *port,
                    struct cr_error *err);

/* ---- gate_codec.c ---- */

/* Makes the codec between a store's gates and their connections. If `ring` is not NULL, the codec
 * is the tunnel by which gateways show that they have the key of a member of the job `run_id`; it
 * gets a copy of the secrets. If `ring` is NULL, the codec does nothing. Returns 0 or -ENOMEM. */
int host_gate_codec_new(struct secure_ring *ring, const char *run_id, struct store_codec *out);
/* Wipes the secrets. Call this when no store uses the codec any more. */
void host_gate_codec_free(struct store_codec *codec);

/* ---- guard.c ---- */

/* Returns whether the stores of a job with this guard are closed to strangers: they serve the nodes
 * of their round and the clients in guard->networks, and nobody else. */
bool host_guard_restricts(const struct rendezvous_store_guard *guard, bool has_secret);
/* Appends the networks of the guard to the list. Returns 0 or -ENOMEM. */
int host_guard_add(const struct rendezvous_store_guard *guard, struct cr_network_list *list);
/* Sorts `nodes`, the addresses of the nodes of a round, and passes the list to the space of that
 * round. If is_restricted is true, the space serves only clients of this machine and of the list.
 * Returns 0 or -ENOMEM. */
int host_tell_space(struct store_space *space, bool is_restricted, struct cr_network_list *nodes);
/* Stores in *out the address from which a remote peer has connected. Returns 0, or -ENOTCONN if the
 * address is not known, or if the peer is in this process. */
int host_peer_ip(const struct host_peer *peer, struct cr_ip *out);
/* Call this when a node has sent JOIN or RESUME. Notes the addresses from which its workers may
 * come: those in the message, and the one from which the node has connected. */
void host_note_addresses(struct host_peer *peer, const struct rdzv_join *join);
/* Call this for a space at whose port there is no store of a round yet. If the stores are
 * restricted, the space then serves only this machine and guard.networks. Does nothing if `space`
 * is NULL. Returns 0, or -ENOMEM and a text in err. */
int host_close_door(struct coordinator_host *host, struct store_space *space,
                    struct cr_error *err);
/* The coordinator's actions `admit` and `prepare_store`; `arg` is the job. */
void host_admit(void *arg, void *peer);
void host_prepare_store(void *arg, void *peer, uint64_t round, bool has_store);

/* ---- peers.c ---- */

/* Adds the connection of a remote node, and handles the bytes that were already read from it. From
 * now on the host owns `fd` and closes it. */
void host_add_remote(struct coordinator_host *host, int fd, const char *data, size_t len);
/* host_peer_send() queues a message. host_peer_hang_up() queues the end of the session: the
 * connection is closed when all queued bytes are sent. */
void host_peer_send(struct host_peer *peer, const struct rdzv_message *m);
void host_peer_hang_up(struct host_peer *peer);
/* Sends the peer's queued bytes, and closes its connection if the session is over. */
void host_peer_flush(struct host_peer *peer);
/* Closes the connection of a remote node. This makes the coordinator free the node's seat
 * (RENDEZVOUS_CLOSED) or suspend it (RENDEZVOUS_BROKEN). */
void host_peer_close(struct host_peer *peer, enum rendezvous_loss how, const char *why);
/* If the remote node has a seat, sends it GOODBYE at once. Call this before the host closes the
 * node's connection for another reason than the end of this process: without GOODBYE, the node
 * would take the end of the connection for the end of this process. */
void host_peer_say_goodbye(struct host_peer *peer, const char *why);
/* Closes the connection of a remote node, but does not tell the node's coordinator, because the
 * caller is about to free the coordinator. */
void host_peer_forget(struct host_peer *peer, const char *why);

/* Adds a peer, and opens its session. Returns NULL when memory is short. */
struct host_peer *host_peer_new(struct coordinator_host *host, bool local);
/* Frees a peer whose connection, if it had one of its own, is closed. */
void host_peer_free(struct host_peer *peer);
/* Call this when a handle of a remote peer is closed. Frees the peer if it was the last one. */
void host_peer_handle_closed(struct host_peer *peer);
/* Makes host_end_event() flush the peer. */
void host_peer_mark(struct host_peer *peer);

/* ---- relays.c ---- */

/* The session's actions of a peer that is a relay. */
int host_on_relay(void *arg, const struct rdzv_relay *relay, struct cr_error *err);
int host_on_trunk(void *arg, const char *data, size_t len, struct cr_error *err);
/* Returns the relay of this node; NULL if the node is behind none, or if the relay is lost. */
struct host_peer *host_relay_of(const struct host_peer *peer);
/* Closes the sessions of all members of a relay whose connection is over; these members may resume.
 * Does nothing if the peer is no relay. */
void host_relay_lost(struct host_peer *relay, const char *why);
void host_trunk_free(struct host_trunk *t); /* `t` may be NULL */
/* A node behind a relay has a session of its own, which queues bytes for the node.
 * host_push_relayed() moves these bytes to the output of the relay. host_flush_relayed() does so,
 * too; if the node's session is over, it also frees the peer. */
void host_push_relayed(struct host_peer *peer);
void host_flush_relayed(struct host_peer *peer);
/* If the message answers a beat that came by HOLD, stores it in the trunk of the node's relay and
 * returns true: the message must not be sent. Otherwise returns false. */
bool host_relay_keeps(struct host_peer *peer, const struct rdzv_message *m);
/* Call this when the host closes. Closes the connections of relays without members. */
void host_end_relays(struct coordinator_host *host);

/* ---- operators.c ---- */

void host_answer_status(struct host_peer *peer);
/* Handles OPERATE. Returns 0 if the order was answered; 1 if an answer is still to come by
 * host_answer_inquiry() or host_pass_row(); or a negative errno and a text in err. */
int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *what,
                        struct cr_error *err);
/* Call this when a node has sent its wall clock, in BEAT or FAILURE. Measures by how much the
 * node's clock is ahead of the clock of this process. */
void host_note_clock(struct host_peer *from, int64_t wall_ns);
/* Passes a FAILURE of a node on to all nodes of its job, and adds by how much the clock of the
 * sender is ahead of the clock of this process. */
void host_pass_failure(struct host_peer *from, const struct rdzv_failure *failure);
/* Answers the operators that wait for the result of the job's inquiry. */
void host_answer_inquiry(struct host_job *job, const char *what);
/* Passes a ROW or INSPECTED of a node on to the operator who ordered the inspection. If all nodes
 * have answered, closes the operator's session. */
void host_pass_row(struct host_peer *from, const struct rdzv_message *m);

/* ---- trust.c ---- */

/* Creates the tunnel of a remote peer. Returns 0, or a negative errno if memory or random numbers
 * are short. */
int host_open_tunnel(struct host_peer *peer);
/* Handles bytes that a remote peer has sent: the peer's tunnel gets them, and the peer's session
 * gets the plain text. If the tunnel fails, refuses the peer. */
void host_receive(struct host_peer *peer, const char *data, size_t len);
/* Call this when the peer's tunnel has handled bytes. Passes the plain text to the peer's session.
 * If the tunnel has failed, refuses the peer; if the tunnel is in the state AGREE, calls
 * host_agree(). */
void host_tunnel_settle(struct host_peer *peer);
/* The session of a remote peer has queued bytes; this passes them through the peer's tunnel.
 * Returns the buffer with the bytes to send, or NULL if memory is short. */
struct cr_buffer *host_outgoing(struct host_peer *peer);
/* If this host has secrets, a remote peer must have authenticated for the right role and job: as a
 * node of the job `run_id`, or as an operator of that job or of all jobs. Each function returns 0
 * if that is so, or if the host has no secrets; else -EACCES and a text in err. */
int host_check_member(const struct host_peer *peer, const char *run_id, struct cr_error *err);
int host_check_operator(const struct host_peer *peer, const char *run_id, struct cr_error *err);
/* Call this when the host begins to serve nodes. If it has no secrets and other machines can reach
 * it, logs that its jobs are open; only the first call does so. */
void host_say_if_open(struct coordinator_host *host);

/* ---- agreements.c ---- */

/* Call this for each connection that a host with secrets accepts. Returns true if the answer to the
 * first handshake message is to be computed by host_agree(): if the host uses MUNGE; or if many
 * connections have come within a short time and there is more than one core. */
bool host_agrees_later(struct coordinator_host *host);
/* Call this when the tunnel of a peer is in the state AGREE. Queues the peer, so that a thread
 * computes the answer. Does nothing if the peer is queued, or its answer is computed, already. */
void host_agree(struct host_peer *peer);

/* ---- handoff.c ---- */

/* Makes the store's server pass on connections that begin with the first 4 bytes of RDZV_MAGIC;
 * host_session.c checks all 8 bytes. The connections are queued until host_start_listening() is
 * called. Returns 0, or a negative errno and a text in err. */
int host_accept_handoffs(struct coordinator_host *host, struct cr_error *err);
int host_start_listening(struct coordinator_host *host, struct cr_error *err);
void host_free_handoffs(struct coordinator_host *host);

#endif
