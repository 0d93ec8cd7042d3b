/* Implements seat_table_internal.h by open addressing: a seat lies in the first free entry at or
 * after the place that its key hashes to. */
#include "rendezvous/coordinator/seat_table_internal.h"

#include <errno.h>
#include <stdlib.h>

/* Returns the place that the key hashes to. Keys may be consecutive, like node ranks, or chosen by
 * another program, like instances; the multiplication spreads them. */
static uint32_t place_of(const struct seat_table *t, uint64_t key) {
    key = (key ^ key >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t) (key >> 32) & (t->cap - 1);
}

static uint32_t next_place(const struct seat_table *t, uint32_t place) {
    return (place + 1) & (t->cap - 1);
}

static void put(struct seat_table *t, struct seat_table_entry entry) {
    uint32_t place = place_of(t, entry.key);
    while (t->entries[place].seat != NULL) place = next_place(t, place);
    t->entries[place] = entry;
}

static int grow(struct seat_table *t) {
    struct seat_table bigger = {.cap = t->cap != 0 ? 2 * t->cap : 16, .count = t->count};
    bigger.entries = calloc(bigger.cap, sizeof(*bigger.entries));
    if (bigger.entries == NULL) return -ENOMEM;
    for (uint32_t i = 0; i < t->cap; i++) {
        if (t->entries[i].seat != NULL) put(&bigger, t->entries[i]);
    }
    free(t->entries);
    *t = bigger;
    return 0;
}

int seat_table_add(struct seat_table *t, uint64_t key, struct coordinator_seat *seat) {
    if (2 * (t->count + 1) > t->cap && grow(t) < 0) return -ENOMEM;
    put(t, (struct seat_table_entry){.key = key, .seat = seat});
    t->count++;
    return 0;
}

/* Frees the entry at `place`. A search for a key ends at the first free entry, so all entries
 * between this one and the next free one are put in again. */
static void free_entry(struct seat_table *t, uint32_t place) {
    t->entries[place].seat = NULL;
    t->count--;
    for (uint32_t i = next_place(t, place); t->entries[i].seat != NULL; i = next_place(t, i)) {
        struct seat_table_entry moved = t->entries[i];
        t->entries[i].seat = NULL;
        put(t, moved);
    }
}

void seat_table_remove(struct seat_table *t, uint64_t key, const struct coordinator_seat *seat) {
    if (t->cap == 0) return;
    uint32_t i = place_of(t, key);
    while (t->entries[i].seat != NULL && t->entries[i].seat != seat) i = next_place(t, i);
    if (t->entries[i].seat != NULL) free_entry(t, i);
}

struct coordinator_seat *seat_table_find(const struct seat_table *t, uint64_t key) {
    if (t->cap == 0) return NULL;
    uint32_t i = place_of(t, key);
    while (t->entries[i].seat != NULL && t->entries[i].key != key) i = next_place(t, i);
    return t->entries[i].seat;
}

void seat_table_done(struct seat_table *t) {
    free(t->entries);
    *t = (struct seat_table){0};
}
