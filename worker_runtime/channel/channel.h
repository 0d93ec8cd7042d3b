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
    /* the connection, or -1 if there is none; sending and receiving then fail */
    int fd;
    struct channel_page *page; /* memory shared with the agent; NULL if there is no connection */
    bool was_open;             /* true once a connection has been made, even if it is closed now */
    uint32_t bell_seen;        /* value that the page's bell had when all packets were last read */
    struct round_state round;
};

/* Connects to the agent whose address is in CRUN_AGENT. Returns nothing, because a worker can run
 * without an agent: after a failure c->page is NULL and *why contains the reason. */
void worker_channel_open(struct worker_channel *c, struct cr_error *why);
void worker_channel_close(struct worker_channel *c);

/* Sends a packet that has only a type and an id. Returns 0; or a negative errno, and closes the
 * channel. */
int worker_channel_send(struct worker_channel *c, enum channel_type type, uint64_t id);

/* Reads one packet into *p. Waits for it until deadline_ms (on the clock of cr_monotonic_ms()).
 * Returns 1; 0 if no packet came before the deadline; or a negative errno, and closes the channel.
 */
int worker_channel_receive(struct worker_channel *c, int64_t deadline_ms, struct channel_packet *p);

/* Waits until the agent has set `over` in the page, until deadline_ms at the longest. Reads no
 * packet, so another thread may use the channel meanwhile. Returns 1; -ETIMEDOUT; -ENOTCONN if
 * there is no connection, or it is lost; or another negative errno. */
int worker_channel_wait_over(struct worker_channel *c, int64_t deadline_ms);

/* Reads all packets that have arrived, into c->round. While the worker is frozen, it waits for
 * further packets. If the agent is gone, or sends no agreed step before the time of the change is
 * over, the function drops the change, and the worker goes on. */
void worker_channel_read_all(struct worker_channel *c);

/* Resets c->round for a new round: no step made, no change announced. The connection stays open. */
void worker_channel_begin_round(struct worker_channel *c);

#endif
