/* libFuzzer target: the core of a relay (rendezvous/relay). Members and the host send any bytes and
 * any messages, members come and go, and time passes. After each event the target checks that the
 * core has queued whole frames only and counts the used places right. When the trunk is over, the
 * relay must end all members, and must have a text that says why the trunk is over.
 *
 * Input: a sequence of events: u8 what, u8 n. what % 8 is 0: a member comes; 1: the next n bytes
 * arrive from the member at place n % 4; 2: the next message arrives from that member; 3: the next
 * n bytes arrive on the trunk; 4: the next message arrives on the trunk for the member at place n %
 * 4; 5: the next message arrives on the trunk for the relay itself; 6: n * 50 ms pass; 7: the
 * member at place n % 4 goes. */
#include "base/assert.h"
#include "base/time/clock.h"
#include "rendezvous/relay/core_internal.h"
#include "tests/lib/rdzv_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 2048

static struct relay relay;
static int64_t now_ms;

static void check_frames(struct cr_buffer *out) {
    struct rdzv_message m;
    size_t at = 0, used;
    while (at < out->len) {
        int64_t frame = rdzv_frame_size(out->data + at, out->len - at);
        CR_ASSERT(frame > 0);
        /* the result is ignored: the core passes on frames of members, and a member may send a
         * frame of a type that this build cannot decode */
        (void) rdzv_message_decode(out->data + at, (size_t) frame, &m, &used, NULL);
        at += (size_t) frame;
    }
    cr_buffer_clear(out);
}

/* Does what the shell does after each call of the core, and makes the checks. */
static void settle(void) {
    uint32_t used = 0;
    check_frames(&relay.out);
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) {
        struct relay_place *p = &relay.places[i];
        check_frames(&p->out);
        CR_ASSERT(!relay.is_over || p->state != RELAY_ATTACHED || p->ends);
        if (p->state == RELAY_ATTACHED && p->ends) relay_lost(&relay, i, RENDEZVOUS_CLOSED);
        if (p->state != RELAY_FREE) used++;
        CR_ASSERT(p->state == RELAY_ATTACHED || (!p->is_kept && !p->is_asked));
    }
    check_frames(&relay.out);
    CR_ASSERT(used == relay.used);
    CR_ASSERT(!relay.is_over || relay.why[0] != '\0');
}

static void message_of(struct input *in, struct cr_buffer *out) {
    struct rdzv_message m;
    input_message(in, &m);
    if (rdzv_message_encode(&m, RDZV_VERSION_MAX, out) < 0) abort();
}

static void step(struct input *in) {
    struct cr_buffer b = {0};
    uint8_t what = input_byte(in) % 8, n = input_byte(in);
    uint32_t place = n % 4;
    size_t len = n < in->left ? n : in->left;
    struct rdzv_message via = {.type = RDZV_VIA, .via = {.place = place}};
    if (what == 0) (void) relay_attach(&relay, "10.0.0.1");
    if (what == 1) relay_receive(&relay, now_ms, place, (const char *) in->data, len);
    if (what == 3) relay_trunk_receive(&relay, (const char *) in->data, len);
    if (what == 1 || what == 3) {
        in->data += len;
        in->left -= len;
    }
    if (what == 4 && rdzv_message_encode(&via, RDZV_VERSION_MAX, &b) < 0) abort();
    if (what == 2 || what == 4 || what == 5) message_of(in, &b);
    if (what == 2) relay_receive(&relay, now_ms, place, b.data, b.len);
    else if (b.len > 0) relay_trunk_receive(&relay, b.data, b.len);
    if (what == 6) now_ms += n * 50;
    if (what == 7) relay_lost(&relay, place, n % 2 == 0 ? RENDEZVOUS_CLOSED : RENDEZVOUS_BROKEN);
    relay_tick(&relay, now_ms);
    cr_buffer_done(&b);
    settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {.data = data, .left = size};
    now_ms = 1000;
    if (relay_open(&relay, now_ms, "job") < 0) abort();
    cr_buffer_consume(&relay.out, RDZV_MAGIC_LEN);
    for (int i = 0; i < STEPS_MAX && in.left > 0; i++) step(&in);
    relay_trunk_lost(&relay, "the end");
    settle();
    relay_done(&relay);
    return 0;
}
