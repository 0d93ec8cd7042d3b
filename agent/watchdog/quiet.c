/* Decides when a node hangs: implements quiet.h. */
#include "agent/watchdog/quiet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_PER_LIMIT 10    /* number of samples in the time limit_ms */
#define INTERVAL_MIN_MS   200
#define INTERVAL_MAX_MS   10000

int quiet_init(struct quiet *q, int64_t limit_ms, bool only_output, size_t workers) {
    *q = (struct quiet){.limit_ms = limit_ms, .only_output = only_output, .workers = workers,
                        .sampled_ms = -1};
    q->cpu_ms = calloc(workers, sizeof(*q->cpu_ms));
    return q->cpu_ms != NULL ? 0 : -ENOMEM;
}

void quiet_done(struct quiet *q) {
    free(q->cpu_ms);
    *q = (struct quiet){0};
}

void quiet_begin(struct quiet *q, int64_t now_ms) {
    q->sampled_ms = -1;
    q->since_ms = now_ms;
}

/* Returns whether the worker has used more than 1/QUIET_SHARE of a processor since the last sample.
 * A smaller processor time than before counts as use: the time includes living descendants only, so
 * a descendant has ended. */
static bool has_worked(int64_t before_ms, int64_t now_ms, int64_t interval_ms) {
    return now_ms < before_ms || (now_ms - before_ms) * QUIET_SHARE > interval_ms;
}

bool quiet_sample(struct quiet *q, int64_t now_ms, const int64_t *cpu_ms, uint64_t output) {
    bool is_active = q->sampled_ms < 0 || output != q->output;
    for (size_t i = 0; !is_active && !q->only_output && i < q->workers; i++) {
        is_active = has_worked(q->cpu_ms[i], cpu_ms[i], now_ms - q->sampled_ms);
    }
    memcpy(q->cpu_ms, cpu_ms, q->workers * sizeof(*cpu_ms));
    q->output = output;
    q->sampled_ms = now_ms;
    if (is_active) q->since_ms = now_ms;
    return now_ms - q->since_ms >= q->limit_ms;
}

void quiet_leave_out(struct quiet *q, int64_t ms) {
    q->since_ms += ms;
    if (q->sampled_ms >= 0) q->sampled_ms += ms;
}

int64_t quiet_next_ms(const struct quiet *q) {
    int64_t last = q->sampled_ms < 0 ? q->since_ms : q->sampled_ms;
    if (q->interval_ms > 0) return last + q->interval_ms;
    int64_t interval = q->limit_ms / SAMPLES_PER_LIMIT;
    if (interval < INTERVAL_MIN_MS) interval = INTERVAL_MIN_MS;
    if (interval > INTERVAL_MAX_MS) interval = INTERVAL_MAX_MS;
    int64_t end = q->since_ms + q->limit_ms;
    return end > last && end < last + interval ? end : last + interval;
}
