/* libFuzzer target: gives any bytes, as a sequence of packets, to the decoder that worker and agent
 * use for their channel, and gives each decoded packet to the worker's state. Whatever the packets
 * contain, the following must hold:
 *
 *   - a text that is read as a string ends with a NUL within its packet;
 *   - a worker is frozen only by an announced change, and a frozen worker's wait has a deadline;
 *   - a place (rank, world size, …) that the worker accepts is one that a launcher could give. */
#include "base/assert.h"
#include "base/time/clock.h"
#include "worker_runtime/channel/packet.h"
#include "worker_runtime/runtime/worker_place.h"

#include <errno.h>
#include <string.h>

#define NOW_MS INT64_C(1000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_state(const struct round_state *s) {
    int64_t until = round_state_wait_until_ms(s);
    if (round_state_is_frozen(s)) {
        CR_ASSERT(s->change.type == CHANNEL_CHANGE && !s->is_over);
        CR_ASSERT(until > s->change_until_ms || until == CR_FOREVER);
    } else {
        CR_ASSERT(until == 0);
    }
    if (round_state_must_stop(s)) CR_ASSERT(s->stop_at > 0 && s->steps >= s->stop_at);
    CR_ASSERT(s->change_until_ms == 0 || s->change_until_ms >= NOW_MS);
}

static void check_texts(const struct channel_packet *p) {
    CR_ASSERT(strnlen(p->text, sizeof(p->text)) < sizeof(p->text));
    if (p->type != CHANNEL_HELLO) return;
    CR_ASSERT(strnlen(p->hello.token, sizeof(p->hello.token)) < sizeof(p->hello.token));
}

static void check_place(const struct channel_packet *p) {
    struct worker_place place = {.rank = -7};
    struct cr_error err;
    int rc = worker_place_from_packet(p, &place, &err);
    CR_ASSERT(rc == 0 || (rc == -EPROTO && place.rank == -7));
    if (rc < 0) return;
    CR_ASSERT(place.rank >= 0 && place.rank < place.world_size);
    CR_ASSERT(place.local_rank >= 0 && place.local_rank < place.local_world_size);
    CR_ASSERT(place.restart_count >= 0);
    CR_ASSERT(strnlen(place.master_addr, sizeof(place.master_addr)) < sizeof(place.master_addr));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct round_state s = {0};
    struct channel_packet p;
    while (size > 0) {
        size_t len = size < sizeof(p) ? size : sizeof(p);
        if (channel_packet_decode(data, len, &p) == 0) {
            check_texts(&p);
            round_state_receive(&s, &p, NOW_MS);
            check_place(&p);
            check_state(&s);
        }
        s.steps++;
        data += len;
        size -= len;
    }
    return 0;
}
