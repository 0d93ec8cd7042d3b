/* The agent's end of contract/channel.h: one listening socket a node, one connection and one page of
 * shared memory a worker that asks for them. Knows packets and pages, nothing of rounds or policy.
 *
 * Workers that do not link the worker runtime never connect, and then all of this costs one socket.
 * Nothing polls: a worker's steps are read when somebody asks, and, for one that has set a limit from
 * step to step, by a timer that runs to the earliest moment at which a step may be overdue. */
#ifndef AGENT_WORKER_CHANNEL_H
#define AGENT_WORKER_CHANNEL_H

#include "contract/channel.h"
#include "base/error.h"

#include <uv.h>

/* "CRUN_AGENT=<address>:<token>" and its NUL. */
#define WORKER_CHANNEL_VARIABLE_MAX (sizeof(CHANNEL_VARIABLE) + CHANNEL_ADDRESS_MAX + CHANNEL_TOKEN_MAX)

struct worker_channels;

/* On the loop's thread, never from inside a call below. */
struct worker_channel_events {
    void (*on_ready)(void *arg, uint32_t local_rank, uint64_t change_id);
    void (*on_rejoin)(void *arg, uint32_t local_rank);
    void (*on_dumped)(void *arg, uint32_t local_rank, uint64_t dump_id, const char *path);
    /* No step for `ms`, the limit; `step` were made. Once, until the worker steps again. */
    void (*on_hung)(void *arg, uint32_t local_rank, uint64_t step, int64_t ms);
};

/* What a worker says of itself in its page; every field is within its range. */
struct worker_says {
    int connected; /* 0: all else is 0 */
    int can_rejoin, can_dump;
    uint64_t step, stopped_for;
    enum channel_answer answer;
    int64_t needs_ms;
};

/* limit_ms: the limit from step to step of workers that set none themselves; 0 = none.
 * `events` is copied. 0, or a negative errno with a text. */
int worker_channels_open(uv_loop_t *loop, uint32_t workers, int64_t limit_ms,
                      const struct worker_channel_events *events, void *arg,
                      struct worker_channels **out, struct cr_error *err);

/* A worker is about to be started: whoever was connected in its place is cut off, and `variable` gets
 * what belongs into its environment. 0 or -EIO (no randomness). */
int worker_channels_prepare(struct worker_channels *l, uint32_t local_rank,
                         char variable[WORKER_CHANNEL_VARIABLE_MAX]);

void worker_channels_look(const struct worker_channels *l, uint32_t local_rank, struct worker_says *out);

/* Sends and rings the bell. 0, -ENOTCONN, or what the kernel says; then the worker is cut off. */
int worker_channels_send(struct worker_channels *l, uint32_t local_rank, const struct channel_packet *packet);

/* Asks for the flight record; on_dumped follows, if the worker can. 0, -ENOTSUP (it has no handler for
 * that), -ENOTCONN, -ESRCH. */
int worker_channels_ask_dump(struct worker_channels *l, uint32_t local_rank, uint64_t dump_id);

/* Its next steps are those of a new round. */
void worker_channels_begin_round(struct worker_channels *l, uint32_t local_rank);

/* Frees once its handles are closed. */
void worker_channels_close(struct worker_channels *l, void (*on_close)(void *arg));

#endif
