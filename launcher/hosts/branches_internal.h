/* Starts hosts, for the starter and for each deputy: a process has one link for each host that it
 * starts itself. A link is a process of ssh with pipes to the deputy on that host.
 *
 * If the deputy of a host cannot be started, this process itself starts the hosts that the deputy
 * was to start. If the link to a running deputy is lost, all hosts that this deputy has started are
 * lost, too, because their deputies end with it. */
#ifndef LAUNCHER_HOSTS_BRANCHES_H
#define LAUNCHER_HOSTS_BRANCHES_H

#include "launcher/hosts/message_internal.h"

#include <uv.h>

#define HOSTS_ALL UINT32_MAX /* in branches_send(): all hosts */

struct link;

struct branches {
    uv_loop_t *loop;
    const struct hosts_plan *plan;
    const struct hosts_caller *caller; /* how job daemons are called; see hosts.h */
    bool starts_local; /* true if a host that is this machine gets its deputy without rsh */
    bool is_closing;
    bool is_paused;
    struct hosts_go go; /* the order to start; go.hosting is HOSTS_ALL if no order was given */
    uint8_t *over;      /* [plan->range.count]: 1 if the host has ended or is lost */
    struct link *links;
    /* called for each frame that a deputy sends */
    void (*on_frame)(void *arg, const struct hosts_frame *frame);
    void (*on_closed)(void *arg); /* the last link is gone */
    void *arg;
};

/* Starts the hosts of `range`. The caller has set `plan`, the callbacks and their argument in *b.
 * Each host that cannot be started is reported by on_frame() as a frame of type HOSTS_LOST, which
 * can happen before this function returns. Returns 0 or -ENOMEM. */
int branches_open(struct branches *b, struct hosts_range range);

/* Sends a frame to the deputy of `host`, or to all deputies if `host` is HOSTS_ALL. */
void branches_send(struct branches *b, uint32_t host, const struct cr_buffer *frame);

/* Orders the deputy of `host` to start its launcher. If `host` is HOSTS_ALL, orders all deputies to
 * do so; a deputy whose greeting comes later gets the order after its greeting. */
void branches_go(struct branches *b, uint32_t host, const struct hosts_go *go);

/* If is_paused is true, stops reading what the deputies send; otherwise goes on reading. */
void branches_pause(struct branches *b, bool is_paused);

/* Ends all links at once. Each deputy reads the end of its stdin, kills what it has started, and
 * ends. on_closed() is called when no process of a link is left, which can be before this function
 * returns. */
void branches_close(struct branches *b);

void branches_done(struct branches *b); /* frees the memory, after on_closed */

#endif
