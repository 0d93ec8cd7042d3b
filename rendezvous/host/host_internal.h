/* What the files of rendezvous/host share. host.c opens and closes the host, and has the last step
 * of every event. jobs.c has the coordinators and their stores, peers.c the connected nodes,
 * operators.c the answers to operators, and handoff.c takes over connections from the store's
 * thread.
 *
 * A coordinator's actions never free a peer, because the coordinator may still use it: they only
 * queue bytes and put the peer into host->unsent. host_end_event(), the last call of every event,
 * sends the bytes and closes the connections that are over. */
#ifndef RENDEZVOUS_HOST_INTERNAL_H
#define RENDEZVOUS_HOST_INTERNAL_H

#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/host/host.h"
#include "rendezvous/protocol/protocol.h"
#include "store/store.h"

#include <sys/queue.h>

/* One job: its coordinator, and the key space of its current round. */
struct host_job {
    LIST_ENTRY(host_job) entry; /* element of host->jobs */
    struct coordinator_host *host;
    char *run_id;
    struct coordinator *coordinator;
    struct store_space *space;
    bool is_own;       /* the job of this launcher's node; false in a crun-agent */
    bool says_goodbye; /* GOODBYE was sent, so the job's nodes shall try another coordinator */
    uint32_t peers;    /* number of connections of this job */
    int64_t forget_ms; /* time at which the job is freed; used while `peers` is 0 */
};

/* One connection of a node or an operator to this host. */
struct host_peer {
    LIST_ENTRY(host_peer) entry; /* element of host->peers */
    LIST_ENTRY(host_peer) unsent_entry;
    bool is_unsent;                /* the peer is in host->unsent; host_end_event() flushes it */
    struct coordinator_host *host;
    struct host_job *job;          /* the job of the node; NULL before HELLO */
    struct coordinator_seat *seat; /* NULL before JOIN, and after host_peer_hang_up() */
    struct host_session session;
    bool local;

    /* used only if the node is in this process (`local`) */
    void (*deliver)(void *arg, const char *data, size_t len);
    void *deliver_arg;

    /* used only if the node is in another process */
    uv_tcp_t tcp;
    uv_timer_t timer;         /* runs until host_session_deadline() */
    int64_t armed_ms;         /* deadline to which `timer` is set; CR_FOREVER = it is stopped */
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct cr_buffer writing; /* bytes of the uv_write() that is under way */
    bool write_busy, shut, closing;
    int open_handles;
};

/* A connection that is being passed from the store's thread to the agent's loop, with the bytes
 * that were already read from it. */
struct handoff {
    STAILQ_ENTRY(handoff) entry;
    int fd;
    size_t len;
    char data[];
};

struct coordinator_host {
    uv_loop_t *loop;
    struct store_server *store;
    /* the port to which nodes connect; NULL if they connect to the store's fixed port */
    struct store_space *door;
    char *store_host;
    char store_addr[RDZV_ADDR_MAX];
    uint16_t store_port;
    struct host_session_terms terms;

    /* store of the first round, opened at the start so that errors show there; NULL once used */
    struct store_space *spare;
    uint16_t spare_port, door_port;
    LIST_HEAD(host_jobs, host_job) jobs;
    LIST_HEAD(host_peers, host_peer) peers;
    LIST_HEAD(host_unsent, host_peer) unsent;

    uv_mutex_t lock;   /* protects `handoffs` and `listens` */
    STAILQ_HEAD(host_handoffs, handoff) handoffs;
    bool listens;      /* `wake` is initialised, so it may be sent */
    uv_async_t wake;   /* sent by the store's thread */
    /* runs until host_jobs_deadline(); while closing, until the nodes must have hung up */
    uv_timer_t timer;
    char read_buffer[65536];

    /* coordinator_host_close() was called, but jobs of other launchers still run; when they are
     * over, `closing` follows */
    bool lingers;
    bool follows_another; /* elected; another host may have led the job before */
    bool may_form;       /* this host may form rounds; false only for an elected host */
    int64_t held_ms;     /* see coordinator_host_options */
    int64_t stand_by_ms; /* when it closes all connections for that reason; or CR_FOREVER */

    bool closing, closing_handles;
    bool time_is_up; /* close_timeout_ms are over since the host began to close */
    int open_handles;
    char why[256]; /* why the host closes */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- host.c ---- */

int64_t host_now_ms(const struct coordinator_host *host);
void host_end_event(struct coordinator_host *host);

/* ---- jobs.c ---- */

/* Returns the job with that run id, or NULL. */
struct host_job *host_find_job(const struct coordinator_host *host, const char *run_id);
/* Returns the job with that run id, which it creates if there is none; NULL when memory is
 * short. */
struct host_job *host_get_job(struct coordinator_host *host, const char *run_id);
/* Call this when a connection of the job is gone. After its last connection the job is kept for
 * close_timeout_ms, so that late nodes still get the message how the job ended. */
void host_drop_job(struct host_job *job);
void host_free_jobs(struct coordinator_host *host);
void host_close_spaces(struct coordinator_host *host);
/* Call this at host_jobs_deadline(). It calls the coordinators whose deadlines have come, and frees
 * jobs that have had no connection for close_timeout_ms. */
void host_tick_jobs(struct coordinator_host *host);
int64_t host_jobs_deadline(const struct coordinator_host *host);
/* Keeps the jobs without connections for close_timeout_ms from now on. */
void host_remember_jobs(struct coordinator_host *host);
/* Passes host->may_form to the coordinators of all jobs. */
void host_pass_on_right(struct coordinator_host *host);
/* Returns whether a coordinator would form a round now if it might. */
bool host_has_held_job(const struct coordinator_host *host);
bool host_has_running_job(const struct coordinator_host *host);
/* Returns whether a closing host has to wait for nodes that have lost their connections and do not
 * know yet how their job has ended. */
bool host_awaits_nodes(const struct coordinator_host *host);
/* Returns how many jobs of other launchers have nodes and have not ended, and stores the run id of
 * one of them in *run_id. */
uint32_t host_count_other_jobs(const struct coordinator_host *host, const char **run_id);
/* Says goodbye to the nodes of all jobs, or only to those of this launcher's own job. */
void host_abandon_jobs(struct coordinator_host *host, bool only_own, const char *why);

int host_open_space(struct coordinator_host *host, struct store_space **space, uint16_t *port,
                    struct cr_error *err);

/* ---- peers.c ---- */

/* Adds the connection of a remote node, and handles the bytes that were already read from it. The
 * host owns `fd` from now on. */
void host_add_remote(struct coordinator_host *host, int fd, const char *data, size_t len);
/* host_peer_send() queues a message, host_peer_hang_up() the end of the session. */
void host_peer_send(struct host_peer *peer, const struct rdzv_message *m);
void host_peer_hang_up(struct host_peer *peer);
/* Sends the peer's queued bytes, and closes its connection if the session is over. */
void host_peer_flush(struct host_peer *peer);
/* Closes the connection of a remote node. Its coordinator frees or suspends the node's seat
 * (coordinator_lost(), coordinator_suspend()). */
void host_peer_close(struct host_peer *peer, enum rendezvous_loss how, const char *why);
/* Closes the connection of a remote node without coordinator_lost(), because the caller frees the
 * coordinator as well. */
void host_peer_forget(struct host_peer *peer, const char *why);

/* ---- operators.c ---- */

void host_answer_status(struct host_peer *peer);
int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *what,
                        struct cr_error *err);

/* ---- handoff.c ---- */

/* Makes the store's server pass on connections that begin with the first 4 bytes of RDZV_MAGIC; the
 * session checks all 8. The connections are queued until host_start_listening() is called. Returns
 * 0, or a negative errno and a text in err. */
int host_accept_handoffs(struct coordinator_host *host, struct cr_error *err);
int host_start_listening(struct coordinator_host *host, struct cr_error *err);
void host_free_handoffs(struct coordinator_host *host);

#endif
