/* torchrun's events (--event-log-handler=console): one JSON object per line, in the stream of the
 * log. Source: torchrun's events, field by field (torch/distributed/elastic/events and the agent's
 * _construct_event). */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include "agent/process/nursery.h"
#include "rendezvous/rendezvous.h"

#include <stdbool.h>
#include <stdint.h>

/* What all events of an agent have in common. The texts are borrowed. */
struct event_source {
    bool enabled; /* false: the functions below do nothing */
    const char *run_id, *role, *backend, *entry_point, *host;
};

/* A rendezvous is complete and ranks are assigned, `took_ms` after the agent began. */
void events_round(struct event_source source, const struct rendezvous_round *round,
                  int64_t took_ms);
void events_worker_started(struct event_source source, const struct rendezvous_round *round,
                           uint32_t local_rank, pid_t pid);
void events_worker_ended(struct event_source source, const struct rendezvous_round *round,
                         uint32_t local_rank, const struct worker_exit *how, int64_t ran_ms);
/* `succeeded` is false after an error or a signal. Failed workers are not a failure of the
 * agent. */
void events_agent_ended(struct event_source source, const struct rendezvous_round *round,
                        bool succeeded, int64_t ran_ms);

#endif
