/* Shows a snapshot as lines for a terminal. Pure: no I/O. */
#ifndef STATUS_VIEW_H
#define STATUS_VIEW_H

#include "base/buffer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct status_view {
    const json_t *snapshot;
    const json_t *before; /* an earlier snapshot, for the steps a second since then; or NULL */
    const char *run_id;   /* the job to show; NULL = the job with ranks, else the first one */
    size_t columns, rows; /* size of the terminal; rows 0 = as many lines as there are */
    size_t selected;      /* index of the selected row of the table; it is kept in range */
    bool has_escapes;     /* true: the first line and the selected row are highlighted */
    const char *footer;   /* last line, such as the list of keys; NULL for none */
};

/* Appends the lines. The first line says which rank holds the job up. A line never has more than
 * `columns` columns, and there are never more than `rows` lines. Sets v->selected to the last row
 * if it is larger. Returns 0 or -ENOMEM. */
int status_view(struct cr_buffer *out, struct status_view *v);

/* Returns the job that is shown, or NULL if the snapshot has none. */
const json_t *status_view_job(const struct status_view *v);
/* Returns the selected rank of that job, or NULL. */
const json_t *status_view_rank(const struct status_view *v);

#endif
