/* Finds the rank for which others wait: see behind_internal.h.
 *
 * A rank in a collective waits for the ranks of the group that have not entered the collective. A
 * rank in a send or receive waits for the rank at the other end. A rank that makes a group waits
 * for the ranks from which there is no entry of this group. If others wait for a rank, and this
 * rank waits for none, it is the one that holds them up.
 *
 * The entries are sorted by group and by rank in the group. After that, each function goes once
 * over the entries of a group: with n entries the time grows like n log n, not like n * n. */
#include "rendezvous/rules/behind_internal.h"

#include "rendezvous/types.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 16 /* the line names at most this many ranks; further ranks are only counted */

struct ranks {
    uint32_t world_size;
    bool *waits;   /* [world_size]; true: the rank waits in some group */
    bool *awaited; /* [world_size]; true: some rank waits for this rank */
};

/* The entries of one group. */
struct part {
    struct behind_entry *at;
    size_t count;
};

/* The group with the most waiting ranks. `longest` is the waiting entry with the largest `begun`;
 * if several have the same `begun`, the one with the largest since_ms. */
struct scene {
    const struct behind_entry *longest; /* NULL if no rank waits */
    size_t waiting;
};

static int compare(const void *a, const void *b) {
    const struct behind_entry *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool is_waiting(const struct behind_entry *e) {
    return e->state >= RENDEZVOUS_WAITS_COLLECTIVE && e->state <= RENDEZVOUS_WAITS_MAKING;
}

static struct part next_part(struct behind_entry *entries, size_t count, size_t from) {
    struct part p = {.at = &entries[from]};
    while (from + p.count < count && p.at[p.count].group == p.at->group) p.count++;
    return p;
}

/* Returns the entry whose rank in the group is `place`, or NULL if there is none. */
static const struct behind_entry *find_place(const struct part *p, uint32_t place) {
    struct behind_entry key = {.group = p->at->group, .place = place};
    for (size_t low = 0, high = p->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (p->at[middle].place == place) return &p->at[middle];
        if (compare(&p->at[middle], &key) < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* ---- who waits for whom ---- */

static void await(struct ranks *r, uint32_t rank) {
    if (rank < r->world_size) r->awaited[rank] = true;
}

/* If the group has as many ranks as the round, marks as awaited the ranks from which there is no
 * entry of this group. If the group is smaller, it is not known which ranks of the round belong to
 * it. */
static void await_absent(struct ranks *r, const struct part *p) {
    if (p->at->size != r->world_size) return;
    size_t i = 0;
    for (uint32_t place = 0; place < p->at->size; place++) {
        while (i < p->count && p->at[i].place < place) i++;
        /* a group of all ranks usually has them in the order of the round, so `place` is the
         * rank */
        if (i == p->count || p->at[i].place != place) await(r, place);
    }
}

/* Call this if `a` waits in a send or receive with the rank of `b`. Returns true if `b` is in the
 * other half of this exchange: one rank sends, the other one receives. Neither of such two ranks
 * waits for the other. */
static bool is_pair(const struct behind_entry *a, const struct behind_entry *b) {
    return b->state == RENDEZVOUS_WAITS_MESSAGE && b->peer == a->place && strcmp(a->op, b->op) != 0;
}

static void await_in(struct ranks *r, const struct part *p) {
    bool waits = false, makes = false;
    uint32_t needed = 0; /* ranks that have entered fewer collectives than this are awaited */
    for (size_t i = 0; i < p->count; i++) {
        const struct behind_entry *e = &p->at[i];
        makes |= e->state == RENDEZVOUS_WAITS_MAKING;
        if (e->state == RENDEZVOUS_WAITS_COLLECTIVE) {
            waits = true;
            if (e->seq >= needed) needed = e->seq + 1;
        }
        if (e->state != RENDEZVOUS_WAITS_MESSAGE) continue;
        const struct behind_entry *other = find_place(p, e->peer);
        if (other != NULL && !is_pair(e, other)) await(r, other->rank);
    }
    if (makes || waits) await_absent(r, p);
    for (size_t i = 0; i < p->count && waits; i++) {
        if (p->at[i].begun < needed) await(r, p->at[i].rank);
    }
}

/* Marks as awaited the ranks that have not entered an operation that another rank has started on a
 * stream. No rank waits for the end of such an operation, so await_in() does not count it. */
static void await_open(struct ranks *r, const struct part *p) {
    uint32_t needed = 0;
    bool open = false;
    for (size_t i = 0; i < p->count; i++) {
        if (p->at[i].state != RENDEZVOUS_OPEN) continue;
        open = true;
        if (p->at[i].begun > needed) needed = p->at[i].begun;
    }
    for (size_t i = 0; i < p->count && open; i++) {
        if (p->at[i].begun < needed) await(r, p->at[i].rank);
    }
}

/* ---- the line ---- */

/* Writes the ranks for which others wait and that wait for none, for example "1, 4". Returns how
 * many such ranks there are. */
static uint32_t name_culprits(const struct ranks *r, char *out, size_t out_size) {
    uint32_t found = 0;
    size_t len = 0;
    for (uint32_t rank = 0; rank < r->world_size; rank++) {
        if (!r->awaited[rank] || r->waits[rank]) continue;
        if (++found > NAMED_MAX) continue;
        int n = snprintf(out + len, out_size - len, "%s%u", found > 1 ? ", " : "", rank);
        if (n > 0 && (size_t) n < out_size - len) len += (size_t) n;
    }
    if (found > NAMED_MAX)
        (void) snprintf(out + len, out_size - len, " and %u more", found - NAMED_MAX);
    return found;
}

/* Finds the group in which most ranks wait. If `open` is true, finds the group in which most ranks
 * have operations that they started on a stream and that may be unfinished. */
static struct scene find_scene(struct behind_entry *entries, size_t count, bool open) {
    struct scene most = {0};
    for (size_t i = 0; i < count;) {
        struct part p = next_part(entries, count, i);
        struct scene s = {0};
        for (size_t k = 0; k < p.count; k++) {
            const struct behind_entry *e = &p.at[k];
            if (open ? e->state != RENDEZVOUS_OPEN : !is_waiting(e)) continue;
            s.waiting++;
            bool is_later = s.longest == NULL || e->begun > s.longest->begun;
            bool is_longer = s.longest != NULL && e->begun == s.longest->begun &&
                             e->since_ms > s.longest->since_ms;
            if (is_later || is_longer) s.longest = e;
        }
        if (s.waiting > most.waiting) most = s;
        i += p.count;
    }
    return most;
}

static void describe_op(const struct behind_entry *e, char *out, size_t out_size) {
    if (e->state == RENDEZVOUS_WAITS_MAKING) {
        (void) snprintf(out, out_size, "the making of group '%s'", e->name);
    } else if (e->state == RENDEZVOUS_OPEN) {
        (void) snprintf(out, out_size, "%s #%u of group '%s'", e->op,
                        e->begun > 0 ? e->begun - 1 : 0, e->name);
    } else {
        (void) snprintf(out, out_size, "%s #%u of group '%s'", e->op, e->seq, e->name);
    }
}

/* Returns false if no rank waits. */
static bool write_line(const struct ranks *r, const struct scene *s, bool open, char *out,
                       size_t out_size) {
    char names[200] = "", op[128];
    const struct behind_entry *e = s->longest;
    double for_s = (double) e->since_ms / 1000;
    uint32_t found = name_culprits(r, names, sizeof(names));
    describe_op(e, op, sizeof(op));
    if (found > 0) {
        (void) snprintf(out, out_size,
                        "rank%s %s %s not entered %s, %s %zu rank%s %s, rank %u for %.1f s",
                        found > 1 ? "s" : "", names, found > 1 ? "have" : "has", op,
                        open ? "which" : "in which", s->waiting, s->waiting > 1 ? "s" : "",
                        open ? "started" : s->waiting > 1 ? "wait" : "waits", e->rank, for_s);
    } else if (open) {
        return false; /* `out` says so already */
    } else if (s->waiting == e->size) {
        (void) snprintf(out, out_size, "all %u ranks are in %s, rank %u for %.1f s", e->size, op,
                        e->rank, for_s);
    } else {
        (void) snprintf(out, out_size,
                        "%zu rank%s wait%s in %s, rank %u for %.1f s, and each rank for which they "
                        "wait also waits, or shows nothing",
                        s->waiting, s->waiting > 1 ? "s" : "", s->waiting > 1 ? "" : "s", op,
                        e->rank, for_s);
    }
    return true;
}

static void find_awaited(struct ranks *r, struct behind_entry *entries, size_t count, bool open) {
    for (size_t i = 0; i < count;) {
        struct part p = next_part(entries, count, i);
        if (open) await_open(r, &p);
        else await_in(r, &p);
        i += p.count;
    }
}

bool behind_describe(struct behind_entry *entries, size_t count, uint32_t world_size, char *out,
                     size_t out_size) {
    struct ranks r = {.world_size = world_size,
                      .waits = calloc(world_size + (size_t) 1, sizeof(bool)),
                      .awaited = calloc(world_size + (size_t) 1, sizeof(bool))};
    bool is_found = false;
    (void) snprintf(out, out_size, "no rank waits in an operation of a process group");
    if (count > 0 && r.waits != NULL && r.awaited != NULL) {
        qsort(entries, count, sizeof(*entries), compare);
        for (size_t i = 0; i < count; i++) {
            if (is_waiting(&entries[i]) && entries[i].rank < world_size)
                r.waits[entries[i].rank] = true;
        }
        struct scene s = find_scene(entries, count, false);
        bool open = s.longest == NULL;
        if (open) s = find_scene(entries, count, true);
        if (s.longest != NULL) {
            find_awaited(&r, entries, count, open);
            is_found = write_line(&r, &s, open, out, out_size);
        }
    }
    free(r.waits);
    free(r.awaited);
    return is_found;
}
