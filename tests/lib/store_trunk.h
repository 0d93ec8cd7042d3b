/* A gateway and its gate without sockets, for tests and fuzz targets: what one end sends is given
 * to the other end, and connections break where the test says. */
#ifndef TESTS_STORE_TRUNK_H
#define TESTS_STORE_TRUNK_H

#include "base/assert.h"
#include "store/gateway/gateway.h"

#include <stdlib.h>

struct trunk_ends {
    struct store_gateway *gateway;
    struct store_gate *gate;
    uint64_t operations;
};

static inline void trunk_open(struct trunk_ends *t, struct store_keyspace *keys,
                              const struct store_limits *limits) {
    t->operations = 0;
    t->gateway = store_gateway_new(limits);
    t->gate = store_gate_new(keys, limits, &t->operations);
    if (t->gateway == NULL || t->gate == NULL) abort();
}

static inline void trunk_close(struct trunk_ends *t) {
    store_gateway_free(t->gateway);
    store_gate_free(t->gate);
}

/* Passes at most `max` bytes of the gateway's output to the gate. Returns their number. */
static inline size_t trunk_up(struct trunk_ends *t, size_t max) {
    struct cr_buffer *out = store_gateway_to_store(t->gateway);
    size_t n = out->len < max ? out->len : max;
    CR_ASSERT(store_gate_receive(t->gate, out->data, n, 0) == 0);
    cr_buffer_consume(out, n);
    return n;
}

/* Passes at most `max` bytes of the gate's output to the gateway. Returns their number. */
static inline size_t trunk_down(struct trunk_ends *t, size_t max) {
    struct cr_buffer *out = store_gate_out(t->gate);
    size_t n = out->len < max ? out->len : max;
    CR_ASSERT(store_gateway_from_store(t->gateway, out->data, n) == 0);
    cr_buffer_consume(out, n);
    return n;
}

/* Breaks the connection and makes a new one. Bytes that were not yet passed to the other end are
 * lost on the connection; the two ends send them again. */
static inline void trunk_break(struct trunk_ends *t) {
    CR_ASSERT(store_gateway_connected(t->gateway, store_gate_received(t->gate)) == 0);
    CR_ASSERT(store_gate_connected(t->gate, store_gateway_received(t->gateway)) == 0);
}

/* Does what the server does for sessions on the ready list: passes to the gate of each such
 * session the output that requests of other sessions have added. */
static inline void trunk_wake(struct store_keyspace *keys) {
    struct store_session *s;
    while ((s = store_keyspace_take_ready(keys)) != NULL) {
        if (s->gate != NULL) CR_ASSERT(store_gate_wake(s) == 0);
    }
}

/* Passes bytes between all gateways and their gates, in both directions, until none is left. */
static inline void trunks_settle(struct store_keyspace *keys, struct trunk_ends *trunks, int n) {
    size_t moved = 1;
    while (moved > 0) {
        moved = 0;
        trunk_wake(keys);
        for (int i = 0; i < n; i++) {
            moved += trunk_up(&trunks[i], SIZE_MAX);
            trunk_wake(keys);
            moved += trunk_down(&trunks[i], SIZE_MAX);
        }
    }
}

#endif
