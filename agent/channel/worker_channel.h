/* The agent's end of the channels to its workers (contract/channel.h): one listening socket per
 * node, and for each worker that connects, one connection and one page of shared memory. This file
 * handles packets and pages; node.c decides what they mean.
 *
 * A worker without the worker runtime never connects, so it costs nothing here. The agent does not
 * poll: it reads a worker's page when the node needs it. For workers with a step timeout, one timer
 * of the loop runs until the earliest time at which a step may be overdue. */
#ifndef AGENT_WORKER_CHANNEL_H
#define AGENT_WORKER_CHANNEL_H

#include "agent/node/node.h"
#include "base/error.h"
#include "contract/channel.h"
#include "contract/progress.h"

#include <uv.h>

/* size in bytes of a buffer for "CRUN_AGENT=<address>:<token>" and a NUL */
#define WORKER_CHANNEL_VARIABLE_MAX                                                                \
    (sizeof(CHANNEL_VARIABLE) + CHANNEL_ADDRESS_MAX + CHANNEL_TOKEN_MAX)

struct worker_channels;

/* Callbacks. They run on the loop's thread, and never from inside a function below. */
struct worker_channel_events {
    /* Runs when the worker has connected: from now on it has a page and receives packets. */
    void (*on_connected)(void *arg, uint32_t local_rank);
    void (*on_ready)(void *arg, uint32_t local_rank, uint64_t change_id);
    void (*on_rejoin)(void *arg, uint32_t local_rank);
    void (*on_dumped)(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path);
    /* Runs when the worker has made no step for `ms`, its step timeout. `step` is the number of
     * steps that the worker has made. This callback runs once per hang: it runs again only if the
     * worker makes another step and then hangs again. */
    void (*on_hung)(void *arg, uint32_t local_rank, uint64_t step, int64_t ms);
    /* Runs when crun-agent top requests the snapshot. The callback first carries out `order`; for
     * the order NOTICE, left_ms is the time until this node leaves. It returns the snapshot as
     * malloc'ed JSON text, or NULL if memory is short. */
    char *(*on_look)(void *arg, enum channel_order order, int64_t left_ms);
};

/* Opens the listening socket. limit_ms is the step timeout of workers that set none themselves; 0
 * if such workers have no step timeout. Copies `events`. Returns 0; or a negative errno, and sets
 * err to a text that says what failed. */
int worker_channels_open(uv_loop_t *loop, uint32_t workers, int64_t limit_ms,
                         const struct worker_channel_events *events, void *arg,
                         struct worker_channels **out, struct cr_error *err);

/* Prepares the start of a worker: closes the channel of the process that had this local rank
 * before, and writes the variable CRUN_AGENT=… for the new worker's environment. Returns 0, or -EIO
 * if no random token can be drawn. */
int worker_channels_prepare(struct worker_channels *l, uint32_t local_rank,
                            char variable[WORKER_CHANNEL_VARIABLE_MAX]);

/* Reads a worker's progress from its page. If the worker has no channel, or its channel is closed,
 * all fields are 0 except stopped_for, which keeps its last value. Reason: the channel of a worker
 * that exits is usually closed before its exit is reported, and the node must then still know
 * whether the worker ended because of a change. */
void worker_channels_read_page(const struct worker_channels *l, uint32_t local_rank,
                               struct worker_progress *out);

/* Stores in out[] which operation a worker is in, in each of its process groups. out[] has room for
 * CHANNEL_GROUPS_MAX groups. If the worker's channel is closed, the operations are those at the
 * time of closing, until the worker is started again or gets a new round. Returns the number of
 * groups. */
size_t worker_channels_read_groups(const struct worker_channels *l, uint32_t local_rank,
                                   struct progress *out);

/* Reads the worker's steps in this round from its page. After the worker's channel is closed, this
 * gives the steps at the time of closing. */
void worker_channels_read_steps(const struct worker_channels *l, uint32_t local_rank,
                                struct worker_steps *out);

/* Sends a packet to a worker and increments the bell in its page. Returns 0; -ENOTCONN if the
 * worker has no channel; or another negative errno if sending failed, after which the channel is
 * closed. */
int worker_channels_send(struct worker_channels *l, uint32_t local_rank,
                         const struct channel_packet *packet);

/* Sends the worker its dump signal, which requests its flight record. If the worker answers,
 * on_dumped runs. Returns 0; -ENOTCONN if the worker has no channel; -ENOTSUP if it has no handler
 * for the signal; or another negative errno if the signal cannot be sent, such as -ESRCH. */
int worker_channels_ask_dump(struct worker_channels *l, uint32_t local_rank, uint64_t dump_id);

/* Prepares a worker's page for a new round: sets its number of steps to 0, and starts its step
 * timeout. */
void worker_channels_begin_round(struct worker_channels *l, uint32_t local_rank);

/* Closes all channels. When the loop has closed all handles, the object is freed, and on_close runs
 * unless it is NULL. */
void worker_channels_close(struct worker_channels *l, void (*on_close)(void *arg));

#endif
