/* Reads a worker's page (contract/channel.h) for the agent. The worker may write any value into its
 * half of the page, so the functions check each value and limit it if needed: every field of struct
 * worker_progress is within its range. Pure: no I/O, so that the simulator can use it, too. */
#ifndef AGENT_NODE_WORKER_PAGE_H
#define AGENT_NODE_WORKER_PAGE_H

#include "contract/channel.h"

#include <stdbool.h>

struct worker_progress {
    /* true if the worker has a channel; if not, all fields but stopped_for are 0 */
    bool connected;
    /* true if the worker takes part in changes even before its first step */
    bool counts_from_start;
    bool can_rejoin; /* true if the worker can go on in its process after its round has ended */
    uint64_t step;        /* number of steps that the worker has made in this round */
    uint64_t stopped_for; /* id of the change for which the worker has stopped; 0 if none */
    enum channel_answer answer;
    /* if answer is CHANNEL_NEEDS: time in ms that the worker needs after the agreed step, at most a
     * year; else 0 */
    int64_t needs_ms;
};

/* A worker's steps in the current round, for the ledger and for the status. The times are in ns of
 * the monotonic clock; 0 means that no step was made. The worker wrote them, and they are not
 * compared with the clock, so they may lie in the future. If the worker's libcrunrt is so old that
 * it does not write the time of the first step, first_ns is 0 although steps were made. */
struct worker_steps {
    bool connected; /* true if the worker has a channel, or had one in this round */
    uint64_t count;
    int64_t first_ns, last_ns;
};

void worker_page_read_steps(struct channel_page *page, struct worker_steps *out);

void worker_page_read(struct channel_page *page, struct worker_progress *out);

/* Prepares the page for the worker's next round: sets step, first_step_ns, stopped_for and over to
 * 0, and removes all groups. */
void worker_page_begin_round(struct channel_page *page);

#endif
