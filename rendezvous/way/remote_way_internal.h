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
    /* Plan by which this node hosts if no process listens at the endpoint's port and this node can
     * bind that port. NULL if this node must not host, has already reached a coordinator, or
     * already hosts. */
    struct backend_plan *may_host;
    int host_rc;             /* result of the newest try to host; 0 = none was made yet */
    char host_why[200];      /* if host_rc is negative and not -EADDRINUSE: why that try failed */
    char host[CR_HOST_MAX]; /* host name of the endpoint */
    struct cr_endpoint home; /* where port 0 of way_aim() leads */
    struct cr_endpoint relay; /* a relay that is tried before `home`; port 0 = none */
    bool is_by_relay;        /* true: the newest connection, or try to connect, is to the relay */
    bool is_open;            /* true: the newest try to connect has been answered by WELCOME */
    char home_addr[RDZV_ADDR_MAX]; /* numeric address of `home`; used if there is a relay */
    char *run_id;
    struct heir_plan plan;
    /* sends LEADS to the endpoint while this node leads; NULL until this node leads for the first
     * time */
    struct knocker *knocker;
    /* the TCPStore at the endpoint that says where the coordinator is (by_signpost.c); NULL = the
     * endpoint is that of a coordinator, as far as this node knows */
    struct signpost *signpost;
    bool may_claim;   /* true: this node may host if the signpost names no node that answers */
    bool aims_home;   /* true: way_connect() looks for the coordinator at `home`, not at an heir */
    char own_end[RDZV_ADDR_MAX]; /* address of this node's end of a connection to the signpost */
    /* the host whose address this node writes to the signpost when it claims; NULL = none */
    struct coordinator_host *claimant;
    struct signpost_value named; /* the value that the signpost had last; port 0 = none */
    int64_t named_ms;            /* time at which this value first came */
    struct cr_buffer greeting;   /* the greeting of the newest way_connect() */
    int64_t close_timeout_ms;
    char report[512];       /* see way_report() */
    char machine_addr[RDZV_ADDR_MAX]; /* see correct_ends() in remote_way.c */
    /* if may_host->asks_first: runs for host_delay_ms, after which this node tries to host;
     * else: runs for RELAY_FIRST_MS, in which the relay has to answer */
    uv_timer_t host_timer;
};

/* Initialises `r`, whose bytes must all be 0. Returns 0 or -ENOMEM. */
int remote_way_init(struct remote_way *r, const struct way_kind *kind, uv_loop_t *loop,
                    const char *host, uint16_t port, const char *run_id);
/* Closes and frees a remote way if the elected way that contains it could not be opened. */
void remote_way_drop(struct remote_way *r);
/* Closes the signpost, the dial and the knocker. When they are closed, calls way_closed(). */
void remote_way_close(struct way *w);

/* ---- by_signpost.c ---- */

/* Makes the TCPStore at `addr` the signpost from now on. Call this when the dial has found that
 * store in place of a coordinator. own_addr is the address of this node's end of the connection to
 * it; is_old is as in signpost_new(). */
void remote_way_found_store(struct remote_way *r, const char *own_addr, const char *addr,
                            bool is_old);
/* Reads the signpost's key, and connects to the node that the key names. But if the key names no
 * node, or a node that does not answer, and if this node may host, this node first claims the
 * key. */
void remote_way_look(struct remote_way *r);
/* Call this when this node leads as an heir. It makes the signpost name this node: `addr` and
 * `port`. */
void remote_way_publish(struct remote_way *r, uint64_t epoch, const char *addr, uint16_t port);
/* Closes the signpost, and the host with which this node claims. Calls on_close when the signpost
 * is closed. */
void remote_way_leave_signpost(struct remote_way *r, void (*on_close)(void *arg), void *arg);

void remote_way_connect(struct way *w, const void *greeting, size_t len);
void remote_way_send(struct way *w, const void *data, size_t len);
void remote_way_flush(struct way *w);
void remote_way_hang_up(struct way *w);

#endif
