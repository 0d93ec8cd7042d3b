/* What the fields of etcd's answers mean: leases, members of the cluster, and the key of a
 * leader. Pure. JSON carries 64-bit numbers as decimal texts and bytes as base64. Fields of the
 * wrong type count as missing. */
#ifndef RENDEZVOUS_ETCD_FIELDS_INTERNAL_H
#define RENDEZVOUS_ETCD_FIELDS_INTERNAL_H

#include "base/endpoint.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ETCD_LEASE_ID_MAX 24 /* a decimal number, NUL included */

/* Returns base64 text that the caller frees, or NULL when memory is short. */
char *etcd_base64(const char *text);

/* The id in the answer to a lease grant. Returns false if there is none. */
bool etcd_read_lease(const json_t *answer, char id[ETCD_LEASE_ID_MAX]);

/* Whether the answer to a keep-alive says that the lease still exists. */
bool etcd_lease_lives(const json_t *answer);

/* The http:// addresses of the cluster's members. Writes up to `room` of them, and returns how
 * many. */
size_t etcd_read_members(const json_t *answer, struct cr_endpoint *out, size_t room);

struct etcd_leader {
    struct cr_endpoint at;
    uint64_t epoch;               /* revision at which its key was made; never 0 */
    char lease[ETCD_LEASE_ID_MAX]; /* under which it leads; "" if it is not known */
};
/* The leader's key in an answer of observe. Returns false if it cannot be understood. */
bool etcd_read_leader(const json_t *answer, struct etcd_leader *out);

#endif
