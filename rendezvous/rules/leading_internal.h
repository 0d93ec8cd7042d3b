/* Decides whether a host serves a node, and whether it gives a job up to another host. Pure.
 *
 * A host that is lost may come back while an heir already leads the job. Nodes and hosts name the
 * epoch that they know; the coordinator with the larger epoch is the newer one. But an epoch that
 * is larger than the host's does not prove that an heir leads: perhaps a node has only tried to
 * join one. So the host asks its coordinator whether that may decide (coordinator_hear_epoch()). */
#ifndef RENDEZVOUS_LEADING_INTERNAL_H
#define RENDEZVOUS_LEADING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* What a host knows about a job. */
struct leading {
    bool allows_heirs;   /* true: if this host is lost, another node takes over its jobs */
    bool has_job;        /* true: this host knows the job; the two fields below are then valid */
    bool is_superseded;  /* true: another host leads the job */
    uint64_t job_epoch;  /* epoch of the job's coordinator at this host */
    uint64_t host_epoch; /* epoch of jobs that this host does not know yet */
};

/* Returns the epoch of the job at this host: the larger one of the two. */
uint64_t leading_epoch(const struct leading *l);

/* Returns whether the host has to ask its coordinator before it serves a node that names the epoch
 * `named`. If the coordinator is superseded, so is the job: the caller sets is_superseded. */
bool leading_is_in_doubt(const struct leading *l, uint64_t named);

/* Returns whether the host serves a node that names the epoch `named`. If so, stores in *epoch the
 * epoch under which the job goes on, otherwise that of this host. Call this after
 * leading_is_in_doubt(). */
bool leading_serves(const struct leading *l, uint64_t named, uint64_t *epoch);

/* Returns whether the host gives the job up, because another host says that it leads the job with
 * the epoch `named`. `decides`: the coordinator of this host may decide. `has_ended`: the job has
 * ended. */
bool leading_gives_up(const struct leading *l, uint64_t named, bool decides, bool has_ended);

#endif
