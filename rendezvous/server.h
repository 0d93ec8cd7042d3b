/* A coordinator for other nodes' jobs, and the question how they are: what crun-agent is made of. */
#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

#include "base/address.h"
#include "base/error.h"
#include "rendezvous/protocol/protocol.h"

#include <stdint.h>
#include <uv.h>

struct rendezvous_server;

/* Hosts coordinators and stores for any number of jobs at `listen` (port 0: any free one; host "" or
 * "0.0.0.0" or "::": all interfaces). A job is forgotten close_timeout_ms after its last node hung up.
 * Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL… with a text that names the address. */
int rendezvous_serve(uv_loop_t *loop, const struct cr_endpoint *listen, int64_t close_timeout_ms,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err);

/* Ends the jobs that still run, for `why`, then frees; on_close runs on the loop. */
void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg);

/* One call for each job and, after it, one for each of its nodes. */
struct rendezvous_status_events {
    void (*on_job)(void *arg, const struct rdzv_status_job *job);
    void (*on_node)(void *arg, const struct rdzv_status_node *node);
};

/* The names of a job's phase and of a node's state, "RUNNING" and so on; "?" for unknown numbers. */
const char *rendezvous_phase_name(uint32_t phase);
const char *rendezvous_state_name(uint32_t state);

/* Asks the coordinator at `where`. Blocking, no loop. Returns 0, or -ECONNREFUSED, -ETIMEDOUT,
 * -EPROTO (no coordinator, or one of another version)… with a text. */
int rendezvous_status(const struct cr_endpoint *where, int64_t timeout_ms,
                      const struct rendezvous_status_events *events, void *arg,
                      struct cr_error *err);

/* Tells the nodes of a job to go away with notice, or to write flight records (kind 0); see
 * rdzv_operate, whose version fields are filled in here. *nodes gets how many were told. As above;
 * -EPROTO also if there is no such job or node. */
int rendezvous_operate(const struct cr_endpoint *where, int64_t timeout_ms,
                       const struct rdzv_operate *what, uint32_t *nodes, struct cr_error *err);

#endif
