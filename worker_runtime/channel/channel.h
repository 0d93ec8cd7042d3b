/* A worker's end of the channel to its agent: it connects, and sends and receives packets. On the
 * agent's request it also writes the flight record. contract/channel.h describes the packets and
 * the shared page.
 *
 * A process has one channel, because the agent identifies each worker by one token. The first
 * runtime of the process gets the channel; further runtimes work without an agent. */
#ifndef RUNTIME_CHANNEL_H
#define RUNTIME_CHANNEL_H

#include "base/error.h"
#include "contract/channel.h"
#include "worker_runtime/channel/packet.h"

struct worker_channel {
    /* the connection; -1 if there is none, in which case sending and receiving fail */
    int fd;
    struct channel_page *page; /* memory shared with the agent; NULL if there is no connection */
    bool was_open;             /* true if a connection was made, even if it has been closed */
    uint32_t bell_seen;        /* value that the page's bell had when all packets were last read */
    struct round_state round;
    /* shown[i] is the `entry` that was given to worker_channel_show() for the page's groups[i];
     * NULL if groups[i] is not in use */
    struct channel_group **shown[CHANNEL_GROUPS_MAX];
};

/* Connects to the agent whose address is in the environment variable CRUN_AGENT. On failure c->page
 * is NULL and *why contains the reason; the worker can run without an agent. */
void worker_channel_open(struct worker_channel *c, struct cr_error *why);
void worker_channel_close(struct worker_channel *c);

/* Sends a packet that has only a type and an id. Returns 0. If sending fails, closes the channel
 * and returns a negative errno. */
int worker_channel_send(struct worker_channel *c, enum channel_type type, uint64_t id);

/* Waits for one packet until deadline_ms (on the clock of cr_monotonic_ms()), and reads it into *p.
 * Returns 1 if a packet was read, or 0 if none came before the deadline. If the connection is lost,
 * or something other than a packet came, closes the channel and returns -ENOTCONN. */
int worker_channel_receive(struct worker_channel *c, int64_t deadline_ms, struct channel_packet *p);

/* Waits until the agent has set `over` in the page, but at most until deadline_ms. Reads no packet,
 * so another thread may use the channel during the wait. Returns 1 if `over` is set; -ETIMEDOUT;
 * -ENOTCONN if there is no connection, or the connection is lost; or another negative errno. */
int worker_channel_wait_over(struct worker_channel *c, int64_t deadline_ms);

/* Reads all packets that have arrived, and applies them to c->round. While the worker is frozen,
 * the function waits for further packets. If the agent is gone, or has sent no agreed step by
 * round_state_wait_until_ms(), the function removes the change from c->round, so that the worker
 * goes on. */
void worker_channel_read_all(struct worker_channel *c);

/* Resets c->round for a new round: no step made, no change announced, no group shown. The
 * connection stays open. */
void worker_channel_begin_round(struct worker_channel *c);

/* What a worker's page says about one process group. */
struct shown_group {
    uint64_t number; /* index of the group among all groups made in this round */
    const char *name;
    uint32_t place, size;
};

/* Gives a group an entry in the page, and sets *entry to it. If there is no page or no entry is
 * free, sets *entry to NULL. The entry can be written even after the channel is closed. When the
 * next round begins, worker_channel_begin_round() sets *entry to NULL; so `entry` must stay valid
 * until worker_channel_hide(). */
void worker_channel_show(struct worker_channel *c, const struct shown_group *group,
                         struct channel_group **entry);
void worker_channel_hide(struct worker_channel *c, struct channel_group **entry);

#endif
