/* What the three ways share. Each has a struct that begins with `struct way`, and a table of
 * functions. way.c opens the right one, and closes what is hosted. */
#ifndef RENDEZVOUS_WAY_INTERNAL_H
#define RENDEZVOUS_WAY_INTERNAL_H

#include "rendezvous/host/host.h"
#include "rendezvous/way/way.h"

struct way_kind {
    const char *description;
    void (*connect)(struct way *w);
    void (*send)(struct way *w, const void *data, size_t len);
    void (*flush)(struct way *w);
    void (*hang_up)(struct way *w);
    /* Closes the handles of the way itself; then calls way_closed(), not before it returns. */
    void (*close)(struct way *w);
};

struct way {
    const struct way_kind *kind;
    uv_loop_t *loop;
    const struct way_events *events;
    void *arg;
    struct coordinator_host *host; /* NULL: this node hosts nothing */
    bool closing;
    const char *why;               /* while closing */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

extern const struct way_kind way_local, way_remote, way_elected;

/* Each makes one way and returns NULL when memory is short. They take `host` on success. */
struct way *way_local_new(uv_loop_t *loop, struct coordinator_host *host);
/* `may_host` is copied; NULL: this node does not host. */
struct way *way_remote_new(uv_loop_t *loop, const struct cr_endpoint *to,
                           const struct backend_plan *may_host, int64_t close_timeout_ms);
struct way *way_elected_new(uv_loop_t *loop, const struct rendezvous_options *options,
                            const struct backend_plan *plan, struct coordinator_host *host);

const char *way_remote_coordinator_addr(const struct way *w);
const char *way_elected_trouble(const struct way *w);

/* The host of a plan. */
int way_open_host(uv_loop_t *loop, const struct backend_plan *plan, int64_t close_timeout_ms,
                  struct coordinator_host **out, struct cr_error *err);

/* The way's own handles are closed. */
void way_closed(struct way *w);

#endif
