/* torchrun's events (--event-log-handler=console): one JSON object a line on stderr. Nothing is
 * written unless job->console_events asks for it. Source: torchrun's events, field by field. */
#ifndef AGENT_EVENTS_H
#define AGENT_EVENTS_H

#include "agent/agent.h"
#include "agent/process/nursery.h"

/* A rendezvous is complete and ranks are assigned, `took_ms` after the agent began. */
void events_round(const struct agent_job *job, const struct rendezvous_round *round,
                  const char *host, int64_t took_ms);
void events_worker_started(const struct agent_job *job, const struct rendezvous_round *round,
                           const char *host, uint32_t local_rank, pid_t pid);
void events_worker_ended(const struct agent_job *job, const struct rendezvous_round *round,
                         const char *host, uint32_t local_rank, const struct worker_exit *how,
                         int64_t ran_ms);
/* FAILED only for an error or a signal: workers that fail are no failure of the agent's. */
void events_agent_ended(const struct agent_job *job, const struct rendezvous_round *round,
                        const char *host, enum agent_outcome outcome, int64_t ran_ms);

#endif
