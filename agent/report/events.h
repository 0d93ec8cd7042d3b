/* Writes torchrun's events (--event-log-handler=console) into the log, one JSON object per line.
 * Every field is as in torchrun (torch/distributed/elastic/events and the agent's
 * _construct_event). */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include "agent/process/nursery.h"
#include "rendezvous/rendezvous.h"

#include <stdbool.h>
#include <stdint.h>

/* The fields that all events of an agent have in common. The strings must be valid while a function
 * below runs. */
struct event_source {
    bool enabled; /* true if events are written; if false, the functions below do nothing */
    const char *run_id, *role, *backend, *entry_point, *host;
};

/* Writes the two events of a complete rendezvous, RENDEZVOUS and ASSIGN_WORKER_RANKS. `took_ms` is
 * the time in ms since the agent was started. */
void events_round(struct event_source source, const struct rendezvous_round *round,
                  int64_t took_ms);
void events_worker_started(struct event_source source, const struct rendezvous_round *round,
                           uint32_t local_rank, pid_t pid);
void events_worker_ended(struct event_source source, const struct rendezvous_round *round,
                         uint32_t local_rank, const struct worker_exit *how, int64_t ran_ms);
/* Writes the last event of the agent. `succeeded` is false if an error or a signal ended the agent.
 * As in torchrun, it is true even if workers failed. */
void events_agent_ended(struct event_source source, const struct rendezvous_round *round,
                        bool succeeded, int64_t ran_ms);

#endif
