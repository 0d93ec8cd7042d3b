/* The records of hosts on which something goes wrong again and again. */
#include "rendezvous/rules/standing_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLOW_MIN_MS INT64_C(5000)

struct standing *standings_find(const struct standings *t, const char *host) {
    for (uint32_t i = 0; i < t->count; i++) {
        if (strcmp(t->hosts[i].host, host) == 0) return &t->hosts[i];
    }
    return NULL;
}

static void remove_at(struct standings *t, uint32_t index) {
    free(t->hosts[index].host);
    t->count--;
    memmove(&t->hosts[index], &t->hosts[index + 1], (t->count - index) * sizeof(*t->hosts));
}

static void remove_oldest(struct standings *t) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < t->count; i++) {
        if (t->hosts[i].event_ms < t->hosts[oldest].event_ms) oldest = i;
    }
    remove_at(t, oldest);
}

/* Returns false when memory is short. */
static bool make_room(struct standings *t) {
    if (t->count == STANDINGS_MAX) remove_oldest(t);
    if (t->count < t->room) return true;
    uint32_t room = t->room == 0 ? 8 : 2 * t->room;
    struct standing *grown = realloc(t->hosts, room * sizeof(*grown));
    if (grown == NULL) return false;
    t->hosts = grown;
    t->room = room;
    return true;
}

static struct standing *find_or_make(struct standings *t, const char *host) {
    struct standing *s = standings_find(t, host);
    if (s != NULL) return s;
    char *copy = strdup(host);
    if (copy == NULL || !make_room(t)) {
        free(copy);
        return NULL;
    }
    t->hosts[t->count] = (struct standing){.host = copy};
    return &t->hosts[t->count++];
}

/* Returns for how many ms the next node of a host has to wait after `lives` short lives in a row.
 * `lives` is at least flap_limit. */
static int64_t slow_ms(const struct standing_rules *r, uint32_t lives) {
    int64_t wait_ms = SLOW_MIN_MS;
    for (uint32_t i = r->flap_limit; i < lives && wait_ms < r->flap_refusal_ms; i++) wait_ms *= 2;
    return wait_ms;
}

enum standing_change standings_lost(struct standings *t, int64_t now_ms, const char *host,
                                    uint64_t round, int64_t life_ms) {
    const struct standing_rules *r = &t->rules;
    if (r->flap_limit == 0) return STANDING_SAME;
    if (life_ms > r->flap_window_ms) {
        struct standing *old = standings_find(t, host);
        if (old != NULL) old->short_lives = 0;
        return STANDING_SAME;
    }
    struct standing *s = find_or_make(t, host);
    if (s == NULL || s->rounds_counted == round + 1) return STANDING_SAME;
    s->rounds_counted = round + 1;
    s->event_ms = now_ms;
    s->short_lives++;
    if (s->short_lives < r->flap_limit) return STANDING_SAME;
    if (s->short_lives / 2 >= r->flap_limit) {
        s->refused_until_ms = now_ms + r->flap_refusal_ms;
        return STANDING_REFUSED;
    }
    s->slowed_until_ms = now_ms + slow_ms(r, s->short_lives);
    return STANDING_SLOWED;
}

enum standing_change standings_failed(struct standings *t, int64_t now_ms, const char *host) {
    const struct standing_rules *r = &t->rules;
    struct standing *s = r->aside_after == 0 ? NULL : find_or_make(t, host);
    if (s == NULL) return STANDING_SAME;
    if (s->failures > 0 && now_ms - s->failed_ms > r->aside_ms) s->failures = 0;
    s->failures++;
    s->failed_ms = s->event_ms = now_ms;
    if (s->failures < r->aside_after) return STANDING_SAME;
    s->aside_until_ms = now_ms + r->aside_ms;
    return STANDING_ASIDE;
}

void standings_excused(struct standings *t, const char *host) {
    struct standing *s = standings_find(t, host);
    if (s == NULL || s->failures == 0) return;
    if (s->failures-- == t->rules.aside_after) s->aside_until_ms = 0;
}

bool standings_admit(struct standings *t, const char *host) {
    struct standing *s = standings_find(t, host);
    if (s == NULL) return false;
    remove_at(t, (uint32_t) (s - t->hosts));
    return true;
}

void standings_forget(struct standings *t) {
    for (uint32_t i = 0; i < t->count; i++) free(t->hosts[i].host);
    free(t->hosts);
    t->hosts = NULL;
    t->count = t->room = 0;
}
