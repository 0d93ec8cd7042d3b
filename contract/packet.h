/* Checks the form of a packet that came over the channel between agent and worker. Both sides use
 * it. Pure: no I/O. */
#ifndef CONTRACT_PACKET_H
#define CONTRACT_PACKET_H

#include "contract/channel.h"

#include <stddef.h>

/* Copies the `len` received bytes to *out if they are one packet, that is, if they have exactly its
 * size and the reserved field is 0. It ends the strings `text` and, in HELLO, `token` with a NUL;
 * any other field may have any value. Returns 0; or -EPROTO without changing *out. */
int channel_packet_decode(const void *bytes, size_t len, struct channel_packet *out);

#endif
