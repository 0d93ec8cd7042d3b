/* Implements --preload: keeps one fork server (agent/process/nursery.h), which imports the modules
 * once. Workers that are started after that are forks of the server. */
#ifndef AGENT_PRELOAD_H
#define AGENT_PRELOAD_H

#include "agent/agent_job.h"
#include "agent/process/nursery.h"

#include <stdbool.h>

struct preload {
    struct fork_server *server; /* NULL if there is none at present */
    bool has_failed; /* true if a server could not be started, or ended before it had imported the
                      * modules; no further one is started */
};

/* Starts the fork server, if the job preloads modules and has no server yet. Call this before the
 * agent joins, and after the workers of a round have been started. If the start fails, this logs a
 * warning, and the workers are executed instead of forked. */
void preload_begin(struct preload *p, struct nursery *n, const struct agent_job *job);

/* Frees the fork server. Call this when the server has ended. If it ended before it had imported
 * the modules, this logs a warning, and no further server is started. */
void preload_ended(struct preload *p);

/* Makes the next nursery_end() end the fork server, too. Call this when the job ends. */
void preload_release(struct preload *p);

/* Ends the fork server, if it is alive. Call this before nursery_close(). */
void preload_close(struct preload *p);

#endif
