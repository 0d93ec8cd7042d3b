/* HELLO, the first bytes of a gateway's connection, as bytes and back. */
#include "store/gateway/gateway.h"

#include <errno.h>
#include <string.h>

void store_gateway_write_hello(const struct store_gateway_hello *h,
                               uint8_t out[STORE_GATEWAY_HELLO]) {
    memcpy(out, STORE_GATEWAY_MAGIC, 4);
    memcpy(out + 4, h->id, STORE_GATEWAY_ID);
    store_put_u64(out + 4 + STORE_GATEWAY_ID, h->incarnation);
    store_put_u64(out + 12 + STORE_GATEWAY_ID, h->round);
    store_put_u64(out + 20 + STORE_GATEWAY_ID, h->received);
}

int store_gateway_read_hello(const uint8_t in[STORE_GATEWAY_HELLO], struct store_gateway_hello *h) {
    if (memcmp(in, STORE_GATEWAY_MAGIC, 4) != 0) return -EPROTO;
    memcpy(h->id, in + 4, STORE_GATEWAY_ID);
    h->incarnation = store_load_u64(in + 4 + STORE_GATEWAY_ID);
    h->round = store_load_u64(in + 12 + STORE_GATEWAY_ID);
    h->received = store_load_u64(in + 20 + STORE_GATEWAY_ID);
    return 0;
}
