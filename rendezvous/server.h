/* What crun-agent uses of this room: a server that hosts coordinators and stores for jobs whose
 * nodes run in other processes, and an operator's questions and orders to such a server. */
#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

#include "base/buffer.h"
#include "base/error.h"
#include "base/network/endpoint.h"
#include "base/network/port_range.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* ---- serving nodes of other processes ---- */

struct rendezvous_server;

struct rendezvous_server_options {
    /* where the server listens: host "" or "::" means all interfaces, "0.0.0.0" all interfaces by
     * IPv4 only; port 0 means any free port */
    struct cr_endpoint listen;
    struct cr_port_range ports; /* the ports that may be chosen for the server and the stores */
    struct rendezvous_store_guard store_guard; /* whom the stores serve */
    /* a job is freed once its last connection has been closed for this time (ms), and no node may
     * resume any more */
    int64_t close_timeout_ms;
    int auth;               /* an enum rendezvous_auth: whether nodes and operators need a secret */
    const char *token_file; /* see struct rendezvous_options */
};

/* Hosts coordinators and stores for any number of jobs. Stores the port in *port. Returns 0, or a
 * negative errno such as -EADDRINUSE or -EADDRNOTAVAIL, and sets err to a text that names the
 * address. */
int rendezvous_serve(uv_loop_t *loop, const struct rendezvous_server_options *options,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err);

struct rendezvous_status_events;
/* Calls `events`, which is described below, for each job and each node of the server. */
void rendezvous_server_visit(const struct rendezvous_server *server,
                             const struct rendezvous_status_events *events, void *arg);

/* Call this when somebody looks at a snapshot. From about a second later on, for a minute,
 * rendezvous_server_visit() calls on_rank for the workers of all nodes. */
void rendezvous_server_watch_ranks(struct rendezvous_server *server);

/* Says goodbye to the nodes of all jobs that have not ended, with `why` as the reason. Then frees
 * the server and calls on_close from the loop. */
void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg);

/* ---- an operator's questions and orders: blocking calls, without a loop ---- */

/* Reads the token file with which the calls below authenticate: `given`, or if that is NULL or "",
 * the one of the mounted Kubernetes secret. Without a token file, these calls can speak only to
 * coordinators that have no secret. The secrets are kept in a variable of this room, because a
 * program has one operator. Returns 0, or a negative errno and a text in err. */
int rendezvous_authenticate(const char *given, struct cr_error *err);
/* Appends a line of a token file to `out`. If is_operator is true, the line has the key of an
 * operator of the job `run_id` ("" = of all jobs), else the key of a member of that job. Returns 0,
 * or a negative errno and a text in err if the secrets do not yield this key. */
int rendezvous_derive_key(bool is_operator, const char *run_id, struct cr_buffer *out,
                          struct cr_error *err);

/* What a worker does, according to the last report of its node, which is age_ms old. */
struct rdzv_status_rank {
    const char *host;
    int64_t age_ms;
    const struct rdzv_rank *rank;
};

/* Callbacks of rendezvous_status(): on_job for each job, followed by on_node for each node of that
 * job, and on_host for each host of that job on which something went wrong; on_host may be NULL.
 * rendezvous_visit() and rendezvous_server_visit(), which ask the coordinator in this process, call
 * on_rank, too, for each worker of which a node has lately said what it does; on_rank may be
 * NULL. */
struct rendezvous_status_events {
    void (*on_job)(void *arg, const struct rdzv_status_job *job);
    void (*on_node)(void *arg, const struct rdzv_status_node *node);
    void (*on_host)(void *arg, const struct rdzv_status_host *host);
    void (*on_rank)(void *arg, const struct rdzv_status_rank *rank);
};

/* Requests the status of all jobs and nodes from the coordinator at `where`, and calls `events` for
 * each job and each node. Returns 0, or a negative errno and a text in err: -ECONNREFUSED;
 * -ETIMEDOUT; or -EPROTO if the other end is not a coordinator or has an incompatible version. */
int rendezvous_status(const struct cr_endpoint *where, int64_t timeout_ms,
                      const struct rendezvous_status_events *events, void *arg,
                      struct cr_error *err);

/* rendezvous_phase_name() returns the name of a job's phase (rdzv_status_job.phase), such as
 * "FORMING". rendezvous_state_name() returns the name of a node's state (rdzv_status_node.state).
 * Both return "?" for a number without a name. */
const char *rendezvous_phase_name(uint32_t phase);
const char *rendezvous_state_name(uint32_t state);

#define RENDEZVOUS_BEHIND_MAX 1024

/* Sends an order to nodes of a job: to leave with notice, or, if what->kind is 0, to write their
 * workers' flight records. The caller need not set the version fields of `what`. Stores in *nodes
 * how many nodes the order was sent to. An order for flight records also begins an inquiry; this
 * function waits for the result of the inquiry, one line, and stores it in `behind`. For other
 * orders, and from an old coordinator, it stores "" there. Returns 0 or the errors of
 * rendezvous_status(); -EPROTO also means that there is no such job or node. */
int rendezvous_operate(const struct cr_endpoint *where, int64_t timeout_ms,
                       const struct rdzv_operate *what, uint32_t *nodes,
                       char behind[RENDEZVOUS_BEHIND_MAX], struct cr_error *err);

/* Admits a host to a job: the coordinator forgets what went wrong on the host, and no longer
 * refuses, slows or sets aside the nodes of that host. Returns 0, or the errors of
 * rendezvous_status(); -EPROTO also means that there is no such job, or nothing to forget. */
int rendezvous_admit(const struct cr_endpoint *where, int64_t timeout_ms, const char *run_id,
                     const char *host, struct cr_error *err);

/* The end of an inspection: how many nodes were asked, and how many of them have answered. */
struct rendezvous_inspected {
    uint32_t asked, answered;
};

/* Orders an inspection of the workers of a job, on the nodes of `host`; if `host` is "", on all
 * nodes. Calls on_row for each set of workers at the same place. Returns 0 when all nodes have
 * answered, or when the coordinator waits no longer for the nodes that have not; or the errors of
 * rendezvous_operate(). A coordinator of an older build refuses. */
int rendezvous_inspect(const struct cr_endpoint *where, int64_t timeout_ms, const char *run_id,
                       const char *host, void (*on_row)(void *arg, const struct rdzv_row *row),
                       void *arg, struct rendezvous_inspected *out, struct cr_error *err);

#endif
