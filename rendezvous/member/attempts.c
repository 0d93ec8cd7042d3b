/* When a member tries to connect: see attempts_internal.h. */
#include "rendezvous/member/attempts_internal.h"

#include "base/clock.h"

#define RETRY_MIN_MS INT64_C(20)
#define RETRY_MAX_MS INT64_C(1000)

void attempts_stop(struct attempts *a) {
    a->give_up_ms = a->until_ms = a->retry_ms = CR_FOREVER;
}

void attempts_begin(struct attempts *a, int64_t now_ms, int64_t patience_ms) {
    a->give_up_ms = now_ms + patience_ms;
    a->backoff_ms = RETRY_MIN_MS;
}

void attempts_start(struct attempts *a, int64_t now_ms, int64_t limit_ms) {
    a->retry_ms = CR_FOREVER;
    a->until_ms = now_ms + limit_ms;
    if (a->give_up_ms > now_ms && a->give_up_ms < a->until_ms) a->until_ms = a->give_up_ms;
}

void attempts_connected(struct attempts *a) { a->until_ms = CR_FOREVER; }

/* Returns 50 % to 100 % of `ms`, so that many nodes do not come back at the same moment. The
 * generator is splitmix64. */
static int64_t jittered(struct attempts *a, int64_t ms) {
    uint64_t z = (a->jitter += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ms / 2 + (int64_t) ((z ^ z >> 31) % (uint64_t) (ms / 2 + 1));
}

bool attempts_failed(struct attempts *a, int64_t now_ms) {
    int64_t wait_ms = jittered(a, a->backoff_ms);
    a->until_ms = CR_FOREVER;
    if (now_ms + wait_ms > a->give_up_ms) return false;
    a->retry_ms = now_ms + wait_ms;
    a->backoff_ms = 2 * a->backoff_ms < RETRY_MAX_MS ? 2 * a->backoff_ms : RETRY_MAX_MS;
    return true;
}

bool attempts_is_trying(const struct attempts *a) { return a->until_ms != CR_FOREVER; }
