/* What an inspection has found out about the workers of a job: one row a rank, with the state of
 * its process, the place in the kernel where it waits, and its stacks. The functions find the rank
 * that differs from the majority, fold equal rows, and write rows as text and as JSON. Pure: no
 * I/O. inspect/inspector.h has the functions that look into processes. */
#ifndef INSPECT_INSPECT_H
#define INSPECT_INSPECT_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSPECT_HOST_MAX  64   /* bytes of a host name, NUL included; a longer name is cut */
#define INSPECT_STACK_MAX 1000 /* bytes of a stack, NUL included */
#define INSPECT_TEXT_MAX  256  /* bytes of any other text, NUL included */

/* stands in a stack between a function and its caller: "load_batch < main" */
#define INSPECT_CALLED_BY " < "

/* One worker at one moment. All texts are printable; "" means that the fact is not known. In a
 * stack the innermost function comes first: "clock_nanosleep < load_batch < main". */
struct inspect_row {
    int64_t rank, local_rank; /* -1 if not known */
    int64_t pid;              /* the process that the row describes */
    char job[INSPECT_TEXT_MAX]; /* id of the worker's job, a longer one cut; inspect_find() sets it,
                                 * because it finds workers of several jobs */
    char host[INSPECT_HOST_MAX];
    char state;                       /* state of the main thread as in proc(5), such as 'S'; '?' if
                                       * not known */
    char program[32];                 /* program name, without its folder */
    char kernel[INSPECT_TEXT_MAX];    /* where the main thread waits in the kernel */
    char operation[INSPECT_TEXT_MAX]; /* collective operation that the worker says it is in */
    char python[INSPECT_STACK_MAX];   /* stack of Python functions of the main thread */
    char native[INSPECT_STACK_MAX];   /* stack of machine code of the main thread */
    char note[INSPECT_TEXT_MAX];      /* which facts are missing, and why */
};

/* Initialises a row without facts. */
void inspect_row_init(struct inspect_row *row, int64_t pid);

/* ---- folding ---- */

/* A set of rows that are equal, except that their ranks, pids and hosts differ. */
struct inspect_group {
    size_t first;   /* index in `rows` of the row with the smallest rank */
    size_t count;   /* number of rows in the group */
    /* number of words (the operation, then functions from the outermost one on) that these rows
     * have in common with the majority, before they differ from it; SIZE_MAX if these rows are in
     * the majority */
    size_t shared;
};

/* Sorts `rows` into groups of equal rows. The rows of a group stand beside each other, sorted by
 * rank. The groups are sorted by the number of functions, from the outermost one inwards, in which
 * they agree with the majority: the group with the smallest number comes first. Of groups with the
 * same number, the one with the fewest rows comes first. Stores the groups in *groups, a malloc'ed
 * array that the caller frees, and their number in *group_count. Returns 0 or -ENOMEM.
 *
 * The majority is found in steps, from the outermost function inwards. At first, all rows are in
 * the majority. In each step, if more than half of the rows in the majority agree on the next
 * function, the rows that do not agree leave the majority. So a rank that loads data differs from
 * the majority even if the other ranks are at different places within the same collective
 * operation. */
int inspect_fold(struct inspect_row *rows, size_t count, struct inspect_group **groups,
                 size_t *group_count);

/* Returns true if the ranks of groups[0] are the odd ranks. This is so if groups[0] differs from
 * the majority, and if each other group agrees with the majority in more functions than
 * groups[0]. */
bool inspect_has_odd(const struct inspect_group *groups, size_t group_count);

/* ---- texts: each function appends to `out` and returns 0 or -ENOMEM ---- */

/* Sorts and folds `rows`, and appends the report: the text of inspect_write_line() as a line, then
 * that of inspect_write_groups(). */
int inspect_write_report(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                         const char *indent);
/* Sorts and folds `rows` and appends one line, without a newline, on the odd ranks: "rank 5 on
 * node1 differs from the other 15 ranks: it is in load_batch". */
int inspect_write_line(struct cr_buffer *out, struct inspect_row *rows, size_t count);
/* Sorts and folds `rows` and appends some lines on each group. Each line begins with `indent`. */
int inspect_write_groups(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                         const char *indent);
/* Appends the ranks of `rows`, which must be sorted by rank. With the separator ", " the text is,
 * for example, "0-4, 6". After `most` runs of consecutive ranks, the text ends with the number of
 * the other ranks: "and 12 more". */
int inspect_write_ranks(struct cr_buffer *out, const struct inspect_row *rows, size_t count,
                        size_t most, const char *separator);
/* Reads a text that inspect_write_ranks() has written with the separator ",". Stores the ranks in
 * `ranks`. Returns their number, or -EINVAL if the text is malformed or has more than `most`
 * ranks. */
int64_t inspect_read_ranks(const char *text, int64_t *ranks, size_t most);
/* `rows` are the rows of one group. Returns the first row that names a place in the kernel; if no
 * row does, returns the first row. */
const struct inspect_row *inspect_most_telling(const struct inspect_row *rows, size_t count);
/* Appends the row as one line of JSON with a newline, at most INSPECT_JSON_MAX bytes. */
int inspect_row_write(struct cr_buffer *out, const struct inspect_row *row);
#define INSPECT_JSON_MAX ((size_t) 4096)
/* Reads a line that inspect_row_write() has written. Returns 0, -EINVAL if the line is not a row,
 * or -ENOMEM. A text that is longer than its field of the row is cut. Bytes that are not printable
 * become \xNN. */
int inspect_row_read(struct inspect_row *row, const char *line, size_t len);

#endif
