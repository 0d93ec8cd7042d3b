/* The state of a worker's round, and how packets from the agent change it: pure functions of
 * (state, packet, now).
 *
 * A packet comes from another process, so any byte may hold any value. channel_packet_decode()
 * checks a packet's form; round_state_receive() applies it to the state. Neither function reads a
 * clock or a descriptor, so unit tests and a fuzzer can call them. */
#ifndef RUNTIME_CHANNEL_PACKET_H
#define RUNTIME_CHANNEL_PACKET_H

#include "contract/packet.h"

#include <stdbool.h>
#include <stdint.h>

/* What the worker knows about its round. At the beginning of a round every field is zero. */
struct round_state {
    uint64_t steps;               /* number of steps that this worker has made in this round */
    /* the last packet CHANGE; its type is 0 if no change is announced */
    struct channel_packet change;
    uint64_t stop_at;         /* agreed step, after which this worker stops; 0 if it is not known
                               * yet */
    int64_t change_until_ms;  /* time in ms (monotonic clock) at which the agent ends the round,
                               * even if this worker is not ready */
    /* true if the agent has ended the round without an agreed step, for example after a failure */
    bool is_over;
    bool is_refused;          /* true if the agent has sent REFUSED, its last packet */
    bool has_asked_to_rejoin; /* true if this worker has sent REJOIN; the agent answers it with
                               * ROUND */
};

/* Changes the state as the packet requires. `p` must come from channel_packet_decode(). If this
 * version does not know the packet's type, the packet is ignored, because a newer agent may send
 * such packets. */
void round_state_receive(struct round_state *s, const struct channel_packet *p, int64_t now_ms);

/* Returns true if the worker must wait in its step, because a change is announced and its agreed
 * step is not known yet. */
bool round_state_is_frozen(const struct round_state *s);

/* Returns true if the worker has made the agreed step, so that it must stop. */
bool round_state_must_stop(const struct round_state *s);

/* Returns the time in ms (monotonic clock) until which a frozen worker waits for the agreed step; 0
 * if the worker is not frozen. It is 5 s after change_until_ms. An agent that works sends a packet
 * before change_until_ms, so only a worker whose agent hangs waits until that time. */
int64_t round_state_wait_until_ms(const struct round_state *s);

#endif
