/* Whether a host leads a job: see leading_internal.h. */
#include "rendezvous/rules/leading_internal.h"

uint64_t leading_epoch(const struct leading *l) {
    return l->has_job && l->job_epoch > l->host_epoch ? l->job_epoch : l->host_epoch;
}

bool leading_is_in_doubt(const struct leading *l, uint64_t named) {
    return l->allows_heirs && l->has_job && !l->is_superseded && named > leading_epoch(l);
}

/* Without heirs, only one host can serve a job, so a node that names a larger epoch has come to the
 * wrong host. With heirs, a host that is not superseded serves the node, and names the larger epoch
 * to it. */
bool leading_serves(const struct leading *l, uint64_t named, uint64_t *epoch) {
    *epoch = leading_epoch(l);
    if (!l->allows_heirs) return named <= *epoch;
    if (l->has_job && l->is_superseded) return false;
    if (named > *epoch) *epoch = named;
    return true;
}

uint64_t leading_admits(const struct leading *l, uint64_t named, bool is_same_run) {
    uint64_t known = is_same_run ? l->job_epoch : 0;
    if (!l->allows_heirs) return l->job_epoch;
    return named > known ? named : known;
}

/* If this host has given the job up already (is_superseded), it gives the job up again only to a
 * host with a larger epoch. */
bool leading_gives_up(const struct leading *l, uint64_t named, bool decides, bool has_ended) {
    if (!l->allows_heirs || !l->has_job || decides || has_ended) return false;
    return !l->is_superseded || named > l->job_epoch;
}
