/* Reads a worker's page (contract/channel.h) for the agent. The worker may write any value into its
 * half of the page, so each value is checked: every field of struct worker_progress is within its
 * range. Pure: no I/O, so that the simulator can use it, too. */
#ifndef AGENT_NODE_WORKER_PAGE_H
#define AGENT_NODE_WORKER_PAGE_H

#include "contract/channel.h"

#include <stdbool.h>

struct worker_progress {
    /* true if the worker has a channel; if not, all fields but stopped_for are 0 */
    bool connected;
    bool counts_from_start; /* the worker takes part in changes before its first step, too */
    bool can_rejoin;      /* the worker can go on in its process after its round has ended */
    uint64_t step;        /* how many steps the worker has made in this round */
    uint64_t stopped_for; /* id of the change for which the worker has stopped; 0 = none */
    enum channel_answer answer;
    /* if answer is CHANNEL_NEEDS: time in ms that the worker needs after the agreed step, at most a
     * year; else 0 */
    int64_t needs_ms;
};

void worker_page_read(struct channel_page *page, struct worker_progress *out);

/* Clears the fields of the page that belong to the round that is over. */
void worker_page_begin_round(struct channel_page *page);

#endif
