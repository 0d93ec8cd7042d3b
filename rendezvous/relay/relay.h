/* A relay: it stands between the nodes of jobs and their coordinator, so that the coordinator's
 * host has one connection for up to 64 nodes. To a node it looks like the coordinator.
 * docs/rendezvous.md says when to use it. This header is the door of rendezvous/relay, and a face
 * of the room. */
#ifndef RENDEZVOUS_RELAY_H
#define RENDEZVOUS_RELAY_H

#include "base/error.h"
#include "base/network/endpoint.h"

#include <stdint.h>
#include <uv.h>

struct rendezvous_relay;

struct rendezvous_relay_options {
    struct cr_endpoint listen;   /* where nodes connect; as in struct rendezvous_server_options */
    struct cr_endpoint upstream; /* where the coordinator's host listens */
    int auth;               /* an enum rendezvous_auth: whether nodes need the secret */
    const char *token_file; /* see struct rendezvous_options */
};

/* Listens for nodes, and stores the port in *port. Connects to `upstream` when the first node has
 * said which job it is in. Copies the options. Returns 0, or a negative errno such as -EADDRINUSE
 * and a text in err. */
int rendezvous_relay_open(uv_loop_t *loop, const struct rendezvous_relay_options *options,
                          struct rendezvous_relay **out, uint16_t *port, struct cr_error *err);
/* Resets the connections of all nodes, so that they connect again, without this relay. Frees the
 * relay, and calls on_close from the loop. */
void rendezvous_relay_close(struct rendezvous_relay *relay, void (*on_close)(void *arg), void *arg);

#endif
