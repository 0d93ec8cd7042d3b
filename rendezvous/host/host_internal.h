/* What the files of rendezvous/host share. host.c opens and closes, and ends every event; jobs.c
 * has the coordinators and their stores; peers.c the connected nodes; operators.c the questions
 * and orders from outside; handoff.c brings connections from the store's thread.
 *
 * A coordinator never frees a peer: its actions only queue bytes and mark the peer.
 * host_end_event(), the last call of every event, sends the bytes and closes what is over. */
#ifndef RENDEZVOUS_HOST_INTERNAL_H
#define RENDEZVOUS_HOST_INTERNAL_H

#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/host/host.h"
#include "rendezvous/protocol/protocol.h"
#include "store/store.h"

#include <sys/queue.h>

/* One job: a coordinator and the key space of its current round. */
struct host_job {
    LIST_ENTRY(host_job) entry; /* in host->jobs */
    struct coordinator_host *host;
    char *run_id;
    struct coordinator *coordinator;
    struct store_space *space;
    uint32_t peers;    /* connections of this job */
    int64_t forget_ms; /* if it has no connection until then, the job is forgotten */
};

/* One connection of a node or an operator. */
struct host_peer {
    LIST_ENTRY(host_peer) entry; /* in host->peers */
    LIST_ENTRY(host_peer) unsent_entry;
    bool is_unsent;                /* in host->unsent: host_end_event() has to look at it */
    struct coordinator_host *host;
    struct host_job *job;          /* NULL before HELLO */
    struct coordinator_seat *seat; /* NULL before JOIN, and after the coordinator hung up */
    struct host_session session;
    bool local;

    /* a node of this process */
    void (*deliver)(void *arg, const char *data, size_t len);
    void *deliver_arg;

    /* a remote node */
    uv_tcp_t tcp;
    uv_timer_t timer;         /* the session's deadline … */
    int64_t armed_ms;         /* … for which the timer is set; CR_FOREVER: it is not */
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct cr_buffer writing; /* what the kernel has not taken yet */
    bool write_busy, shut, closing;
    int open_handles;
};

/* A connection on its way from the store's thread to the agent's loop. */
struct handoff {
    STAILQ_ENTRY(handoff) entry;
    int fd;
    size_t len;
    char data[];
};

struct coordinator_host {
    uv_loop_t *loop;
    struct store_server *store;
    struct store_space *door; /* where nodes connect, unless the stores have a fixed port */
    char *store_host;
    char store_addr[RDZV_ADDR_MAX];
    uint16_t store_port;
    struct host_session_terms terms;

    struct store_space *spare; /* opened ahead for the first round, with its port */
    uint16_t spare_port, door_port;
    LIST_HEAD(host_jobs, host_job) jobs;
    LIST_HEAD(host_peers, host_peer) peers;
    LIST_HEAD(host_unsent, host_peer) unsent;

    uv_mutex_t lock;   /* of the next two */
    STAILQ_HEAD(host_handoffs, handoff) handoffs;
    bool listens;      /* `wake` exists */
    uv_async_t wake;   /* from the store's thread */
    uv_timer_t timer; /* the jobs' next deadline; while closing: the end of the wait */
    char read_buffer[65536];

    bool closing, closing_handles;
    int open_handles;
    char why[256]; /* why it closes */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

/* ---- host.c ---- */

int64_t host_now_ms(const struct coordinator_host *host);
void host_end_event(struct coordinator_host *host);

/* ---- jobs.c ---- */

/* The job of that id, or NULL. */
struct host_job *host_find_job(const struct coordinator_host *host, const char *run_id);
/* The same, but makes the job if there is none. NULL when memory is short. */
struct host_job *host_get_job(struct coordinator_host *host, const char *run_id);
/* The job has one connection less. After the last one it is kept for close_timeout_ms, so that late
 * nodes learn how it ended. */
void host_drop_job(struct host_job *job);
void host_free_jobs(struct coordinator_host *host);
void host_close_spaces(struct coordinator_host *host);
/* The time of host_jobs_deadline() has come: the coordinators' deadlines, and jobs to forget. */
void host_tick_jobs(struct coordinator_host *host);
int64_t host_jobs_deadline(const struct coordinator_host *host);
bool host_has_running_job(const struct coordinator_host *host);

int host_open_space(struct coordinator_host *host, struct store_space **space, uint16_t *port,
                    struct cr_error *err);

/* ---- peers.c ---- */

/* Takes the descriptor, and handles the bytes that were read from it already. */
void host_add_remote(struct coordinator_host *host, int fd, const char *data, size_t len);
/* Queues a message, or the end of the session. */
void host_peer_send(struct host_peer *peer, const struct rdzv_message *m);
void host_peer_hang_up(struct host_peer *peer);
/* Sends what is queued, and closes what is over. */
void host_peer_flush(struct host_peer *peer);
/* A remote peer: closes the connection. The node's seat is empty from now on. */
void host_peer_close(struct host_peer *peer, const char *why);
/* The same, but without coordinator_lost(), because the coordinator is freed as well. */
void host_peer_forget(struct host_peer *peer, const char *why);

/* ---- operators.c ---- */

void host_answer_status(struct host_peer *peer);
int host_answer_operate(struct host_peer *peer, const struct rdzv_operate *what,
                        struct cr_error *err);

/* ---- handoff.c ---- */

/* Accepts connections that open with the rendezvous' magic number. They wait until
 * host_start_listening(). */
int host_accept_handoffs(struct coordinator_host *host, struct cr_error *err);
int host_start_listening(struct coordinator_host *host, struct cr_error *err);
void host_free_handoffs(struct coordinator_host *host);

#endif
