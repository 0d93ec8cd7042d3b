/* The lease of a member. */
#include "rendezvous/member/keep_alive_internal.h"

#include "base/time/clock.h"

void keep_alive_set(struct keep_alive *k, int64_t interval_ms, uint32_t intervals) {
    k->interval_ms = interval_ms;
    k->lease_ms = interval_ms * intervals;
}

void keep_alive_start(struct keep_alive *k, int64_t now_ms) {
    k->acked_ms = now_ms;
    k->has_lease = true;
    keep_alive_plan(k, now_ms);
}

void keep_alive_stop(struct keep_alive *k) {
    k->beat_ms = CR_FOREVER;
    k->has_lease = false;
}

void keep_alive_suspend(struct keep_alive *k) { k->beat_ms = CR_FOREVER; }

/* The next beat is due after one keep-alive interval, or after a third of the lease if that is
 * sooner, so that the lease survives one lost beat. */
void keep_alive_plan(struct keep_alive *k, int64_t now_ms) {
    int64_t third = k->lease_ms / 3 > 0 ? k->lease_ms / 3 : 1;
    k->beat_ms = now_ms + (k->interval_ms < third ? k->interval_ms : third);
}

void keep_alive_hasten(struct keep_alive *k, int64_t now_ms) {
    if (k->beat_ms > now_ms && k->beat_ms != CR_FOREVER) k->beat_ms = now_ms;
}

void keep_alive_answered(struct keep_alive *k, int64_t sent_ms, int64_t now_ms) {
    if (sent_ms > k->acked_ms && sent_ms <= now_ms) k->acked_ms = sent_ms;
}

int64_t keep_alive_fence(const struct keep_alive *k) {
    if (!k->has_lease) return CR_FOREVER;
    return k->acked_ms + k->lease_ms - k->lease_ms / 6;
}

void keep_alive_slept(struct keep_alive *k, int64_t slept_ms) { k->acked_ms -= slept_ms; }

int64_t keep_alive_end(const struct keep_alive *k) {
    return k->has_lease ? k->acked_ms + k->lease_ms + k->lease_ms / 16 : CR_FOREVER;
}

int64_t keep_alive_left(const struct keep_alive *k, int64_t now_ms) {
    int64_t left = k->acked_ms + k->lease_ms - now_ms;
    return left > 0 ? left : 0;
}
