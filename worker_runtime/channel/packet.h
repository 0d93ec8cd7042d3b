/* What a worker makes of the packets that its agent sends: pure functions of (state, packet, now).
 *
 * A packet comes from another process, so any byte may hold any value. channel_packet_decode()
 * checks its form; round_state_receive() then changes what the worker knows of its round. Neither
 * reads a clock or a descriptor, so that unit tests and a fuzzer can drive them. */
#ifndef RUNTIME_CHANNEL_PACKET_H
#define RUNTIME_CHANNEL_PACKET_H

#include "contract/packet.h"

#include <stdbool.h>
#include <stdint.h>

/* What the worker knows of its round. All zeros at the beginning of a round. */
struct round_state {
    uint64_t steps;               /* made in this round */
    struct channel_packet change; /* the last CHANGE; type 0: no change is announced */
    uint64_t stop_at;         /* the agreed step, after which the change comes; 0: not known */
    int64_t change_until_ms;  /* monotonic; the agent then ends the round in any case */
    bool is_over;             /* the round has ended without notice */
    bool is_refused;          /* the agent sends no more packets */
    bool has_asked_to_rejoin; /* REJOIN was sent; the agent answers with ROUND */
};

/* Takes over what a decoded packet says. Types that this version does not know are ignored, because
 * a later agent may send them. */
void round_state_receive(struct round_state *s, const struct channel_packet *p, int64_t now_ms);

/* Whether the worker has to wait in its step: a change is announced, and its step is not agreed
 * yet. */
bool round_state_is_frozen(const struct round_state *s);

/* Whether the worker has made the agreed step. */
bool round_state_must_stop(const struct round_state *s);

/* The deadline of a frozen worker's wait. It lies somewhat after the end of the change's own time,
 * because an agent that works keeps that; a worker whose agent hangs must not wait for ever.
 * 0 for a worker that is not frozen: it must not wait. */
int64_t round_state_wait_until_ms(const struct round_state *s);

#endif
