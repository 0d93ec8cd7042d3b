/* A worker's end of the channel to its agent: connecting, packets, and the flight record that the
 * agent may ask for. contract/channel.h describes the packets and the shared page.
 *
 * There is one channel per process, because the agent knows each worker by one token. The first
 * runtime of the process gets it; further runtimes work without an agent. */
#ifndef RUNTIME_CHANNEL_H
#define RUNTIME_CHANNEL_H

#include "base/error.h"
#include "contract/channel.h"
#include "worker_runtime/channel/packet.h"

struct worker_channel {
    int fd;                    /* -1: not connected; sending and receiving then fail */
    struct channel_page *page; /* NULL: not connected */
    bool was_open;             /* there was a connection at some time */
    uint32_t bell_seen;        /* the page's bell when all packets had been read last */
    struct round_state round;
};

/* Connects to the agent that CRUN_AGENT names. A worker runs without an agent, too, so nothing is
 * returned: afterwards c->page is NULL if there is no connection, and *why has the reason. */
void worker_channel_open(struct worker_channel *c, struct cr_error *why);
void worker_channel_close(struct worker_channel *c);

/* Sends a packet without a body. 0 or a negative errno; after a failure the channel is closed. */
int worker_channel_send(struct worker_channel *c, enum channel_type type, uint64_t id);

/* Reads one packet into *p, waiting for it until the deadline (cr_monotonic_ms) at most.
 * Returns 1; 0 if there was none by then; or a negative errno: the channel is closed. */
int worker_channel_receive(struct worker_channel *c, int64_t deadline_ms, struct channel_packet *p);

/* Reads all packets that are there into c->round, and goes on waiting for more while the worker is
 * frozen. If the agent lets the change's time pass without an agreed step, or is gone, the change
 * is dropped and the worker goes on. */
void worker_channel_read_all(struct worker_channel *c);

/* Begins a round with no step made and no change announced; the connection stays. */
void worker_channel_begin_round(struct worker_channel *c);

#endif
