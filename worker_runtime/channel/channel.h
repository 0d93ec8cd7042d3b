/* A worker's end of the channel to its agent: connects, and sends and receives packets. If the
 * agent sends the dump signal, the worker also writes its flight record. contract/channel.h
 * describes the packets and the shared page.
 *
 * A process has only one channel, because the agent gives each worker one token. The first runtime
 * of the process uses the channel; further runtimes work without an agent. */
#ifndef RUNTIME_CHANNEL_H
#define RUNTIME_CHANNEL_H

#include "base/error.h"
#include "contract/channel.h"
#include "worker_runtime/channel/packet.h"

struct worker_channel {
    /* the connection; -1 if there is none, so that sending and receiving fail */
    atomic_int fd;
    /* memory shared with the agent; NULL if there is no connection */
    _Atomic(struct channel_page *) page;
    bool was_open;             /* true if a connection was made; stays true after it is closed */
    uint32_t bell_seen;        /* value of the page's bell when the worker last read all packets */
    struct round_state round;
    /* If the page's groups[i] belongs to a process group, shown[i] is the pointer `entry` that was
     * given to worker_channel_show() for this group. If groups[i] is free, shown[i] is NULL. */
    struct channel_group **shown[CHANNEL_GROUPS_MAX];
};

/* Connects to the agent that the environment variable CRUN_AGENT names. On failure, c->page is NULL
 * and *why contains the reason; the worker can run without an agent. */
void worker_channel_open(struct worker_channel *c, struct cr_error *why);
void worker_channel_close(struct worker_channel *c);

/* Sends a packet that consists of a type and an id. Returns 0. If sending fails, closes the channel
 * and returns a negative errno. */
int worker_channel_send(struct worker_channel *c, enum channel_type type, uint64_t id);

/* Waits for one packet until deadline_ms (on the clock of cr_monotonic_ms()), and reads it into *p.
 * Returns 1 if a packet was read, or 0 if none came before the deadline. If the connection is lost,
 * or something other than a packet came, closes the channel and returns -ENOTCONN. */
int worker_channel_receive(struct worker_channel *c, int64_t deadline_ms, struct channel_packet *p);

/* Waits until the agent has set `over` in the page, at most until deadline_ms. Reads no packet, so
 * another thread may use the channel during the wait, and may close it. Returns 1 if `over` is set;
 * -ETIMEDOUT at the deadline; -ENOTCONN if there is no connection, or if it is lost or closed; or
 * another negative errno. */
int worker_channel_wait_over(struct worker_channel *c, int64_t deadline_ms);

/* Reads all packets that have arrived, and applies them to c->round. If the worker is frozen, waits
 * for further packets. If the agent is gone, or if no agreed step has come by
 * round_state_wait_until_ms(), removes the change from c->round, so that the worker goes on. */
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

/* Sets *entry to a free entry of the page, which now belongs to the group; or to NULL if there is
 * no page or no free entry. The entry may be written even after the channel is closed.
 * worker_channel_begin_round() sets *entry to NULL. So the pointer `entry` must stay valid until
 * worker_channel_hide(). */
void worker_channel_show(struct worker_channel *c, const struct shown_group *group,
                         struct channel_group **entry);
void worker_channel_hide(struct worker_channel *c, struct channel_group **entry);

#endif
