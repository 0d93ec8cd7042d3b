/* The hosts that one process (the starter or a deputy) starts itself: one link for each, which is a
 * process of ssh with pipes to the deputy on that host.
 *
 * If the deputy of a host cannot be started, this process itself starts the hosts that this deputy
 * would have started. If the link to a running deputy is lost, all hosts that this deputy has
 * started are lost as well, because their deputies end with it. */
#ifndef LAUNCHER_HOSTS_BRANCHES_H
#define LAUNCHER_HOSTS_BRANCHES_H

#include "launcher/hosts/message_internal.h"

#include <uv.h>

#define HOSTS_ALL UINT32_MAX /* in branches_send(): all hosts */

struct link;

struct branches {
    uv_loop_t *loop;
    const struct hosts_plan *plan;
    bool starts_local; /* true if this machine's own deputy is started without rsh */
    bool is_closing;
    bool is_paused;
    struct hosts_go go; /* the order to start; go.hosting is HOSTS_ALL before it is given */
    uint8_t *over;      /* [plan->range.count]: 1 if the host has ended or is lost */
    struct link *links;
    void (*on_frame)(void *arg, const struct hosts_frame *frame); /* a deputy's frame */
    void (*on_closed)(void *arg); /* the last link is gone */
    void *arg;
};

/* Starts the hosts of `range`. `plan`, and the callbacks and their argument, must be set in *b.
 * Hosts that cannot be started are reported as frames of type HOSTS_LOST, some of them before this
 * function returns. Returns 0 or -ENOMEM. */
int branches_open(struct branches *b, struct hosts_range range);

/* Sends a frame to the deputy of `host`; to all deputies if `host` is HOSTS_ALL. */
void branches_send(struct branches *b, uint32_t host, const struct cr_buffer *frame);

/* Orders the deputy of `host` to start its launcher. If `host` is HOSTS_ALL, orders all deputies to
 * do so, and each deputy that answers later as soon as it answers. */
void branches_go(struct branches *b, uint32_t host, const struct hosts_go *go);

/* If is_paused is true, stops reading what the deputies send; otherwise goes on reading. */
void branches_pause(struct branches *b, bool is_paused);

/* Ends all links at once: the deputies see the end of their stdin and kill what they have started.
 * When no process of ssh is left, on_closed is called; this can happen before this function
 * returns. */
void branches_close(struct branches *b);

void branches_done(struct branches *b); /* frees the memory, after on_closed */

#endif
