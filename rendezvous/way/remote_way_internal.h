/* The way to a coordinator in another process. The elected way is one, too, with a host that
 * changes. */
#ifndef RENDEZVOUS_REMOTE_WAY_INTERNAL_H
#define RENDEZVOUS_REMOTE_WAY_INTERNAL_H

#include "rendezvous/way/tcp_stream_internal.h"
#include "rendezvous/way/way_internal.h"

struct remote_way {
    struct way way;
    struct tcp_stream *stream;
    char coordinator_addr[RDZV_ADDR_MAX]; /* numeric, of the last connection */
    /* This node hosts if no process listens at the port, and it can have it. NULL: it does not,
     * or it has reached a coordinator since. */
    struct backend_plan *may_host;
    int64_t close_timeout_ms;
};

/* `r` is zeroed. Returns 0 or -ENOMEM. */
int remote_way_init(struct remote_way *r, const struct way_kind *kind, uv_loop_t *loop,
                    const char *host, uint16_t port);
/* Closes the stream; then calls way_closed(). */
void remote_way_close(struct way *w);

void remote_way_connect(struct way *w);
void remote_way_send(struct way *w, const void *data, size_t len);
void remote_way_flush(struct way *w);
void remote_way_hang_up(struct way *w);

#endif
