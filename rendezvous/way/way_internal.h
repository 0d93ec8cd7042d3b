/* What the three kinds of way (local, remote, elected) share. Each kind has a struct that begins
 * with a `struct way`, and a table of functions. way.c chooses the kind, and closes what is
 * hosted. */
#ifndef RENDEZVOUS_WAY_INTERNAL_H
#define RENDEZVOUS_WAY_INTERNAL_H

#include "rendezvous/host/host.h"
#include "rendezvous/secure/secure.h"
#include "rendezvous/way/way.h"

struct way_kind {
    const char *description;
    void (*connect)(struct way *w, const void *greeting, size_t len);
    void (*send)(struct way *w, const void *data, size_t len);
    void (*flush)(struct way *w);
    void (*hang_up)(struct way *w);
    /* Closes the way's own handles, and calls way_closed() from the loop when they are closed. */
    void (*close)(struct way *w);
};

struct way {
    const struct way_kind *kind;
    uv_loop_t *loop;
    const struct way_events *events;
    void *arg;
    struct coordinator_host *host; /* what this node hosts; NULL = nothing */
    struct coordinator_host *heir; /* the host at which this node takes over; NULL = not opened */
    struct secure_ring *ring;      /* the secrets of the job; NULL = none */
    bool closing;
    const char *why;               /* reason for other nodes; set by way_close() */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

extern const struct way_kind way_local, way_remote, way_elected;

/* Each way_…_new() creates a way of one kind. On success the way owns `host` and closes it.
 * way_local_new() and way_remote_new() return NULL when memory is short; way_elected_new() returns
 * 0, or a negative errno and a text in err. */
struct way *way_local_new(uv_loop_t *loop, struct coordinator_host *host);
/* `may_host` is the plan by which this node hosts if no process listens at the endpoint; NULL = it
 * never hosts. It is copied. Unless it is unresolved or asks first, the caller has tried to host by
 * it, and the port was in use. */
struct way *way_remote_new(uv_loop_t *loop, const struct rendezvous_options *options,
                           const struct backend_plan *plan, const struct backend_plan *may_host);
/* Creates a remote way to the coordinator in this process: its node connects to `host` over TCP,
 * and can connect to an heir instead. Returns NULL when memory is short. */
struct way *way_remote_new_hosting(uv_loop_t *loop, const struct rendezvous_options *options,
                                   const struct backend_plan *plan,
                                   struct coordinator_host *host);
int way_elected_new(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct backend_plan *plan, struct coordinator_host *host,
                    struct way **out, struct cr_error *err);

/* From now on, the connections of a remote or elected way are authenticated with w->ring. */
void way_remote_secure(struct way *w);
const char *way_remote_coordinator_addr(const struct way *w);
const char *way_elected_trouble(const struct way *w);
const char *way_remote_report(struct way *w);
/* What way_aim(), way_heir_port(), way_lead() and way_follow() of way.h do on a remote way. */
void way_remote_aim(struct way *w, const char *addr, uint16_t port);
uint16_t way_remote_heir_port(struct way *w);
void way_remote_lead(struct way *w, uint64_t epoch, const char *addr);
void way_remote_follow(struct way *w, uint64_t coordinator, uint64_t epoch, const char *addr,
                       uint16_t port);

/* Opens the coordinator's host as `plan` describes it. Returns 0, or a negative errno and a text in
 * err. */
int way_open_host(uv_loop_t *loop, const struct backend_plan *plan, const char *run_id,
                  int64_t close_timeout_ms, struct coordinator_host **out, struct cr_error *err);

/* Each kind of way calls this when its own handles are closed. It closes what this node hosts,
 * frees the way, and calls on_close. */
void way_closed(struct way *w);

#endif
