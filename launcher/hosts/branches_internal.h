/* The hosts that one process (the starter or a deputy) starts itself: one link for each, which is a
 * process of ssh with pipes to the deputy on that host.
 *
 * If a host cannot be started, the hosts below it in the tree are started by this process instead.
 * If a link is lost later, all hosts behind it are lost, because their deputies end with it. */
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
    void (*on_frame)(void *arg, const struct hosts_frame *frame); /* a frame from below */
    void (*on_closed)(void *arg); /* no link is open any more; also when the job is over */
    void *arg;
};

/* Starts the hosts of `range`. `plan`, and the callbacks and their argument, must be set in *b.
 * Hosts that cannot be started are reported as frames of type HOSTS_LOST, some of them before this
 * function returns. Returns 0 or -ENOMEM. */
int branches_open(struct branches *b, struct hosts_range range);

/* Sends a frame to the deputy of `host`, or to all hosts. */
void branches_send(struct branches *b, uint32_t host, const struct cr_buffer *frame);

/* Gives the order to start to `host`, or to all hosts that run or will run. */
void branches_go(struct branches *b, uint32_t host, const struct hosts_go *go);

/* Stops reading from the hosts, or goes on reading. */
void branches_pause(struct branches *b, bool is_paused);

/* Ends all links at once: the deputies see the end of their stdin and kill what they have started.
 * on_closed runs when no process of ssh is left, maybe before this function returns. */
void branches_close(struct branches *b);

void branches_done(struct branches *b); /* frees the memory, after on_closed */

#endif
