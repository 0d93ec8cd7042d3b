/* Limits the rate of log lines; see base/log/log_limit.h. */
#include "base/log/log_limit.h"

#include "base/time/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_MAX_BYTES 4096 /* longest text of a line; the rest is cut off */

struct cr_log_limit_decision cr_log_limit_decide(struct cr_log_limit *l, int64_t now_ms) {
    unsigned max = l->max > 0 ? l->max : CR_LOG_LIMIT_LINES;
    struct cr_log_limit_decision d = {.is_admitted = true};
    if (l->count == 0 || now_ms - l->since_ms >= CR_LOG_LIMIT_WINDOW_MS) {
        d.reported = l->suppressed;
        l->suppressed = 0;
        l->since_ms = now_ms;
        l->count = 0;
    }
    if (l->count < max) {
        l->count++;
        return d;
    }
    d.is_admitted = false;
    d.begins = l->suppressed++ == 0;
    return d;
}

static void report(const struct cr_log_limit *l, uint64_t number) {
    if (number > 0) cr_warn("%" PRIu64 " more lines about %s were not logged", number, l->about);
}

void cr_log_limited(struct cr_log_limit *l, enum cr_log_level level, const char *fmt, ...) {
    if (!cr_log_enabled(level)) return;
    struct cr_log_limit_decision d = cr_log_limit_decide(l, cr_monotonic_ms());
    report(l, d.reported);
    if (d.begins) {
        cr_warn("too many lines about %s: more of them are only counted, for %g s at most",
                l->about, (double) CR_LOG_LIMIT_WINDOW_MS / 1000);
    }
    if (!d.is_admitted) return;
    char text[TEXT_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    cr_log(level, "%s", text);
}

void cr_log_limit_end(struct cr_log_limit *l) {
    report(l, l->suppressed);
    l->suppressed = 0;
}
