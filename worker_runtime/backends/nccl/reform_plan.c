/* Decides how the ranks of a new round make their communicator out of that of the last round; and
 * writes and reads entries and plans as text. */
#include "worker_runtime/backends/nccl/reform_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reform_entry_write(const struct reform_entry *e, char out[REFORM_ENTRY_MAX]) {
    (void) snprintf(out, REFORM_ENTRY_MAX, "%d %d %" PRIx64 " %d %d", e->can_shrink, e->can_grow,
                    e->tag, e->rank, e->size);
}

bool reform_entry_read(const char *text, struct reform_entry *out) {
    int shrink = 0, grow = 0;
    *out = (struct reform_entry){0};
    if (sscanf(text, "%d %d %" SCNx64 " %d %d", &shrink, &grow, &out->tag, &out->rank,
               &out->size) != 5)
        return false;
    out->can_shrink = shrink == 1;
    out->can_grow = grow == 1;
    return out->tag == 0 || (out->rank >= 0 && out->rank < out->size);
}

/* Returns the most frequent tag of a kept communicator; 0 if no rank has kept a communicator. */
static uint64_t most_frequent_tag(const struct reform_entry *entries, int size) {
    uint64_t best = 0;
    int most = 0;
    for (int r = 0; r < size; r++) {
        int count = 0;
        if (entries[r].tag == 0 || entries[r].tag == best) continue;
        for (int i = r; i < size; i++) count += entries[i].tag == entries[r].tag;
        if (count > most) {
            most = count;
            best = entries[r].tag;
        }
    }
    return best;
}

/* Returns how many ranks have kept the communicator with this tag. Returns 0 if these ranks are not
 * the first ranks of the round, if their entries differ in the communicator's size, or if there are
 * more of these ranks than the size says. */
static int count_survivors(const struct reform_entry *entries, int size, uint64_t tag) {
    int count = 0;
    while (count < size && entries[count].tag == tag) count++;
    for (int r = count; r < size; r++)
        if (entries[r].tag == tag) return 0;
    for (int r = 1; r < count; r++)
        if (entries[r].size != entries[0].size) return 0;
    return count <= entries[0].size ? count : 0;
}

static bool are_ascending(const struct reform_entry *entries, int count) {
    for (int r = 1; r < count; r++)
        if (entries[r].rank <= entries[r - 1].rank) return false;
    return true;
}

static bool can_all(const struct reform_entry *entries, int size, bool grows) {
    for (int r = 0; r < size; r++)
        if (!entries[r].can_shrink || (grows && !entries[r].can_grow)) return false;
    return true;
}

bool reform_decide(const struct reform_entry *entries, int size, uint64_t new_tag,
                   struct reform_plan *out) {
    *out = (struct reform_plan){.is_fresh = true, .new_tag = new_tag};
    uint64_t tag = most_frequent_tag(entries, size);
    int count = tag != 0 ? count_survivors(entries, size, tag) : 0;
    if (count == 0 || !can_all(entries, size, count < size)) return true;
    /* If a rank is lost, ncclCommShrink() is used, which keeps the old order of the ranks. If none
     * is lost, ncclCommSplit() is used, which allows any order. */
    if (count < entries[0].size && !are_ascending(entries, count)) return true;
    int *old_ranks = calloc((size_t) count, sizeof(*old_ranks));
    if (old_ranks == NULL) return false;
    for (int r = 0; r < count; r++) old_ranks[r] = entries[r].rank;
    *out = (struct reform_plan){false, new_tag, tag, entries[0].size, count, old_ranks};
    return true;
}

char *reform_plan_write(const struct reform_plan *p) {
    int count = p->is_fresh ? 0 : p->survivors;
    size_t room = 96 + 12 * (size_t) count;
    char *text = malloc(room);
    if (text == NULL) return NULL;
    int n = snprintf(text, room, "%s %" PRIx64 " %" PRIx64 " %d %d",
                     p->is_fresh ? "fresh" : "reform", p->new_tag, p->old_tag, p->old_size, count);
    for (int r = 0; r < count; r++)
        n += snprintf(text + n, room - (size_t) n, " %d", p->old_ranks[r]);
    return text;
}

static bool read_ranks(const char *at, struct reform_plan *p) {
    p->old_ranks = calloc((size_t) p->survivors, sizeof(*p->old_ranks));
    if (p->old_ranks == NULL) return false;
    for (int r = 0; r < p->survivors; r++) {
        char *end = NULL;
        long rank = strtol(at, &end, 10);
        if (end == at || rank < 0 || rank >= p->old_size) return false;
        p->old_ranks[r] = (int) rank;
        at = end;
    }
    return true;
}

bool reform_plan_read(const char *text, int size, struct reform_plan *out) {
    char word[8] = "";
    int used = 0;
    *out = (struct reform_plan){0};
    if (sscanf(text, "%7s %" SCNx64 " %" SCNx64 " %d %d%n", word, &out->new_tag, &out->old_tag,
               &out->old_size, &out->survivors, &used) != 5)
        return false;
    out->is_fresh = strcmp(word, "fresh") == 0;
    if (out->is_fresh) return true;
    if (strcmp(word, "reform") != 0 || out->survivors < 1 || out->survivors > size ||
        out->survivors > out->old_size)
        return false;
    if (read_ranks(text + used, out)) return true;
    reform_plan_free(out);
    return false;
}

int reform_lost(const struct reform_plan *p, int *lost) {
    int count = 0;
    for (int rank = 0; rank < p->old_size; rank++) {
        bool survives = false;
        for (int r = 0; r < p->survivors && !survives; r++) survives = p->old_ranks[r] == rank;
        if (!survives) lost[count++] = rank;
    }
    return count;
}

void reform_plan_free(struct reform_plan *p) {
    free(p->old_ranks);
    p->old_ranks = NULL;
}
