/* libFuzzer target: parses any bytes as lines of the timer pipe (torch's timer file), and applies
 * the requests to the set of timers while time passes. A timer must expire only when it is due, and
 * no timer may be lost or freed twice. */
#include "agent/watchdog/timers.h"
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t count_of(const struct timers *t) {
    size_t count = 0;
    const struct timer *timer;
    LIST_FOREACH(timer, &t->list, entry) { count++; }
    return count;
}

static void take_line(struct timers *t, const char *line, size_t len) {
    struct timer_request r = {0};
    size_t before = t->count;
    if (timer_request_parse(&r, line, len) < 0) return;
    CR_ASSERT(r.pid > 1 && r.scope != NULL && r.signum >= 0 && r.signum < 65);
    bool cancels = r.cancels;
    CR_ASSERT(timers_apply(t, &r) == 0);
    CR_ASSERT(cancels ? t->count <= before : t->count <= before + 1);
    timer_request_done(&r);
}

static void expire(struct timers *t, int64_t now_ms) {
    struct timer *timer;
    while ((timer = timers_take_expired(t, now_ms)) != NULL) {
        CR_ASSERT(timer->expires_ms <= now_ms);
        if (timer->signum > 0) (void) timers_forget(t, timer->pid);
        timer_free(timer);
    }
    CR_ASSERT(timers_next_ms(t) > now_ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct timers t = {0};
    const char *at = (const char *) data, *end = at + size;
    int64_t now_ms = 0;
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t) (end - at));
        if (lf == NULL) lf = end;
        take_line(&t, at, (size_t) (lf - at));
        CR_ASSERT(count_of(&t) == t.count);
        now_ms += 1000 * (lf - at); /* the time advances by 1 s for each byte of the line */
        expire(&t, now_ms);
        at = lf + 1;
    }
    timers_done(&t);
    return 0;
}
