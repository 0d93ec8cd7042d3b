/* Implements refusal_internal.h. */
#include "rendezvous/dial/refusal_internal.h"

#include <stdbool.h>
#include <stdlib.h>

struct refusal {
    uv_tcp_t tcp;          /* the connection that is being refused */
    bool is_busy;          /* true: `tcp` is not closed yet */
    bool is_free;          /* true: refusal_free() was called */
    uv_stream_t *listener; /* has a connection that waits for `tcp`; NULL = none waits */
    uv_connection_cb again;
};

struct refusal *refusal_new(void) { return calloc(1, sizeof(struct refusal)); }

static void on_closed(uv_handle_t *handle) {
    struct refusal *r = handle->data;
    uv_stream_t *listener = r->listener;
    r->is_busy = false;
    r->listener = NULL;
    if (r->is_free) free(r);
    else if (listener != NULL) r->again(listener, 0);
}

void refusal_use(struct refusal *r, uv_stream_t *listener, uv_connection_cb again) {
    if (r->is_busy) {
        r->listener = listener;
        r->again = again;
        return;
    }
    (void) uv_tcp_init(listener->loop, &r->tcp);
    r->tcp.data = r;
    r->is_busy = true;
    (void) uv_accept(listener, (uv_stream_t *) &r->tcp);
    uv_close((uv_handle_t *) &r->tcp, on_closed);
}

void refusal_free(struct refusal *r) {
    if (r == NULL) return;
    r->is_free = true;
    if (!r->is_busy) free(r);
}
