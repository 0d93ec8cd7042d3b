/* Implements connecting_internal.h: decides when a member tries to connect. */
#include "rendezvous/member/connecting_internal.h"

#include "base/time/clock.h"

#define RETRY_MIN_MS INT64_C(20)
#define RETRY_MAX_MS INT64_C(1000)

void connecting_stop(struct connecting *c) {
    c->give_up_ms = c->until_ms = c->retry_ms = CR_FOREVER;
}

void connecting_begin(struct connecting *c, int64_t now_ms, int64_t patience_ms) {
    c->give_up_ms = now_ms + patience_ms;
    c->backoff_ms = RETRY_MIN_MS;
}

void connecting_try(struct connecting *c, int64_t now_ms, int64_t limit_ms) {
    c->retry_ms = CR_FOREVER;
    c->until_ms = now_ms + limit_ms;
    if (c->give_up_ms > now_ms && c->give_up_ms < c->until_ms) c->until_ms = c->give_up_ms;
}

/* Returns a random time from 50 % to 100 % of `ms`, so that many nodes do not all try to connect at
 * the same moment. The random numbers come from splitmix64. */
static int64_t jittered(struct connecting *c, int64_t ms) {
    uint64_t z = (c->jitter += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ms / 2 + (int64_t) ((z ^ z >> 31) % (uint64_t) (ms / 2 + 1));
}

bool connecting_failed(struct connecting *c, int64_t now_ms) {
    int64_t wait_ms = jittered(c, c->backoff_ms);
    c->until_ms = CR_FOREVER;
    if (now_ms + wait_ms > c->give_up_ms) return false;
    c->retry_ms = now_ms + wait_ms;
    c->backoff_ms = 2 * c->backoff_ms < RETRY_MAX_MS ? 2 * c->backoff_ms : RETRY_MAX_MS;
    return true;
}

bool connecting_extend(struct connecting *c, int64_t until_ms) {
    if (c->until_ms == CR_FOREVER && c->retry_ms == CR_FOREVER) return false;
    if (c->give_up_ms < until_ms) c->give_up_ms = until_ms;
    return true;
}

bool connecting_is_trying(const struct connecting *c) { return c->until_ms != CR_FOREVER; }
