/* Reads the fields of etcd's JSON answers: leases, members of the cluster, and the key of a leader.
 * Pure. etcd's JSON has 64-bit numbers as decimal texts and bytes as base64. A field of the wrong
 * type is treated like a missing field. */
#ifndef RENDEZVOUS_ETCD_FIELDS_INTERNAL_H
#define RENDEZVOUS_ETCD_FIELDS_INTERNAL_H

#include "base/endpoint.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_LEASE_ID_MAX 24 /* bytes of a lease id as decimal text, NUL included */

/* Returns `text` in base64, which the caller frees, or NULL when memory is short. */
char *etcd_base64(const char *text);

/* Stores the lease id from the answer to a lease grant in `id`. Returns false if the answer has
 * none. */
bool etcd_read_lease(const json_t *answer, char id[ETCD_LEASE_ID_MAX]);

/* Returns whether the lease still exists, according to the answer to a lease keep-alive. */
bool etcd_lease_lives(const json_t *answer);

/* Stores the http:// addresses of the cluster's members in `out`, at most `room` of them. Returns
 * how many it has stored. */
size_t etcd_read_members(const json_t *answer, struct cr_endpoint *out, size_t room);

struct etcd_leader {
    struct cr_endpoint at;
    uint64_t epoch;               /* revision at which the leader's key was created; never 0 */
    char lease[ETCD_LEASE_ID_MAX]; /* id of the leader's lease; "" = unknown */
};
/* Stores the leader that an answer of the observe stream names in *out. Returns false if the answer
 * cannot be parsed. */
bool etcd_read_leader(const json_t *answer, struct etcd_leader *out);

#endif
