/* The folder of a job's logs and error files, torchrun's tree:
 *
 *   <base>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}
 *                              attempt_<n>/filtered_{stdout,stderr}.log
 *
 * <base> defaults to a new folder in the temp directory, and "/dev/null" means no folder at all.
 * attempt_<n> is begun anew at each start: a restart that spends nothing of the budget (nodes came or
 * went) has the same n and takes the place of the one before, as in torchrun. */
#ifndef AGENT_LOG_DIR_H
#define AGENT_LOG_DIR_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define LOG_PATH_MAX 4096

struct log_dir {
    char path[LOG_PATH_MAX]; /* absolute, of the job's folder; "" = there is none */
    int fd;                  /* of it, or -1 */
    int attempt_fd;          /* of attempt_<n>, or -1 */
    uint32_t attempt;
};

/* `base` may be NULL (the temp directory) or "/dev/null". A '/' in the run id becomes "%2F".
 * Returns 0, or a negative errno with a text that names the folder and the remedy. */
int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err);

/* Makes attempt_<n> with one folder a worker, removing what was there; but the folders of workers that
 * go on in their processes (`stays`, one a local rank, or NULL for none) are left as they are. */
int log_dir_begin(struct log_dir *d, uint32_t attempt, uint32_t workers, const uint8_t *stays,
                  struct cr_error *err);

/* Opens an empty file of a worker's, or with local_rank < 0 of the attempt's: for appending, and for
 * reading it back. */
int log_dir_create(const struct log_dir *d, int64_t local_rank, const char *name, int *fd,
                   struct cr_error *err);

/* The path of a worker's file (name "" = its folder) in the attempt in which it was started; "" where
 * there is no folder or it is too long. */
void log_dir_path(const struct log_dir *d, uint32_t attempt, uint32_t local_rank, const char *name,
                  char out[LOG_PATH_MAX]);

void log_dir_done(struct log_dir *d);

#endif
