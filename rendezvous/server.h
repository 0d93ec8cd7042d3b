/* A host for other nodes' jobs, and the questions and orders of operators: what crun-agent is
 * made of. */
#ifndef RENDEZVOUS_SERVER_H
#define RENDEZVOUS_SERVER_H

#include "base/endpoint.h"
#include "base/error.h"
#include "rendezvous/protocol/protocol.h"

#include <stdint.h>
#include <uv.h>

/* ---- serving ---- */

struct rendezvous_server;

/* Hosts coordinators and stores for any number of jobs at `listen` (port 0: any free one; host
 * "", "0.0.0.0" or "::": all interfaces). A job is forgotten close_timeout_ms after its last
 * node has hung up. *port gets the port. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL… with a text
 * that names the address. */
int rendezvous_serve(uv_loop_t *loop, const struct cr_endpoint *listen, int64_t close_timeout_ms,
                     struct rendezvous_server **out, uint16_t *port, struct cr_error *err);

/* Ends the jobs that still run, for `why`, then frees. on_close runs on the loop. */
void rendezvous_server_close(struct rendezvous_server *server, const char *why,
                             void (*on_close)(void *arg), void *arg);

/* ---- asking: blocking, without a loop ---- */

/* Called once for each job, and after it once for each of its nodes. */
struct rendezvous_status_events {
    void (*on_job)(void *arg, const struct rdzv_status_job *job);
    void (*on_node)(void *arg, const struct rdzv_status_node *node);
};

/* Asks the coordinator at `where` for all jobs and nodes. Returns 0, or -ECONNREFUSED, -ETIMEDOUT,
 * -EPROTO (no coordinator, or one of another version)… with a text. */
int rendezvous_status(const struct cr_endpoint *where, int64_t timeout_ms,
                      const struct rendezvous_status_events *events, void *arg,
                      struct cr_error *err);

/* "FORMING", "RUNNING" and so on, for the numbers in the two messages; "?" for an unknown
 * number. */
const char *rendezvous_phase_name(uint32_t phase);
const char *rendezvous_state_name(uint32_t state);

/* Orders the nodes of a job to leave with notice, or (kind 0) to write flight records; see
 * rdzv_operate, whose version fields are filled in here. *nodes gets how many nodes were asked.
 * Returns as above; -EPROTO also if there is no such job or node. */
int rendezvous_operate(const struct cr_endpoint *where, int64_t timeout_ms,
                       const struct rdzv_operate *what, uint32_t *nodes, struct cr_error *err);

#endif
