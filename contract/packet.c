/* Checks the form of a received packet: see contract/packet.h. */
#include "contract/packet.h"

#include <errno.h>
#include <string.h>

int channel_packet_decode(const void *bytes, size_t len, struct channel_packet *out) {
    struct channel_packet p;
    if (len != sizeof(p)) return -EPROTO;
    memcpy(&p, bytes, sizeof(p));
    if (p.reserved != 0) return -EPROTO;
    p.text[sizeof(p.text) - 1] = '\0';
    if (p.type == CHANNEL_HELLO) p.hello.token[sizeof(p.hello.token) - 1] = '\0';
    *out = p;
    return 0;
}
