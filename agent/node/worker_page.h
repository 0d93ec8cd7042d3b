/* The agent's view of a worker's page (contract/channel.h). Any value may stand in the worker's
 * half of the page, so it is read like bytes from a network: every field of the view is within its
 * range. Pure, so that the simulator's workers use the same pages. */
#ifndef AGENT_NODE_WORKER_PAGE_H
#define AGENT_NODE_WORKER_PAGE_H

#include "contract/channel.h"

#include <stdbool.h>

struct worker_progress {
    bool connected;       /* false: it has no channel (any more); only stopped_for may be set */
    bool can_rejoin;      /* it survives the end of its round in its process */
    uint64_t step;        /* steps made in this round; 0: it takes no part in changes (yet) */
    uint64_t stopped_for; /* id of the change for which it stopped; 0 = none */
    enum channel_answer answer;
    int64_t needs_ms; /* with CHANNEL_NEEDS; at most a year */
};

void worker_page_read(struct channel_page *page, struct worker_progress *out);

/* Clears what the page says of the round that is over. */
void worker_page_begin_round(struct channel_page *page);

#endif
