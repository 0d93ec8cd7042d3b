/* The store: a server that speaks the protocol of torch's TCPStore, and clients of it.
 *
 *   store/bytes/bytes.h           byte strings, lists, limits
 *   store/server/server.h   the server: key spaces on a thread of their own
 *   store/client/client.h   `struct store` and its calls; the TCP client; the file store
 *
 * This is the header that other rooms include. Keys are the keys that users name: the TCP
 * client puts torch's leading '/' in front of them. Keys and values may hold any bytes, NUL
 * included. The protocol is described in docs/protocols/store.md. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "store/client/client.h"
#include "store/server/server.h"
#include "store/bytes/bytes.h"

#endif
