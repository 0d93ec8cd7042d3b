/* The status address: a small HTTP server on the loop of its owner. It shows a snapshot, which
 * status/snapshot.h describes, to people and to programs that watch jobs. */
#ifndef STATUS_STATUS_H
#define STATUS_STATUS_H

#include "base/error.h"
#include "status/snapshot.h"

#include <uv.h>

struct status_server;

/* What a server shows. The callbacks run on the loop's thread. */
struct status_source {
    /* Returns a new snapshot; or NULL if memory is short. */
    json_t *(*snapshot)(void *arg);
    /* Returns NULL if the owner is ready, otherwise a text that says why it is not. /readyz reports
     * the result. */
    const char *(*why_not_ready)(void *arg);
    void *arg;
};

/* Serves HTTP at `address`, which is HOST:PORT or unix:PATH. Port 0 means any free port. The paths
 * are / (one page of HTML), /status.json, /metrics, /healthz and /readyz; only GET and HEAD are
 * allowed. Loads libmicrohttpd. `source` is copied.
 *
 * Returns 0; or a negative errno, and sets err to a text that names the address: -ENOENT if the
 * library cannot be loaded, -ENOTSUP if crun was built without its header, -EINVAL if the address
 * is wrong, or the error of bind(2). */
int status_serve(uv_loop_t *loop, const char *address, const struct status_source *source,
                 struct status_server **out, struct cr_error *err);

/* Returns the address as the user can type it: "http://127.0.0.1:9400/" or "unix:/path". */
const char *status_server_address(const struct status_server *s);

/* Closes the server. When its handles are closed, frees it and calls on_close on the loop. */
void status_server_close(struct status_server *s, void (*on_close)(void *arg), void *arg);

#endif
