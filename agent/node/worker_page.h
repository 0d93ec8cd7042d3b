/* Reads a worker's page (contract/channel.h) for the agent. A worker may write any value into its
 * half of the page, so each value is checked: every field of struct worker_progress is within its
 * range. Pure: no I/O, so that the simulator can use these pages, too. */
#ifndef AGENT_NODE_WORKER_PAGE_H
#define AGENT_NODE_WORKER_PAGE_H

#include "contract/channel.h"

#include <stdbool.h>

struct worker_progress {
    bool connected;       /* false = it has no channel (any more); only stopped_for may be set */
    bool can_rejoin;      /* it can go on in its process after its round has ended */
    uint64_t step;        /* steps made in this round; 0 = it takes no part in changes (yet) */
    uint64_t stopped_for; /* id of the change for which it stopped; 0 = none */
    enum channel_answer answer;
    /* for CHANNEL_NEEDS: time that it needs after the agreed step; at most a year */
    int64_t needs_ms;
};

void worker_page_read(struct channel_page *page, struct worker_progress *out);

/* Clears the fields of the page that belong to the round that is over. */
void worker_page_begin_round(struct channel_page *page);

#endif
