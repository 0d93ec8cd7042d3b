/* Writes the cycle info files of NVIDIA's resiliency extension (NVRx). From these files nvrx-watch
 * and other programs for NVRx's jobs learn which rounds a job has had. NVRx calls a round a cycle.
 *
 * The folder gets one file for each round, cycle_info.JOB.ATTEMPT.CYCLE, which is replaced when the
 * round has ended. The symbolic link cycle_info.JOB.current points to the newest file. */
#ifndef AGENT_REPORT_CYCLE_INFO_H
#define AGENT_REPORT_CYCLE_INFO_H

#include "rendezvous/rendezvous.h"

#include <jansson.h>

struct cycle_info {
    const char *folder; /* NULL if no files are written */
    const char *run_id;
    json_t *file; /* contents of the running round's file; NULL if no round runs */
};

/* Writes the file of a new round. Call this on the node with group rank 0 when the round begins. If
 * cycle_info_end() was not called for the round before, this function does it first. `log_folder`
 * is the folder with this node's logs. If this node hosts the coordinator, the file lists the nodes
 * of the round that `r` knows; otherwise it lists only `host`. */
void cycle_info_begin(struct cycle_info *c, const struct rendezvous *r,
                      const struct rendezvous_round *round, const char *host,
                      const char *log_folder);
/* Writes the time of the round's end into the round's file. Call this when the workers of the round
 * are gone. Does nothing if no round runs. */
void cycle_info_end(struct cycle_info *c);

#endif
