/* Folds equal lines of several workers into one (--fold): a line waits for FOLD_MS at most, and
 * each worker that writes an equal line in that time joins it. The order of each worker's lines
 * stays as it was. Pure: no clock; the caller passes the time. */
#ifndef AGENT_FOLD_H
#define AGENT_FOLD_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define FOLD_MS        500               /* longest time in ms that a line waits for equal ones */
#define FOLD_LINES_MAX 4096              /* limit of the number of lines that wait */
#define FOLD_BYTES_MAX ((size_t) 4 << 20) /* limit of the bytes of all lines that wait */

struct fold;

/* A line that is taken out of a fold. It is valid until the next call for the fold. */
struct fold_line {
    uint32_t kind;         /* as given to fold_add() */
    const char *text;
    size_t len;
    const uint8_t *joined; /* [workers]: 1 for each worker that wrote the line */
    uint32_t count;        /* number of workers that wrote the line */
};

/* Makes a fold for workers with the local ranks 0 to workers - 1. Returns NULL if memory is
 * short. */
struct fold *fold_new(uint32_t workers);
void fold_free(struct fold *f);

/* Adds a line of a worker. Only lines of one `kind` are compared with each other; `wanted` is the
 * number of workers that write lines of this kind. Returns 0, or -ENOMEM if the line is lost. */
int fold_add(struct fold *f, uint32_t kind, uint32_t wanted, uint32_t local_rank, const char *text,
             size_t len, int64_t now_ms);

/* Takes the oldest line out of the fold if no further worker can join it: all have written it, its
 * time is over, or too many lines wait. If `all` is true, takes it out in any case. Returns true
 * and stores the line in *out; or false if no line was taken out. */
bool fold_take(struct fold *f, int64_t now_ms, bool all, struct fold_line *out);

/* Returns the time at which the oldest line must be taken out, in ms of the same clock as now_ms;
 * CR_FOREVER if the fold has no line. */
int64_t fold_due_ms(const struct fold *f);

/* Appends the numbers numbers[i] of all i with joined[i] != 0 as ranges: "0-3,6". The numbers must
 * ascend with i. Returns 0 or -ENOMEM. */
int fold_ranks(struct cr_buffer *out, const uint8_t *joined, const uint32_t *numbers,
               uint32_t workers);

#endif
