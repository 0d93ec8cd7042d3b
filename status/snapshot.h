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

/* Returns a new snapshot with the fields that every snapshot has: the version, the time, this host
 * and process, and the list `jobs`. The function takes over the reference to `jobs`. Returns NULL
 * if memory is short. */
json_t *status_snapshot(json_t *jobs);

struct rdzv_status_job;
struct rdzv_status_node;
/* Appends a job to the list `jobs`, or a node to the last job of the list. These two functions are
 * the callbacks of rendezvous_visit() (rendezvous/server.h). */
void status_add_job(void *jobs, const struct rdzv_status_job *job);
void status_add_node(void *jobs, const struct rdzv_status_node *node);
/* Adds a worker to the last job of the list. Another callback of rendezvous_visit(). */
struct rdzv_status_rank;
void status_add_rank(void *jobs, const struct rdzv_status_rank *rank);
/* Puts a rank into the list "ranks" of a job, in place of an entry with the same number. Takes over
 * the reference to `rank`. */
void status_put_rank(json_t *job, json_t *rank);

/* Sets fields of `job`, which must have the list "ranks". For each rank that counts steps:
 * "behind", the number of steps by which the rank is behind the rank with the most steps. For the
 * job: "slowest", the number of the rank that is furthest behind; and "odd", the rank that holds
 * the job up, and why, or null if no rank does. Pure. */
void status_judge(json_t *job);

/* ---- texts made of a snapshot; pure ---- */

/* Appends the metrics of a snapshot as text: OpenMetrics 1.0 if is_open, otherwise the older format
 * of Prometheus. Returns 0 or -ENOMEM. */
int status_metrics(struct cr_buffer *out, const json_t *snapshot, bool is_open);

#endif
