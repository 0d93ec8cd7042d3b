/* Finds the rows that differ from the majority, and folds equal rows. */
#include "inspect/inspect_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 64 /* most words of a row that are compared */

/* The unit in which rows are compared: an operation, one function of a stack, or a place in the
 * kernel. */
struct word {
    const char *text;
    size_t len;
};

/* A row, divided into the words by which it is compared with other rows. The first word is the
 * operation, then the functions of the stack follow, the outermost one first. */
struct item {
    struct inspect_row *row;
    uint32_t levels;
    size_t shared; /* as in struct inspect_group */
    struct word word[LEVELS_MAX];
};

static void add_word(struct item *item, const char *text, size_t len) {
    if (item->levels < LEVELS_MAX) item->word[item->levels++] = (struct word){text, len};
}

/* Adds the functions of a stack, the outermost one first. */
static void add_stack(struct item *item, const char *stack) {
    const size_t mark = strlen(INSPECT_CALLED_BY);
    for (size_t end = strlen(stack); end > 0;) {
        size_t begin = end;
        while (begin > 0 && (begin < mark || strncmp(stack + begin - mark, INSPECT_CALLED_BY,
                                                     mark) != 0)) {
            begin--;
        }
        add_word(item, stack + begin, end - begin);
        end = begin >= mark ? begin - mark : 0;
    }
}

/* Returns the place in the kernel by which the row is compared with others, or "" if the row is
 * compared without it. The place is left out if a stack is known and the thread runs or sleeps
 * (states R and S), because a thread that waits in a short loop is sometimes in the kernel and
 * sometimes not. */
static const char *kernel_word(const struct inspect_row *row) {
    bool has_stack = row->python[0] != '\0' || row->native[0] != '\0';
    return has_stack && strchr("RS", row->state) != NULL ? "" : row->kernel;
}

/* Divides a row into its words. The operation is the first word, because ranks in different
 * operations differ even if their stacks are equal. If the Python stack is known, the native stack
 * is left out, because all ranks in the same Python function run the same machine code below it. */
static void split(struct item *item, struct inspect_row *row) {
    *item = (struct item){.row = row, .shared = SIZE_MAX};
    add_word(item, row->operation, strlen(row->operation));
    if (row->python[0] != '\0') add_stack(item, row->python);
    else add_stack(item, row->native);
    add_word(item, kernel_word(row), strlen(kernel_word(row)));
}

const char *inspect_word(struct inspect_row *row, size_t level, size_t *len) {
    struct item item;
    split(&item, row);
    *len = level < item.levels ? item.word[level].len : 0;
    return level < item.levels ? item.word[level].text : "";
}

/* Returns the word of the row at a level, or "" if the row has fewer levels. */
static struct word word_at(const struct item *item, uint32_t level) {
    return level < item->levels ? item->word[level] : (struct word){"", 0};
}

static int compare_words(struct word a, struct word b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int order = memcmp(a.text, b.text, len);
    return order != 0 ? order : a.len < b.len ? -1 : a.len > b.len ? 1 : 0;
}

/* ---- the majority ---- */

/* Looks for the word that more than half of the items of the majority have at `level`; the majority
 * are the items whose `shared` is SIZE_MAX. Returns an item that has this word, or NULL if there is
 * no such word. The algorithm is that of Boyer and Moore: the first loop finds the only possible
 * candidate, the second one counts the items that agree with it. */
static const struct item *elect(const struct item *items, size_t count, uint32_t level) {
    const struct item *candidate = NULL;
    size_t votes = 0, agree = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].shared != SIZE_MAX) continue;
        if (votes == 0) candidate = &items[i];
        bool same = compare_words(word_at(&items[i], level), word_at(candidate, level)) == 0;
        votes = same ? votes + 1 : votes - 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (items[i].shared != SIZE_MAX) continue;
        all++;
        if (compare_words(word_at(&items[i], level), word_at(candidate, level)) == 0) agree++;
    }
    return agree * 2 > all ? candidate : NULL;
}

/* Finds the items that differ from the majority, and sets `shared` of each to the level of the
 * first word in which it differs. The items of the majority keep SIZE_MAX. */
static void find_majority(struct item *items, size_t count) {
    for (uint32_t level = 0; level < LEVELS_MAX; level++) {
        const struct item *chosen = elect(items, count, level);
        if (chosen == NULL || level >= chosen->levels) return;
        struct word word = word_at(chosen, level);
        for (size_t i = 0; i < count; i++) {
            if (items[i].shared != SIZE_MAX) continue;
            if (compare_words(word_at(&items[i], level), word) != 0) items[i].shared = level;
        }
    }
}

/* ---- groups ---- */

static int compare_facts(const struct inspect_row *a, const struct inspect_row *b) {
    int order = strcmp(a->operation, b->operation);
    if (order == 0) order = strcmp(a->python, b->python);
    /* The native stacks are compared only if there are no Python stacks: in the same Python
     * function, the native stacks of two ranks may still differ a little. */
    if (order == 0 && a->python[0] == '\0') order = strcmp(a->native, b->native);
    if (order == 0) order = strcmp(kernel_word(a), kernel_word(b));
    if (order == 0) order = strcmp(a->note, b->note);
    return order;
}

static int by_facts(const void *x, const void *y) {
    const struct item *a = x, *b = y;
    if (a->shared != b->shared) return a->shared < b->shared ? -1 : 1;
    int order = compare_facts(a->row, b->row);
    if (order != 0) return order;
    return (a->row->rank > b->row->rank) - (a->row->rank < b->row->rank);
}

static int by_size(const void *x, const void *y) {
    const struct inspect_group *a = x, *b = y;
    if (a->shared != b->shared) return a->shared < b->shared ? -1 : 1;
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static size_t make_groups(const struct item *items, size_t count, struct inspect_group *groups) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && items[i].shared == items[i - 1].shared &&
                    compare_facts(items[i].row, items[i - 1].row) == 0;
        if (!same) groups[n++] = (struct inspect_group){.first = i, .shared = items[i].shared};
        groups[n - 1].count++;
    }
    return n;
}

/* Copies the rows to `out` in the order of the groups, and sets each group's `first` to its index
 * in `out`. */
static void place_rows(const struct item *items, struct inspect_group *groups, size_t group_count,
                       struct inspect_row *out) {
    size_t n = 0;
    for (size_t g = 0; g < group_count; g++) {
        size_t from = groups[g].first;
        groups[g].first = n;
        for (size_t i = 0; i < groups[g].count; i++) out[n++] = *items[from + i].row;
    }
}

int inspect_fold(struct inspect_row *rows, size_t count, struct inspect_group **groups,
                 size_t *group_count) {
    struct item *items = calloc(count + 1, sizeof(*items));
    struct inspect_row *sorted = calloc(count + 1, sizeof(*sorted));
    struct inspect_group *made = calloc(count + 1, sizeof(*made));
    bool ok = items != NULL && sorted != NULL && made != NULL;
    if (ok) {
        for (size_t i = 0; i < count; i++) split(&items[i], &rows[i]);
        find_majority(items, count);
        qsort(items, count, sizeof(*items), by_facts);
        *group_count = make_groups(items, count, made);
        qsort(made, *group_count, sizeof(*made), by_size);
        place_rows(items, made, *group_count, sorted);
        if (count > 0) memcpy(rows, sorted, count * sizeof(*rows));
        *groups = made;
    } else {
        free(made);
    }
    free(items);
    free(sorted);
    return ok ? 0 : -ENOMEM;
}

bool inspect_has_odd(const struct inspect_group *groups, size_t group_count) {
    if (group_count < 2 || groups[0].shared == SIZE_MAX) return false;
    return groups[1].shared > groups[0].shared;
}
