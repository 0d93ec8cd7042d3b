/* Checks the form of a packet that came over the channel between agent and worker. The agent and
 * the worker runtime both use this check. Pure: no I/O. */
#ifndef CONTRACT_PACKET_H
#define CONTRACT_PACKET_H

#include "contract/channel.h"

#include <stddef.h>

/* Copies the `len` received bytes to *out if they have exactly the size of a packet and its
 * reserved field is 0. In *out, the strings `text` and, in HELLO, `token` end with a NUL; any other
 * field may have any value. Returns 0; or -EPROTO without changing *out. */
int channel_packet_decode(const void *bytes, size_t len, struct channel_packet *out);

#endif
