/* Reads what a worker has written into its page: implements worker_page.h. */
#include "agent/node/worker_page.h"

#define NEEDS_MAX_MS (INT64_C(1000) * 3600 * 24 * 365)

void worker_page_read(struct channel_page *page, struct worker_progress *out) {
    uint32_t answer = atomic_load(&page->answer);
    int64_t needs_ms = atomic_load(&page->needs_ms);
    *out = (struct worker_progress){.connected = true};
    out->counts_from_start = atomic_load(&page->counts_from_start) != 0;
    out->can_rejoin = atomic_load(&page->can_rejoin) != 0;
    out->step = atomic_load(&page->step);
    if (out->step > INT64_MAX - 1) out->step = 0; /* step + 1 must fit into an int64_t */
    out->stopped_for = atomic_load(&page->stopped_for);
    out->answer =
        answer <= CHANNEL_NEEDS ? (enum channel_answer) answer : CHANNEL_AFTER_STEP;
    if (out->answer == CHANNEL_NEEDS && needs_ms > 0) {
        out->needs_ms = needs_ms < NEEDS_MAX_MS ? needs_ms : NEEDS_MAX_MS;
    }
}

void worker_page_read_steps(struct channel_page *page, struct worker_steps *out) {
    out->connected = true;
    out->count = atomic_load(&page->step);
    if (out->count > INT64_MAX - 1) out->count = 0;
    out->first_ns = atomic_load(&page->first_step_ns);
    out->last_ns = atomic_load(&page->stepped_ns);
    if (out->count == 0 || out->first_ns < 0) out->first_ns = 0;
    if (out->count == 0) out->last_ns = 0;
    if (out->last_ns < out->first_ns) out->last_ns = out->first_ns;
}

void worker_page_begin_round(struct channel_page *page) {
    atomic_store(&page->step, 0);
    atomic_store(&page->first_step_ns, 0);
    atomic_store(&page->stopped_for, 0);
    atomic_store(&page->over, 0);
    for (size_t i = 0; i < CHANNEL_GROUPS_MAX; i++) atomic_store(&page->groups[i].number, 0);
}
