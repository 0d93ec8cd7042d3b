/* Writes the cycle info files of NVIDIA's resiliency extension (NVRx), from which nvrx-watch and
 * other programs for NVRx's jobs learn which rounds a job has had. A round is called a cycle there.
 *
 * The folder gets one file for each round, cycle_info.JOB.ATTEMPT.CYCLE, which is replaced when the
 * round has ended, and the symbolic link cycle_info.JOB.current to the newest one. */
#ifndef AGENT_REPORT_CYCLE_INFO_H
#define AGENT_REPORT_CYCLE_INFO_H

#include "rendezvous/rendezvous.h"

#include <jansson.h>

struct cycle_info {
    const char *folder; /* NULL if no files are written */
    const char *run_id;
    json_t *file; /* contents of the running round's file; NULL if no round runs */
};

/* Call this on the node with group rank 0 when a round begins. Ends the round before it, if that
 * has not ended. `log_folder` is where the logs of this node are. The nodes of the round are those
 * that `r` knows if this node hosts the coordinator, else only `host`. */
void cycle_info_begin(struct cycle_info *c, const struct rendezvous *r,
                      const struct rendezvous_round *round, const char *host,
                      const char *log_folder);
/* Call this when the workers of the round are gone. Does nothing if no round runs. */
void cycle_info_end(struct cycle_info *c);

#endif
