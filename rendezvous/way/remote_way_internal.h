/* The way to a coordinator in another process, over one TCP connection at a time. The elected way
 * (elected_way.c) is built on it: its struct begins with a struct remote_way, whose dial gets a new
 * host after each election. */
#ifndef RENDEZVOUS_REMOTE_WAY_INTERNAL_H
#define RENDEZVOUS_REMOTE_WAY_INTERNAL_H

#include "rendezvous/dial/dial.h"
#include "rendezvous/way/knocker_internal.h"
#include "rendezvous/way/signpost_internal.h"
#include "rendezvous/way/way_internal.h"

/* What a node needs in order to host as an heir; see the fields of the same names in struct
 * backend_plan. */
struct heir_plan {
    bool allows_heirs;
    char listen_host[CR_HOST_MAX], store_host[CR_HOST_MAX];
    char own_addr[RDZV_ADDR_MAX];
    struct cr_port_range ports;
    uint64_t instance;
};

struct remote_way {
    struct way way;
    struct dial *dial;
    /* numeric address of the coordinator on the newest connection; "" = there was none yet */
    char coordinator_addr[RDZV_ADDR_MAX];
    /* Plan for hosting, if this node may become the host: it does if no process listens at the
     * endpoint's port and this node can bind the port. NULL if this node must not host, or has
     * already reached a coordinator or become the host. */
    struct backend_plan *may_host;
    char host[CR_HOST_MAX]; /* host name of the endpoint */
    struct cr_endpoint home; /* where port 0 of way_aim() leads */
    char *run_id;
    struct heir_plan plan;
    /* tells the endpoint that this node leads; NULL before it first leads */
    struct knocker *knocker;
    /* the TCPStore at the endpoint that says where the coordinator is (by_signpost.c); NULL = the
     * endpoint is that of a coordinator, as far as this node knows */
    struct signpost *signpost;
    bool may_claim;   /* true: this node may host if the signpost names no node, or a silent one */
    bool aims_home;   /* true: way_connect() looks for the coordinator at `home`, not at an heir */
    char own_end[RDZV_ADDR_MAX]; /* address of this node's end of a connection to the signpost */
    struct coordinator_host *claimant; /* the host with which this node claims; NULL = none */
    struct signpost_value named; /* what the signpost said last; port 0 = it named no node */
    int64_t named_ms;            /* time at which it first said so */
    struct cr_buffer greeting;   /* the greeting of the newest way_connect() */
    int64_t close_timeout_ms;
    char report[400];       /* see way_report() */
    uv_timer_t host_timer;  /* if may_host->asks_first: runs for host_delay_ms */
};

/* Initialises `r`, whose bytes must all be 0. Returns 0 or -ENOMEM. */
int remote_way_init(struct remote_way *r, const struct way_kind *kind, uv_loop_t *loop,
                    const char *host, uint16_t port, const char *run_id);
/* Closes and frees a remote way that could not be opened as a whole. */
void remote_way_drop(struct remote_way *r);
/* Closes the dial; calls way_closed() when that is done. */
void remote_way_close(struct way *w);

/* ---- by_signpost.c ---- */

/* Call this when the dial has found a TCPStore at `addr` in place of a coordinator. */
void remote_way_found_store(struct remote_way *r, const char *own_addr, const char *addr,
                            bool is_old);
/* Asks the signpost where the coordinator is, and connects there. */
void remote_way_look(struct remote_way *r);
/* Writes on the signpost that this node hosts as an heir. */
void remote_way_publish(struct remote_way *r, uint64_t epoch, const char *addr, uint16_t port);
/* Closes the signpost, and the host with which this node claims; calls on_close. */
void remote_way_leave_signpost(struct remote_way *r, void (*on_close)(void *arg), void *arg);

void remote_way_connect(struct way *w, const void *greeting, size_t len);
void remote_way_send(struct way *w, const void *data, size_t len);
void remote_way_flush(struct way *w);
void remote_way_hang_up(struct way *w);

#endif
