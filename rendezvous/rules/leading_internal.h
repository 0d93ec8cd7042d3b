/* Decides whether a host serves a node, and whether it gives a job up to another host. Pure.
 *
 * A host that is lost may come back while an heir already leads the job. Nodes and hosts name the
 * epoch that they know; the coordinator with the larger epoch is the newer one. But an epoch that
 * is larger than the host's does not prove that an heir leads: perhaps a node has only tried to
 * join an heir. So the host asks its coordinator whether the coordinator may decide
 * (coordinator_hear_epoch()). */
#ifndef RENDEZVOUS_LEADING_INTERNAL_H
#define RENDEZVOUS_LEADING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* What a host knows about a job. */
struct leading {
    bool allows_heirs;   /* true: if this host is lost, another node takes over its jobs */
    /* true: this host knows the job; if false, is_superseded and job_epoch are not used */
    bool has_job;
    bool is_superseded;  /* true: another host leads the job */
    uint64_t job_epoch;  /* largest epoch that a node with a seat, or another host, has named */
    uint64_t host_epoch; /* epoch of jobs that this host does not know yet */
};

/* Returns the epoch of the job at this host: the larger one of job_epoch and host_epoch. */
uint64_t leading_epoch(const struct leading *l);

/* Returns whether the host has to call coordinator_hear_epoch() before it serves a node that names
 * the epoch `named`. If that function returns COORDINATOR_IS_SUPERSEDED, the caller sets
 * is_superseded. */
bool leading_is_in_doubt(const struct leading *l, uint64_t named);

/* Call this after leading_is_in_doubt(). Returns whether the host serves a node that names the
 * epoch `named`. If so, stores in *epoch the epoch for the node's WELCOME, which is not smaller
 * than `named`; if not, the epoch of the job at this host. */
bool leading_serves(const struct leading *l, uint64_t named, uint64_t *epoch);

/* Call this when a node that names the epoch `named` has got a seat. Returns the new job_epoch.
 * `is_same_run` is false if the node has begun a run of the job, or has made the coordinator take
 * over a run that it did not know. Each run has epochs of its own: an heir's epoch follows from the
 * numbers of its run's rounds (succession_epoch()), and each run numbers its rounds from 0. A node
 * that gets no seat may be of another run, so the epoch that it names counts for nothing. */
uint64_t leading_admits(const struct leading *l, uint64_t named, bool is_same_run);

/* Returns whether the host gives the job up, because another host says that it leads the job with
 * the epoch `named`. `decides` is true if the coordinator of this host may decide, and `has_ended`
 * if the job has ended. */
bool leading_gives_up(const struct leading *l, uint64_t named, bool decides, bool has_ended);

#endif
