/* The rendezvous backends c10d, static and etcd. Each has one function that fills a backend_plan:
 * where the coordinator is, where stores listen, and whether ranks are fixed. backend.c calls the
 * right function, after it has set the fields that all plans have. */
#ifndef RENDEZVOUS_BACKEND_INTERNAL_H
#define RENDEZVOUS_BACKEND_INTERNAL_H

#include "rendezvous/dial/dial.h"
#include "rendezvous/way/way.h"

#define BACKEND_RELAY_PORT 29402 /* port of a relay if the user gives none */

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);
int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err);
int backend_etcd_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);

/* Looks up the endpoint's host for a job of several nodes. Stores the addresses in *found, and
 * their description in out->facts. If the name cannot be resolved, that is no error: the name of a
 * pod, for example, appears when the pod runs. In that case the function logs a warning, sets
 * out->unresolved, and makes out->connect_timeout_ms at least join_timeout_ms. */
void backend_look_up_endpoint(const struct rendezvous_options *o, struct host_addresses *found,
                              struct backend_plan *out);

/* Plans where the coordinator and the stores of a hosting node listen, and at which address workers
 * find the store. `found` has the addresses of the endpoint. Set out->store_port before the call.
 *
 * If the user wrote an address of this machine as the endpoint, or "localhost", the coordinator and
 * the stores listen there and nowhere else. If the user wrote "0.0.0.0", they listen on all
 * interfaces by IPv4. If the user wrote a name, they listen on all interfaces, because other nodes
 * may know another address of that name.
 *
 * --local-addr changes where the stores listen, unless they share the endpoint's port (backend
 * static). If it is an address of this machine, they listen at that address only. If it is a name,
 * or an address that this machine does not have, they listen on all interfaces. */
void backend_plan_listening(const struct host_addresses *found, struct backend_plan *out);

#endif
