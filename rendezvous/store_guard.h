/* Whom the stores of the rounds serve: the value of --store-allow. */
#ifndef RENDEZVOUS_STORE_GUARD_H
#define RENDEZVOUS_STORE_GUARD_H

#include "base/error.h"
#include "base/network/network.h"

#define RENDEZVOUS_NETWORKS_MAX 64 /* largest number of networks in --store-allow */

/* Whom the stores of the rounds serve (--store-allow). */
enum rendezvous_store_access {
    RENDEZVOUS_STORE_AUTO,  /* as NODES if the job has a secret, else as ANY */
    RENDEZVOUS_STORE_ANY,   /* everybody who can reach them */
    RENDEZVOUS_STORE_NODES, /* their own machine, the round's nodes, and `networks` */
};
struct rendezvous_store_guard {
    enum rendezvous_store_access access;
    struct cr_network networks[RENDEZVOUS_NETWORKS_MAX];
    uint32_t network_count;
};

/* Parses the value of --store-allow: "any", "nodes", or networks that are separated by commas, such
 * as "10.0.0.0/8,fd00::/8". If networks are given, the stores serve the nodes and these networks.
 * Returns 0; or -EINVAL, and sets err to a text that quotes what is wrong. */
int rendezvous_store_guard_parse(const char *text, struct rendezvous_store_guard *out,
                                 struct cr_error *err);

#endif
