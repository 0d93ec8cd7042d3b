/* Decides which of a host's addresses a node tries, and when: see race_internal.h. */
#include "rendezvous/dial/race_internal.h"

#include "base/time/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void race_begin(struct race *r, int64_t now_ms) {
    *r = (struct race){.next_ms = now_ms, .refused_ms = CR_FOREVER};
}

void race_add(struct race *r, const char *addr) {
    for (uint32_t i = 0; i < r->count; i++) {
        if (strcmp(r->entries[i].addr, addr) == 0) return;
    }
    if (r->count == RACE_MAX) return;
    struct race_entry *e = &r->entries[r->count++];
    *e = (struct race_entry){.state = RACE_WAITS};
    (void) snprintf(e->addr, sizeof(e->addr), "%s", addr);
}

/* ---- the order ---- */

static bool is_v6(const struct race_entry *e) { return strchr(e->addr, ':') != NULL; }

/* Moves the entry at index `from` to the smaller index `to`. The entries between them move one
 * index up. */
static void move_up(struct race *r, uint32_t from, uint32_t to) {
    struct race_entry moved = r->entries[from];
    memmove(&r->entries[to + 1], &r->entries[to], (from - to) * sizeof(moved));
    r->entries[to] = moved;
}

void race_order(struct race *r, const char *first) {
    for (uint32_t i = 0; i < r->count; i++) {
        if (strcmp(r->entries[i].addr, first) == 0) move_up(r, i, 0);
    }
    for (uint32_t i = 1; i < r->count; i++) {
        uint32_t other = i;
        while (other < r->count && is_v6(&r->entries[other]) == is_v6(&r->entries[i - 1])) other++;
        if (other < r->count) move_up(r, other, i);
    }
}

/* IPv4 comes before IPv6, and a shorter text before a longer one. This is not always the order of
 * the numbers, but it is the same on all nodes, which is what matters. */
int race_compare(const char *a, const char *b) {
    bool a_v6 = strchr(a, ':') != NULL, b_v6 = strchr(b, ':') != NULL;
    size_t a_len = strlen(a), b_len = strlen(b);
    if (a_v6 != b_v6) return a_v6 ? 1 : -1;
    if (a_len != b_len) return a_len < b_len ? -1 : 1;
    return strcmp(a, b);
}

static int compare(const void *a, const void *b) {
    return race_compare(((const struct race_entry *) a)->addr,
                        ((const struct race_entry *) b)->addr);
}

void race_sort(struct race *r) { qsort(r->entries, r->count, sizeof(r->entries[0]), compare); }

void race_remember(struct race *r, const struct race *last) {
    for (uint32_t i = 0; i < r->count; i++) {
        for (uint32_t j = 0; j < last->count; j++) {
            if (strcmp(r->entries[i].addr, last->entries[j].addr) != 0) continue;
            memcpy(r->entries[i].why, last->entries[j].why, sizeof(r->entries[i].why));
            r->entries[i].is_stranger = last->entries[j].is_stranger;
        }
    }
}

/* ---- the events ---- */

static const char *state_name(enum race_state state) {
    static const char *const names[] = {
#define S(name) #name,
        RACE_STATES(S)
#undef S
    };
    return names[state];
}

/* Enters a state, and logs that. No other function writes `state` after race_add(). */
static void enter(struct race *r, struct race_entry *e, enum race_state state) {
    cr_trace(&r->trace, "address %s: %s -> %s", e->addr, state_name(e->state), state_name(state));
    e->state = state;
}

int race_start_next(struct race *r, int64_t now_ms) {
    if (r->started == r->count || now_ms < r->next_ms) return -1;
    uint32_t index = r->started++;
    enter(r, &r->entries[index], RACE_TRIED);
    r->next_ms = now_ms + RACE_NEXT_MS;
    return (int) index;
}

void race_connected(struct race *r, uint32_t index) { r->entries[index].connected = true; }

void race_failed(struct race *r, int64_t now_ms, uint32_t index, const char *why) {
    struct race_entry *e = &r->entries[index];
    enter(r, e, RACE_FAILED);
    (void) snprintf(e->why, sizeof(e->why), "%s", why);
    e->is_stranger = false;
    r->next_ms = now_ms;
}

void race_met_stranger(struct race *r, int64_t now_ms, uint32_t index, const char *why) {
    race_failed(r, now_ms, index, why);
    r->entries[index].is_stranger = true;
}

void race_note(struct race *r, uint32_t index, const char *what) {
    struct race_entry *e = &r->entries[index];
    (void) snprintf(e->why, sizeof(e->why), "%s", what);
}

void race_refused(struct race *r, int64_t now_ms, uint32_t index) {
    enter(r, &r->entries[index], RACE_REFUSED);
    if (r->refused_ms == CR_FOREVER) r->refused_ms = now_ms;
    r->next_ms = now_ms;
}

/* ---- what follows from the states ---- */

/* Returns whether WELCOME can still come from some address. */
static bool has_hope(const struct race *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        enum race_state state = r->entries[i].state;
        if (state == RACE_WAITS || state == RACE_TRIED) return true;
    }
    return false;
}

int race_accepts_refusal(const struct race *r, int64_t now_ms) {
    if (r->refused_ms == CR_FOREVER) return -1;
    if (has_hope(r) && now_ms < r->refused_ms + RACE_REFUSED_MS) return -1;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->entries[i].state == RACE_REFUSED) return (int) i;
    }
    return -1;
}

bool race_has_stranger(const struct race *r) {
    for (uint32_t i = 0; i < r->started; i++) {
        if (r->entries[i].is_stranger) return true;
    }
    return false;
}

bool race_is_lost(const struct race *r) { return !has_hope(r) && r->refused_ms == CR_FOREVER; }

int64_t race_deadline(const struct race *r) {
    int64_t next_ms = r->started < r->count ? r->next_ms : CR_FOREVER;
    int64_t refusal_ms = r->refused_ms != CR_FOREVER ? r->refused_ms + RACE_REFUSED_MS : CR_FOREVER;
    return next_ms < refusal_ms ? next_ms : refusal_ms;
}

/* ---- the text ---- */

static const char *result_of(const struct race_entry *e) {
    if (e->state == RACE_TRIED && e->why[0] != '\0') return e->why;
    switch (e->state) {
    case RACE_REFUSED: return "a coordinator refuses this node";
    case RACE_FAILED: return e->why;
    case RACE_TRIED: return e->connected ? "connected, but nothing comes" : "no answer";
    case RACE_WAITS: break;
    }
    return "not tried yet";
}

void race_describe(const struct race *r, char *out, size_t room) {
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < r->started && len + 1 < room; i++) {
        const struct race_entry *e = &r->entries[i];
        int add = snprintf(out + len, room - len, "%s%s: %s", i > 0 ? ", " : "", e->addr,
                           result_of(e));
        if (add > 0) len += (size_t) add;
    }
}
