/* The address that a node publishes in etcd, at which the other nodes reach its coordinator. */
#ifndef RENDEZVOUS_ETCD_ADDRESS_INTERNAL_H
#define RENDEZVOUS_ETCD_ADDRESS_INTERNAL_H

#include "rendezvous/types.h"

#include <stdbool.h>

/* Returns whether `host` is "localhost" or a loopback address. */
bool etcd_address_is_loopback(const char *host);

/* Chooses the address. `own_end` is the address of this node's end of its connection to etcd. If
 * that is a loopback address (etcd runs on this host), the address that this host uses towards
 * other networks is taken, or else the first one of its interfaces. If the host has no other
 * address, no other host can be concerned, and the loopback address is taken. */
void etcd_address_to_publish(const char *own_end, char out[RDZV_ADDR_MAX]);

#endif
