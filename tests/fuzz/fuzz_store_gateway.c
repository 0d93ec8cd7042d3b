/* libFuzzer target: workers of two gateways send any bytes, and connections break anywhere. A third
 * gateway and a second store are hostile: they send any bytes as the other end of a trunk. No code
 * may crash. When a connection of the two honest trunks breaks, no byte of the trunk may be lost or
 * arrive twice. At the end no wait may be left.
 *
 * Input: a sequence of u8 what, u8 length, bytes. The low three bits of `what` select an event. 0
 * to 3: the bytes come from the worker with this number; 4: the bytes come from the hostile
 * gateway; 5: the bytes come from the hostile store; 6: `length` bytes are carried in both
 * directions of the trunk that bit 3 selects, and its connection breaks; 7: the worker that bits 4
 * and 5 select leaves, and a new one comes. If bit 6 is set, all bytes are carried after the event
 * (0 to 5) until none is under way. */
#include "base/assert.h"
#include "tests/lib/store_peer.h"
#include "tests/lib/store_trunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORKERS 4
static const struct store_limits limits = {64, 4096, 64, 16384};

struct scene {
    struct store_keyspace keys;
    struct trunk_ends trunks[2];
    struct store_gateway_worker *workers[WORKERS];
    struct store_gate *stranger;      /* the gate to which the hostile gateway speaks */
    uint64_t operations;
    struct store_gateway *deceived;   /* the gateway to which the hostile store speaks */
    struct store_gateway_worker *victim;
};

static void replace_worker(struct scene *s, int i) {
    if (s->workers[i] != NULL) store_gateway_remove(s->workers[i]);
    s->workers[i] = store_gateway_add(s->trunks[i % 2].gateway, NULL);
}

static void replace_stranger(struct scene *s) {
    store_gate_free(s->stranger);
    s->stranger = store_gate_new(&s->keys, &limits, &s->operations);
}

static void replace_deceived(struct scene *s) {
    static const char wait[] = "\6\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k";
    const char *reason;
    store_gateway_free(s->deceived);
    s->deceived = store_gateway_new(&limits);
    s->victim = store_gateway_add(s->deceived, NULL);
    (void) store_gateway_from_worker(s->victim, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN, &reason);
    (void) store_gateway_from_worker(s->victim, "\7", 1, &reason);
    (void) store_gateway_from_worker(s->victim, wait, sizeof(wait) - 1, &reason);
    (void) store_gateway_ping(s->deceived);
    (void) store_gateway_to_store(s->deceived);
}

/* Takes all output, as the sockets do. */
static void drain(struct scene *s) {
    const char *reason;
    trunks_settle(&s->keys, s->trunks, 2);
    cr_buffer_clear(store_gate_out(s->stranger));
    for (int i = 0; i < WORKERS; i++) {
        cr_buffer_clear(store_gateway_replies(s->workers[i]));
        if (store_gateway_is_over(s->workers[i], &reason)) replace_worker(s, i);
    }
    while (store_gateway_take_ready(s->deceived) != NULL) {
    }
}

static void step(struct scene *s, uint8_t what, const uint8_t *bytes, size_t len) {
    int kind = what & 7, worker = what >> 4 & 3;
    struct trunk_ends *t = &s->trunks[what >> 3 & 1];
    const char *reason;
    if (kind < WORKERS) {
        if (store_gateway_from_worker(s->workers[kind], bytes, len, &reason) < 0) {
            replace_worker(s, kind);
        }
    } else if (kind == 4) {
        if (store_gate_receive(s->stranger, bytes, len, 0) < 0) replace_stranger(s);
    } else if (kind == 5) {
        if (store_gateway_from_store(s->deceived, bytes, len) < 0) replace_deceived(s);
    } else if (kind == 6) {
        (void) trunk_up(t, len);
        trunk_wake(&s->keys);
        (void) trunk_down(t, len);
        trunk_break(t);
        return; /* what is under way stays under way */
    } else {
        replace_worker(s, worker);
        return;
    }
    if ((what & 0x40) != 0) drain(s);
}

static void open_scene(struct scene *s) {
    memset(s, 0, sizeof(*s));
    store_keyspace_init(&s->keys, (const uint64_t[2]){1, 2});
    s->keys.memory_max = (size_t) 64 << 10;
    s->keys.reply_max = 16384;
    for (int i = 0; i < 2; i++) trunk_open(&s->trunks[i], &s->keys, &limits);
    for (int i = 0; i < WORKERS; i++) replace_worker(s, i);
    replace_stranger(s);
    replace_deceived(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct scene s;
    open_scene(&s);
    for (size_t at = 0; at + 2 <= size;) {
        size_t len = data[at + 1];
        if (len > size - at - 2) len = size - at - 2;
        step(&s, data[at], data + at + 2, len);
        at += 2 + len;
    }
    drain(&s);
    for (int i = 0; i < WORKERS; i++) store_gateway_remove(s.workers[i]);
    trunks_settle(&s.keys, s.trunks, 2);
    store_gate_free(s.stranger);
    CR_ASSERT(s.keys.wait_count == 0 && TAILQ_EMPTY(&s.keys.ready));
    for (int i = 0; i < 2; i++) trunk_close(&s.trunks[i]);
    store_gateway_free(s.deceived);
    store_keyspace_done(&s.keys);
    return 0;
}
