/* The agent's end of base/agent_link.h: one listening socket a node, one connection and one page of
 * shared memory a worker that asks for them. Knows packets and pages, nothing of rounds or policy.
 *
 * Workers that do not link the worker runtime never connect, and then all of this costs one socket.
 * Nothing polls: a worker's steps are read when somebody asks, and, for one that has set a limit from
 * step to step, by a timer that runs to the earliest moment at which a step may be overdue. */
#ifndef AGENT_WORKER_LINK_H
#define AGENT_WORKER_LINK_H

#include "base/agent_link.h"
#include "base/error.h"

#include <uv.h>

/* "CRUN_AGENT=<address>:<token>" and its NUL. */
#define WORKER_LINK_VARIABLE_MAX (sizeof(LINK_VARIABLE) + LINK_ADDRESS_MAX + LINK_TOKEN_MAX)

struct worker_links;

/* On the loop's thread, never from inside a call below. */
struct worker_link_events {
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
    enum link_answer answer;
    int64_t needs_ms;
};

/* limit_ms: the limit from step to step of workers that set none themselves; 0 = none.
 * `events` is copied. 0, or a negative errno with a text. */
int worker_links_open(uv_loop_t *loop, uint32_t workers, int64_t limit_ms,
                      const struct worker_link_events *events, void *arg,
                      struct worker_links **out, struct cr_error *err);

/* A worker is about to be started: whoever was connected in its place is cut off, and `variable` gets
 * what belongs into its environment. 0 or -EIO (no randomness). */
int worker_links_prepare(struct worker_links *l, uint32_t local_rank,
                         char variable[WORKER_LINK_VARIABLE_MAX]);

void worker_links_look(const struct worker_links *l, uint32_t local_rank, struct worker_says *out);

/* Sends and rings the bell. 0, -ENOTCONN, or what the kernel says; then the worker is cut off. */
int worker_links_send(struct worker_links *l, uint32_t local_rank, const struct link_packet *packet);

/* Asks for the flight record; on_dumped follows, if the worker can. 0, -ENOTSUP (it has no handler for
 * that), -ENOTCONN, -ESRCH. */
int worker_links_ask_dump(struct worker_links *l, uint32_t local_rank, uint64_t dump_id);

/* Its next steps are those of a new round. */
void worker_links_begin_round(struct worker_links *l, uint32_t local_rank);

/* Frees once its handles are closed. */
void worker_links_close(struct worker_links *l, void (*on_close)(void *arg));

#endif
