/* Checking the form of a received packet, for both sides of the channel. Pure. */
#ifndef CONTRACT_PACKET_H
#define CONTRACT_PACKET_H

#include "contract/channel.h"

#include <stddef.h>

/* Copies the `len` received bytes to *out if they are one packet: exactly its size, and the
 * reserved field 0. Texts that a side reads as strings (`text`, and the token of HELLO) then end
 * with a NUL; any other field may hold any value. Returns 0 or -EPROTO, then without changing
 * *out. */
int channel_packet_decode(const void *bytes, size_t len, struct channel_packet *out);

#endif
