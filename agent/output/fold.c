/* The queue of lines that wait for equal lines of other workers (agent/output/fold.h). */
#include "agent/output/fold.h"

#include "base/hash.h"
#include "base/time/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct entry {
    TAILQ_ENTRY(entry) link;
    uint64_t number; /* entries are numbered in the order of the queue, from 1 on */
    uint64_t hash;
    uint32_t kind, wanted, count;
    int64_t since_ms; /* when the first worker wrote the line */
    uint8_t *joined;  /* [workers] */
    size_t len;
    char text[];
};

struct fold {
    uint32_t workers;
    uint64_t *last; /* [workers]: number of the last entry that the worker has joined; 0 if it has
                     * joined none */
    uint64_t numbers;
    size_t lines, bytes;
    TAILQ_HEAD(entries, entry) queue;
    struct entry *taken; /* the entry that fold_take() returned last */
};

static void entry_free(struct entry *e) {
    if (e == NULL) return;
    free(e->joined);
    free(e);
}

struct fold *fold_new(uint32_t workers) {
    struct fold *f = calloc(1, sizeof(*f));
    if (f == NULL) return NULL;
    f->workers = workers;
    f->last = calloc(workers + (size_t) 1, sizeof(*f->last));
    TAILQ_INIT(&f->queue);
    if (f->last != NULL) return f;
    free(f);
    return NULL;
}

void fold_free(struct fold *f) {
    struct entry *e;
    if (f == NULL) return;
    while ((e = TAILQ_FIRST(&f->queue)) != NULL) {
        TAILQ_REMOVE(&f->queue, e, link);
        entry_free(e);
    }
    entry_free(f->taken);
    free(f->last);
    free(f);
}

/* ---- adding a line ---- */

/* Returns the first entry with this line, or NULL if there is none. Searches only the entries after
 * the last one that the worker has joined: if the worker joined an earlier entry, the order of its
 * lines would change. */
static struct entry *find(const struct fold *f, uint32_t kind, uint32_t local_rank, uint64_t hash,
                          const char *text, size_t len) {
    struct entry *e, *found = NULL;
    TAILQ_FOREACH_REVERSE(e, &f->queue, entries, link) {
        if (e->number <= f->last[local_rank]) break;
        if (e->kind != kind || e->hash != hash || e->len != len) continue;
        if (memcmp(e->text, text, len) == 0) found = e;
    }
    return found;
}

static struct entry *append(struct fold *f, uint32_t kind, uint64_t hash, const char *text,
                            size_t len, int64_t now_ms) {
    struct entry *e = malloc(sizeof(*e) + len);
    if (e == NULL) return NULL;
    *e = (struct entry){.number = ++f->numbers, .hash = hash, .kind = kind, .since_ms = now_ms,
                        .joined = calloc(f->workers, 1), .len = len};
    if (e->joined == NULL) {
        free(e);
        return NULL;
    }
    memcpy(e->text, text, len);
    TAILQ_INSERT_TAIL(&f->queue, e, link);
    f->lines++;
    f->bytes += len;
    return e;
}

int fold_add(struct fold *f, uint32_t kind, uint32_t wanted, uint32_t local_rank, const char *text,
             size_t len, int64_t now_ms) {
    uint64_t hash = cr_hash_add(CR_HASH_BEGIN, text, len);
    struct entry *e = find(f, kind, local_rank, hash, text, len);
    if (e == NULL) e = append(f, kind, hash, text, len, now_ms);
    if (e == NULL) return -ENOMEM;
    e->wanted = wanted;
    e->joined[local_rank] = 1;
    e->count++;
    f->last[local_rank] = e->number;
    return 0;
}

/* ---- taking a line out ---- */

bool fold_take(struct fold *f, int64_t now_ms, bool all, struct fold_line *out) {
    struct entry *e = TAILQ_FIRST(&f->queue);
    entry_free(f->taken);
    f->taken = NULL;
    if (e == NULL) return false;
    bool is_full = f->lines > FOLD_LINES_MAX || f->bytes > FOLD_BYTES_MAX;
    bool is_due = e->count >= e->wanted || now_ms - e->since_ms >= FOLD_MS;
    if (!all && !is_full && !is_due) return false;
    TAILQ_REMOVE(&f->queue, e, link);
    f->lines--;
    f->bytes -= e->len;
    f->taken = e;
    *out = (struct fold_line){.kind = e->kind, .text = e->text, .len = e->len,
                              .joined = e->joined, .count = e->count};
    return true;
}

int64_t fold_due_ms(const struct fold *f) {
    const struct entry *e = TAILQ_FIRST(&f->queue);
    return e != NULL ? e->since_ms + FOLD_MS : CR_FOREVER;
}

/* ---- the set of ranks ---- */

int fold_ranks(struct cr_buffer *out, const uint8_t *joined, const uint32_t *numbers,
               uint32_t workers) {
    const char *comma = "";
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < workers; i++) {
        if (joined[i] == 0) continue;
        uint32_t first = numbers[i], last = first;
        while (i + 1 < workers && joined[i + 1] != 0 && numbers[i + 1] == last + 1) {
            i++;
            last++;
        }
        rc = cr_buffer_printf(out, last > first ? "%s%" PRIu32 "-%" PRIu32 : "%s%" PRIu32, comma,
                              first, last);
        comma = ",";
    }
    return rc;
}
