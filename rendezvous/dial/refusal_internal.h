/* Refuses a connection that a libuv listener has announced, without allocating memory.
 *
 * A uv_connection_cb that returns without uv_accept() stops its listener for good: libuv watches
 * the listening socket again only after the next uv_accept(). So a callback that has no memory for
 * a connection calls refusal_use(), which accepts the connection into a handle that was allocated
 * when the listener was opened, and closes it. */
#ifndef RENDEZVOUS_REFUSAL_INTERNAL_H
#define RENDEZVOUS_REFUSAL_INTERNAL_H

#include <uv.h>

struct refusal;

/* Returns a refusal for one listener, or NULL when memory is short. */
struct refusal *refusal_new(void);
/* Call this in the uv_connection_cb of `listener` when there is no memory for the connection. It
 * accepts the connection and closes it. If the handle still belongs to an earlier connection, it
 * calls `again` instead, as soon as the handle is closed; `again` must try to accept the
 * connection, as the callback did. */
void refusal_use(struct refusal *r, uv_stream_t *listener, uv_connection_cb again);
/* Call this when the listener is being closed. Frees the refusal; if its handle is in use, the loop
 * frees it when the handle is closed. `again` is not called any more. `r` may be NULL. */
void refusal_free(struct refusal *r);

#endif
