/* Shows a snapshot as lines for a terminal. Pure: no I/O. */
#ifndef STATUS_VIEW_H
#define STATUS_VIEW_H

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct status_view {
    const json_t *snapshot;
    const json_t *before; /* an earlier snapshot, from which steps per second are computed; or
                           * NULL */
    const char *run_id;   /* id of the job to show; NULL = the first job with ranks, or the first
                           * job if none has ranks */
    size_t columns, rows; /* size of the terminal; rows = 0 stands for any number of rows */
    size_t selected;      /* index of the selected row of the table; status_view() corrects a too
                           * large one */
    bool has_escapes;     /* true: the first line and the selected row are highlighted */
    const char *footer;   /* last line, such as the list of keys; NULL for none */
};

/* Appends the lines that show the snapshot. The first line says which rank holds the job up. A line
 * has at most `columns` columns, and there are at most `rows` lines. If v->selected is larger than
 * the index of the last row, the function sets it to this index. Returns 0 or -ENOMEM. */
int status_view(struct cr_buffer *out, struct status_view *v);

/* Returns the job that is shown, or NULL if the snapshot has none. */
const json_t *status_view_job(const struct status_view *v);
/* Returns the selected rank of the job that is shown, or NULL if there is none. */
const json_t *status_view_rank(const struct status_view *v);

#endif
