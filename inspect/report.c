/* Writes folded rows for people. */
#include "inspect/inspect_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* If `call` fails, returns its error from the function in which TRY() stands. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ < 0) return rc_;                                                                   \
    } while (0)

#define RUNS_MAX 16 /* at most this many runs of consecutive ranks are written */

int inspect_write_ranks(struct cr_buffer *out, const struct inspect_row *rows, size_t count,
                        size_t most, const char *separator) {
    size_t runs = 0;
    for (size_t i = 0; i < count;) {
        size_t last = i;
        while (last + 1 < count && rows[last + 1].rank == rows[last].rank + 1) last++;
        if (runs == most) return cr_buffer_printf(out, "%sand %zu more", separator, count - i);
        TRY(cr_buffer_printf(out, "%s%" PRId64, runs++ > 0 ? separator : "", rows[i].rank));
        if (last > i) TRY(cr_buffer_printf(out, "-%" PRId64, rows[last].rank));
        i = last + 1;
    }
    return 0;
}

/* Reads the number at *at, and moves *at behind it. Returns the number, or -EINVAL if there is no
 * number or it is larger than INT32_MAX. */
static int64_t take_rank(const char **at) {
    char *end;
    if (**at < '0' || **at > '9') return -EINVAL;
    errno = 0;
    long long rank = strtoll(*at, &end, 10);
    *at = end;
    return errno == 0 && rank <= INT32_MAX ? rank : -EINVAL;
}

int64_t inspect_read_ranks(const char *text, int64_t *ranks, size_t most) {
    size_t n = 0;
    for (const char *at = text;; at++) {
        int64_t first = take_rank(&at), last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = take_rank(&at);
        }
        if (first < 0 || last < first || (size_t) (last - first) >= most - n) return -EINVAL;
        while (first <= last) ranks[n++] = first++;
        if (*at == '\0') return (int64_t) n;
        if (*at != ',') return -EINVAL;
    }
}

static int append_who(struct cr_buffer *out, const struct inspect_row *rows, size_t count) {
    TRY(cr_buffer_printf(out, "rank%s ", count == 1 ? "" : "s"));
    TRY(inspect_write_ranks(out, rows, count, RUNS_MAX, ", "));
    if (count > 1) return 0;
    if (rows[0].host[0] != '\0') TRY(cr_buffer_printf(out, " on %s", rows[0].host));
    return rows[0].pid > 0 ? cr_buffer_printf(out, ", pid %" PRId64, rows[0].pid) : 0;
}

static const char *state_text(char state) {
    switch (state) {
    case 'R': return "runs";
    case 'S': return "sleeps";
    case 'D': return "waits and cannot be killed";
    case 'T': return "is stopped by a signal";
    case 't': return "is stopped by a debugger";
    case 'Z': return "has ended, but was not reaped";
    case 'X': return "has ended";
    default: return "is in an unknown state";
    }
}

/* Appends where the odd ranks are: the first function in which their stack differs from that of the
 * majority, and the innermost function of their stack. `row` is one of their rows. */
static int append_place(struct cr_buffer *out, struct inspect_row *row, size_t shared) {
    const char *stack = row->python[0] != '\0' ? row->python : row->native;
    const char *end = strstr(stack, INSPECT_CALLED_BY);
    size_t inner_len = end != NULL ? (size_t) (end - stack) : strlen(stack), len;
    const char *word = inspect_word(row, shared, &len);
    if (shared == 0 || len == 0) {
        word = stack;
        len = inner_len;
    }
    if (len > 0) TRY(cr_buffer_printf(out, ": it is in %.*s", (int) len, word));
    if (word != stack && inner_len > 0 && len > 0) {
        TRY(cr_buffer_printf(out, ", there in %.*s", (int) inner_len, stack));
    }
    if (len == 0 && row->kernel[0] != '\0') {
        TRY(cr_buffer_printf(out, ": it is in %s", row->kernel));
    }
    if (row->operation[0] == '\0') return 0;
    return cr_buffer_printf(out, "; operation: %s", row->operation);
}

const struct inspect_row *inspect_most_telling(const struct inspect_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kernel[0] != '\0') return &rows[i];
    }
    return &rows[0];
}

static int append_group(struct cr_buffer *out, const struct inspect_row *rows, size_t count,
                        const char *indent) {
    const struct inspect_row *r = inspect_most_telling(rows, count);
    TRY(cr_buffer_printf(out, "%s", indent));
    TRY(append_who(out, rows, count));
    if (count > 1) TRY(cr_buffer_printf(out, " (%zu ranks)", count));
    TRY(cr_buffer_printf(out, ": %s %s", r->program[0] != '\0' ? r->program : "the process",
                         state_text(r->state)));
    if (r->kernel[0] != '\0') TRY(cr_buffer_printf(out, " in %s", r->kernel));
    TRY(cr_buffer_printf(out, "\n"));
    if (r->operation[0] != '\0') {
        TRY(cr_buffer_printf(out, "%s  operation: %s\n", indent, r->operation));
    }
    if (r->python[0] != '\0') TRY(cr_buffer_printf(out, "%s  python: %s\n", indent, r->python));
    if (r->native[0] != '\0') TRY(cr_buffer_printf(out, "%s  native: %s\n", indent, r->native));
    if (r->note[0] != '\0') TRY(cr_buffer_printf(out, "%s  not known: %s\n", indent, r->note));
    return 0;
}

/* Appends the line that names the odd ranks. `rows` and `groups` are results of inspect_fold(). */
static int append_line(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                       const struct inspect_group *groups, size_t group_count) {
    if (count == 0) return cr_buffer_printf(out, "no worker was found");
    if (group_count == 1) {
        return count == 1 ? cr_buffer_printf(out, "1 rank")
                          : cr_buffer_printf(out, "all %zu ranks are at the same place", count);
    }
    if (!inspect_has_odd(groups, group_count)) {
        return cr_buffer_printf(out, "the %zu ranks are at %zu places; no place has most of them",
                                count, group_count);
    }
    struct inspect_row *odd = &rows[groups[0].first];
    TRY(append_who(out, odd, groups[0].count));
    TRY(cr_buffer_printf(out, " differ%s from the other %zu ranks",
                         groups[0].count == 1 ? "s" : "", count - groups[0].count));
    return append_place(out, odd, groups[0].shared);
}

int inspect_write_line(struct cr_buffer *out, struct inspect_row *rows, size_t count) {
    struct inspect_group *groups;
    size_t group_count;
    TRY(inspect_fold(rows, count, &groups, &group_count));
    int rc = append_line(out, rows, count, groups, group_count);
    free(groups);
    return rc;
}

int inspect_write_groups(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                         const char *indent) {
    struct inspect_group *groups;
    size_t group_count;
    int rc = 0;
    TRY(inspect_fold(rows, count, &groups, &group_count));
    for (size_t g = 0; rc == 0 && g < group_count; g++) {
        rc = append_group(out, &rows[groups[g].first], groups[g].count, indent);
    }
    free(groups);
    return rc;
}

int inspect_write_report(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                         const char *indent) {
    TRY(inspect_write_line(out, rows, count));
    TRY(cr_buffer_printf(out, "\n"));
    return inspect_write_groups(out, rows, count, indent);
}
