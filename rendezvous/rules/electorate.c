/* Counts the ballots of the nodes of one round: see electorate_internal.h. */
#include "rendezvous/rules/electorate_internal.h"

#include "base/time/clock.h"

#include <errno.h>
#include <stdlib.h>

int electorate_begin(struct electorate *e, uint64_t rounds_seen, uint64_t formed_by, uint32_t size,
                     bool is_won) {
    struct ballot *ballots = calloc(size, sizeof(*ballots));
    if (ballots == NULL) return -ENOMEM;
    free(e->ballots);
    *e = (struct electorate){
        .rounds_seen = rounds_seen, .formed_by = formed_by, .size = size, .is_won = is_won,
        .ballots = ballots};
    return 0;
}

void electorate_end(struct electorate *e) {
    free(e->ballots);
    *e = (struct electorate){.rounds_seen = 0};
}

bool electorate_is_of(const struct electorate *e, uint64_t rounds_seen, uint64_t formed_by) {
    return e->rounds_seen != 0 && e->rounds_seen == rounds_seen && e->formed_by == formed_by;
}

static struct ballot *find(const struct electorate *e, int64_t rank) {
    return rank >= 0 && rank < (int64_t) e->size ? &e->ballots[rank] : NULL;
}

int64_t electorate_claim(struct electorate *e, int64_t rank, uint64_t instance) {
    struct ballot *b = find(e, rank);
    if (b == NULL || (b->instance != 0 && b->instance != instance)) return -1;
    b->instance = instance;
    return rank;
}

void electorate_hold(struct electorate *e, int64_t rank, int64_t until_ms) {
    struct ballot *b = find(e, rank);
    if (b != NULL && until_ms > b->held_until_ms) b->held_until_ms = until_ms;
}

void electorate_release(struct electorate *e, int64_t rank) {
    struct ballot *b = find(e, rank);
    if (b != NULL && b->held_until_ms != CR_FOREVER) b->held_until_ms = 0;
}

void electorate_void(struct electorate *e, int64_t rank) {
    struct ballot *b = find(e, rank);
    if (b != NULL && b->held_until_ms != CR_FOREVER) b->is_void = true;
}

/* Returns how many ballots a coordinator needs to win: more than half. */
static uint32_t quorum(const struct electorate *e) { return e->size / 2 + 1; }

static uint32_t count_free(const struct electorate *e, int64_t now_ms) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->size; i++) {
        const struct ballot *b = &e->ballots[i];
        if (!b->is_void && b->held_until_ms <= now_ms) n++;
    }
    return n;
}

static uint32_t count_void(const struct electorate *e) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->size; i++) n += e->ballots[i].is_void ? 1 : 0;
    return n;
}

bool electorate_may_decide(struct electorate *e, int64_t now_ms) {
    if (e->rounds_seen == 0) return true;
    uint32_t gone = count_free(e, now_ms), held = e->size - count_void(e) - gone;
    if (held >= quorum(e)) e->is_won = true;
    else if (gone >= quorum(e)) e->is_won = false;
    return e->is_won && gone < quorum(e);
}

static int compare_times(const void *pa, const void *pb) {
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

/* Another coordinator wins when quorum() ballots are free; `lacking` is how many ballots must
 * become free until then. So this coordinator may decide until `lacking` of the held ballots have
 * become free. If there is no memory to sort the times, returns the time at which the first held
 * ballot becomes free, which is not later. */
int64_t electorate_until(const struct electorate *e, int64_t now_ms) {
    int64_t first = CR_FOREVER, *times = malloc((e->size + 1) * sizeof(*times));
    uint32_t n = 0, lacking = quorum(e) - count_free(e, now_ms);
    for (uint32_t i = 0; i < e->size; i++) {
        const struct ballot *b = &e->ballots[i];
        if (b->is_void || b->held_until_ms <= now_ms) continue;
        if (b->held_until_ms < first) first = b->held_until_ms;
        if (times != NULL) times[n++] = b->held_until_ms;
    }
    if (times == NULL) return first;
    qsort(times, n, sizeof(*times), compare_times);
    first = lacking <= n ? times[lacking - 1] : CR_FOREVER;
    free(times);
    return first;
}

static bool is_open(const struct ballot *b) {
    return !b->is_void && b->held_until_ms != CR_FOREVER;
}

bool electorate_is_open(const struct electorate *e, int64_t rank) {
    const struct ballot *b = find(e, rank);
    return b != NULL && is_open(b);
}

bool electorate_can_close(const struct electorate *e, uint32_t yielding) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->size; i++) n += is_open(&e->ballots[i]) ? 1 : 0;
    return n < quorum(e) + yielding;
}

bool electorate_is_closed(const struct electorate *e) { return electorate_can_close(e, 0); }
