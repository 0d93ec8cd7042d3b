/* The key by which the nodes of one job elect their coordinator, as etcd reports it.
 *
 * The key exists while a node leads. Its value is the address of that node's coordinator. The key
 * belongs to a lease of that node: if the node does not renew the lease in time, etcd deletes the
 * key. A revision is the number of a change in etcd; revisions only grow.
 *
 * A second key, the mark, is created with the first claim and stays until the job ends. By the mark
 * a new leader knows that another node has led before, whose round may still run. */
#ifndef RENDEZVOUS_KEY_INTERNAL_H
#define RENDEZVOUS_KEY_INTERNAL_H

#include "base/network/endpoint.h"

#include <stdbool.h>
#include <stdint.h>

#define ETCD_LEASE_ID_MAX 24 /* bytes of a lease id as decimal text, NUL included */

struct etcd_key {
    uint64_t revision;             /* revision of etcd at which the key had this state */
    bool exists;
    /* The fields below are valid if the key exists. */
    uint64_t epoch;                /* revision at which the key was created; never 0 */
    char lease[ETCD_LEASE_ID_MAX]; /* id of the leader's lease; "" = none */
    struct cr_endpoint at;         /* where the leader's coordinator listens */
    /* true if no node has led this job before. Only the answer to the claim that created the key
     * shows that; in a key from any other answer, this is false. */
    bool is_first;
};

#endif
