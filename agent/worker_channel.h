/* The agent's end of the channels to its workers (contract/channel.h): one listening socket per
 * node, and one connection and one page of shared memory per worker that connects. This part knows
 * packets and pages, but no rounds and no policy.
 *
 * Workers that do not link the worker runtime never connect; then all of this costs one socket.
 * Nothing polls: a worker's page is read when the node needs it. For workers with a limit from step
 * to step, one timer runs to the earliest moment at which a step may be overdue. */
#ifndef AGENT_WORKER_CHANNEL_H
#define AGENT_WORKER_CHANNEL_H

#include "agent/node/node.h"
#include "base/error.h"
#include "contract/channel.h"

#include <uv.h>

/* Room for "CRUN_AGENT=<address>:<token>" and its NUL. */
#define WORKER_CHANNEL_VARIABLE_MAX                                                                \
    (sizeof(CHANNEL_VARIABLE) + CHANNEL_ADDRESS_MAX + CHANNEL_TOKEN_MAX)

struct worker_channels;

/* Called on the loop's thread, never from inside a call below. */
struct worker_channel_events {
    void (*on_ready)(void *arg, uint32_t local_rank, uint64_t change_id);
    void (*on_rejoin)(void *arg, uint32_t local_rank);
    void (*on_dumped)(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path);
    /* The worker made no step for `ms`, its limit; it has made `step` of them. Comes once, until
     * the worker makes another step. */
    void (*on_hung)(void *arg, uint32_t local_rank, uint64_t step, int64_t ms);
};

/* limit_ms: the limit from step to step for workers that set none themselves; 0 = none.
 * `events` is copied. Returns 0, or a negative errno with a text. */
int worker_channels_open(uv_loop_t *loop, uint32_t workers, int64_t limit_ms,
                         const struct worker_channel_events *events, void *arg,
                         struct worker_channels **out, struct cr_error *err);

/* Prepares the start of a worker: closes the channel of the process that had this local rank, and
 * writes the variable for the new worker's environment. Returns 0 or -EIO (no random numbers). */
int worker_channels_prepare(struct worker_channels *l, uint32_t local_rank,
                            char variable[WORKER_CHANNEL_VARIABLE_MAX]);

/* All zero for a worker without a channel, except stopped_for: a worker closes its channel when it
 * exits, usually before its exit is reported, and the exit means something else if it stopped for a
 * change. */
void worker_channels_read_page(const struct worker_channels *l, uint32_t local_rank,
                               struct worker_progress *out);

/* Sends a packet, then rings the bell. Returns 0, -ENOTCONN, or the kernel's error; after an error
 * the channel is closed. */
int worker_channels_send(struct worker_channels *l, uint32_t local_rank,
                         const struct channel_packet *packet);

/* Asks for the flight record by the worker's dump signal; on_dumped follows if the worker can write
 * one. Returns 0, -ENOTSUP (it has no handler for the signal), -ENOTCONN or -ESRCH. */
int worker_channels_ask_dump(struct worker_channels *l, uint32_t local_rank, uint64_t dump_id);

/* From now on the worker's page counts the steps of a new round. */
void worker_channels_begin_round(struct worker_channels *l, uint32_t local_rank);

/* Frees the object after all its handles are closed, then calls on_close. */
void worker_channels_close(struct worker_channels *l, void (*on_close)(void *arg));

#endif
