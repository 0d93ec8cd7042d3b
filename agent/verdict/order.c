/* Finds the worker that failed first. */
#include "agent/verdict/decision.h"

#include "base/assert.h"
#include "base/time/clock.h"

#include <signal.h>

/* Largest error of a file's time stamp: the kernel uses the time of the last timer tick, which is
 * up to 10 ms old. So an error record counts as older than a death only if its time stamp is more
 * than 10 ms older. */
#define FILE_CLOCK_LAG_NS (10 * CR_NS_PER_MS)

/* A crash counts as this much earlier than it was seen. So if a worker exits and another worker
 * crashes up to 20 ms later, the crash counts as the first failure. Reason: a dying process closes
 * its sockets some time before its death can be seen. On a busy machine, another worker may notice
 * the closed socket and exit before that death is seen. In contrast, a closed socket never makes a
 * worker crash. */
#define CRASH_LEAD_NS (20 * CR_NS_PER_MS)

/* Returns the time at which the worker wrote its error record. The record states whole seconds. If
 * the modification time of its file is in the stated second, that time is returned, because it is
 * more precise. Otherwise the end of the stated second is returned: its beginning could wrongly put
 * the record before an earlier death. */
static int64_t written_ns(const struct verdict_worker *w) {
    const struct error_record *e = &w->error;
    if (e->timestamp_s < 0 || e->mtime_ns / CR_NS_PER_S == e->timestamp_s) return e->mtime_ns;
    return (e->timestamp_s + 1) * CR_NS_PER_S - 1;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    if (value > high) return high;
    return value < low ? low : value;
}

/* Returns the worker's time of death. The kernel's order of deaths is certain, but the times are
 * not: the wall clock may have been set back between two deaths. So if a worker that died before
 * this one has a later time of death, this function returns that later time. */
static int64_t death_ns(const struct verdict_worker *workers, size_t count,
                        const struct verdict_worker *w) {
    int64_t latest = w->died_ns;
    for (size_t i = 0; i < count; i++) {
        if (workers[i].order < w->order && workers[i].died_ns > latest) latest = workers[i].died_ns;
    }
    return latest;
}

/* Returns whether the worker died of a fault in its own code (SIGSEGV and similar signals), or of a
 * SIGKILL that crun did not send, for example from the kernel's out-of-memory killer. SIGABRT does
 * not count, because libraries abort when the workers with which they communicate are gone. */
static bool has_crashed(const struct verdict_worker *w) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGKILL};
    if (w->signal_sent != 0) return false;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (w->exit_code == -signals[i]) return true;
    }
    return false;
}

/* The moment at which a worker failed. Two moments are compared by `ns`; if these are equal, by
 * `stated_s`; if these are equal, by `order`. */
struct moment {
    int64_t ns;       /* wall clock in ns since 1970; never before the attempt's first worker was
                       * started, and never after this worker's death */
    int64_t stated_s; /* time that the error record states, in s since 1970; it may be outside of
                       * the attempt */
    uint64_t order;   /* number of the worker's death in the kernel's order of deaths */
};

static struct moment moment_of(const struct verdict *all, const struct verdict_worker *w) {
    int64_t started = w->started_ns;
    for (size_t i = 0; i < all->count; i++) {
        if (all->workers[i].started_ns < started) started = all->workers[i].started_ns;
    }
    int64_t died = death_ns(all->workers, all->count, w);
    struct moment m = {.ns = died, .stated_s = INT64_MAX, .order = w->order};
    if (has_crashed(w)) m.ns = clamp(died - CRASH_LEAD_NS, started, died);
    if (!w->error.present) return m;
    m.ns = clamp(written_ns(w) + FILE_CLOCK_LAG_NS, started, m.ns);
    if (w->error.timestamp_s >= 0) m.stated_s = w->error.timestamp_s;
    return m;
}

static bool is_before(const struct moment *a, const struct moment *b) {
    if (a->ns != b->ns) return a->ns < b->ns;
    if (a->stated_s != b->stated_s) return a->stated_s < b->stated_s;
    return a->order < b->order;
}

/* Returns the time of the first death of a worker to which crun had sent no signal; INT64_MAX if
 * there is no such worker. */
static int64_t first_death_ns(const struct verdict_worker *workers, size_t count) {
    int64_t first = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        int64_t died = death_ns(workers, count, &workers[i]);
        if (workers[i].signal_sent == 0 && died < first) first = died;
    }
    return first;
}

/* Returns whether the worker can have failed first. If crun stopped the worker, it can have failed
 * first only if it wrote its error record before any other worker died. In that case the worker
 * failed, wrote the record and hung, and the others may have failed because of it. */
static bool is_candidate(const struct verdict_worker *w, int64_t first_death) {
    if (w->signal_sent == 0 || first_death == INT64_MAX) return true;
    return w->error.present && w->error.mtime_ns + FILE_CLOCK_LAG_NS < first_death;
}

size_t verdict_first(const struct verdict_worker *workers, size_t count) {
    const struct verdict all = {.workers = workers, .count = count};
    int64_t first_death = first_death_ns(workers, count);
    size_t best = count;
    struct moment best_moment = {0};
    CR_ASSERT(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (!is_candidate(&workers[i], first_death)) continue;
        struct moment m = moment_of(&all, &workers[i]);
        if (best < count && !is_before(&m, &best_moment)) continue;
        best = i;
        best_moment = m;
    }
    CR_ASSERT(best < count);
    return best;
}

bool verdict_is_victim(const struct verdict_worker *w) { return w->signal_sent != 0; }
