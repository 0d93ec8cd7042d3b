/* The public header of the store: a server that speaks the protocol of torch's TCPStore, and
 * clients of such servers. Other rooms include this header; or store/wire/wire.h, if they only
 * write or read the bytes of the protocol.
 *
 *   store/bytes/bytes.h     byte strings, lists of them, limits
 *   store/server/server.h   the server: any number of key spaces on one thread
 *   store/gateway/gateway.h the gateway of a node's workers to a store on another node
 *   store/client/client.h   `struct store` and its calls; the TCP client; the file store
 *
 * Callers give keys as users write them; the TCP client adds the leading '/' that torch's clients
 * put in front of each key on the wire. Keys and values may hold any bytes, also NUL.
 * docs/protocols/store.md describes the protocol. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "store/client/client.h"
#include "store/gateway/gateway.h"
#include "store/server/server.h"
#include "store/bytes/bytes.h"

#endif
