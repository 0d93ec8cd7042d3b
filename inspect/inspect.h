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

/* between two functions of a stack; the caller stands on the right */
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
    char program[32];                 /* the name of the program, without its folder */
    char kernel[INSPECT_TEXT_MAX];    /* where the main thread waits in the kernel */
    char operation[INSPECT_TEXT_MAX]; /* collective operation that the worker says it is in */
    char python[INSPECT_STACK_MAX];   /* stack of Python functions of the main thread */
    char native[INSPECT_STACK_MAX];   /* stack of machine code of the main thread */
    char note[INSPECT_TEXT_MAX];      /* why facts are missing */
};

/* Initialises a row without facts. */
void inspect_row_init(struct inspect_row *row, int64_t pid);

/* ---- folding ---- */

/* A set of rows that are equal but for rank, pid and host. */
struct inspect_group {
    size_t first;   /* index in `rows` of the row with the smallest rank */
    size_t count;   /* number of rows in the group */
    /* how many functions of their stacks, from the outermost one on, these rows share with the
     * rows of the largest set; SIZE_MAX if this is the largest set */
    size_t shared;
};

/* Sorts `rows` so that each group's rows are beside each other, by rank. The groups that leave the
 * majority at the outermost function come first; among these the smallest group comes first.
 * Stores the groups in *groups, a malloc'ed array that the caller frees, and their number in
 * *group_count. Returns 0 or -ENOMEM.
 *
 * The majority is found from the outermost function inwards: where more than half of the rows that
 * are still in the majority agree on the next function, these stay in the majority and the others
 * leave it. So a rank that loads data differs from the majority although the other ranks are at
 * different places inside of the same collective operation. */
int inspect_fold(struct inspect_row *rows, size_t count, struct inspect_group **groups,
                 size_t *group_count);

/* Returns whether the first group has the odd ranks: some rows are in the majority, and the first
 * group left the majority nearer to the outermost function than all other groups. */
bool inspect_has_odd(const struct inspect_group *groups, size_t group_count);

/* ---- texts: each function appends to `out` and returns 0 or -ENOMEM ---- */

/* Sorts and folds `rows` and appends the report: a first line that names the odd ranks, then each
 * group. `indent` is written before each line after the first one. */
int inspect_write_report(struct cr_buffer *out, struct inspect_row *rows, size_t count,
                         const char *indent);
/* Sorts and folds `rows` and appends one line, without a newline, on the odd ranks: "rank 5 on
 * node1 differs from the other 15 ranks: it is in load_batch". */
int inspect_write_line(struct cr_buffer *out, struct inspect_row *rows, size_t count);
/* Appends the ranks of rows that are sorted by rank, such as "0-4, 6" if the separator is ", ". At
 * most `most` runs of consecutive ranks are written, and then how many ranks are left out. */
int inspect_write_ranks(struct cr_buffer *out, const struct inspect_row *rows, size_t count,
                        size_t most, const char *separator);
/* Reads a text that inspect_write_ranks() has written with the separator ",". Stores the ranks in
 * `ranks`. Returns their number, or -EINVAL if the text is malformed or has more than `most`
 * ranks. */
int64_t inspect_read_ranks(const char *text, int64_t *ranks, size_t most);
/* Returns the first row of a group that was seen waiting in the kernel, or else the first row. */
const struct inspect_row *inspect_most_telling(const struct inspect_row *rows, size_t count);
/* Appends the row as one line of JSON with a newline, at most INSPECT_JSON_MAX bytes. */
int inspect_row_write(struct cr_buffer *out, const struct inspect_row *row);
#define INSPECT_JSON_MAX ((size_t) 4096)
/* Reads a line that inspect_row_write() has written. Returns 0, -EINVAL if the line is not a row,
 * or -ENOMEM. Texts are cut to their size in the row, and bytes that are not printable become
 * \xNN. */
int inspect_row_read(struct inspect_row *row, const char *line, size_t len);

#endif
