/* The snapshot of jobs: a JSON object that says what jobs, nodes and workers do now; docs/status.md
 * has its fields. These functions make parts of a snapshot, and texts from it. */
#ifndef STATUS_SNAPSHOT_H
#define STATUS_SNAPSHOT_H

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>

/* ---- parts of a snapshot ---- */

/* Returns a new JSON string with the name of a state in lower case, at most 31 bytes: "running" for
 * "RUNNING". Returns NULL if memory is short. */
json_t *status_word(const char *name);

/* Returns a new snapshot with what every snapshot has: the version, the time, this host and
 * process, and the list of jobs, whose reference the function takes. Returns NULL if memory is
 * short. */
json_t *status_snapshot(json_t *jobs);

struct rdzv_status_job;
struct rdzv_status_node;
/* Appends a job to the list `jobs`, or a node to the last job of the list. These two functions are
 * the callbacks of rendezvous_visit() (rendezvous/server.h). */
void status_add_job(void *jobs, const struct rdzv_status_job *job);
void status_add_node(void *jobs, const struct rdzv_status_node *node);

/* Sets in `job`, which has the list "ranks": for each rank that counts steps, "behind", which is by
 * how many steps it is behind the rank with the most steps; "slowest", the rank that is furthest
 * behind; and "odd", the rank that holds the job up and why, or null if none does. Pure. */
void status_judge(json_t *job);

/* ---- texts made of a snapshot; pure ---- */

/* Appends the metrics of a snapshot as text: OpenMetrics 1.0 if is_open, otherwise the older format
 * of Prometheus. Returns 0 or -ENOMEM. */
int status_metrics(struct cr_buffer *out, const json_t *snapshot, bool is_open);

#endif
