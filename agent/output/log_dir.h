/* The folder of a job's logs and error files, in the layout of torchrun:
 *
 *   <base>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}
 *                              attempt_<n>/filtered_{stdout,stderr}.log
 *
 * <base> defaults to a new folder in the temp directory; "/dev/null" means that there is no folder
 * at all. attempt_<n> is emptied at each start: a new round that spends no restart (nodes came or
 * went) has the same n and replaces the files of the one before, as in torchrun. */
#ifndef AGENT_LOG_DIR_H
#define AGENT_LOG_DIR_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define LOG_PATH_MAX 4096

struct log_dir {
    char path[LOG_PATH_MAX]; /* of the job's folder, absolute; "" = there is none */
    int fd;                  /* the job's folder, or -1 */
    int attempt_fd;          /* attempt_<n>, or -1 */
    uint32_t attempt;
};

/* Makes the job's folder. `base` may be NULL (the temp directory) or "/dev/null". In its name,
 * '/', '%' and control bytes of the run id are written as %XX. Returns 0, or a negative errno with
 * a text that names the folder and the remedy. */
int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err);

/* Makes attempt_<n> with one folder per worker, and empties folders that exist. Folders of workers
 * that go on in their processes are left as they are: `stays` has a flag per local rank, or is
 * NULL. */
int log_dir_begin(struct log_dir *d, uint32_t attempt, uint32_t workers, const uint8_t *stays,
                  struct cr_error *err);

/* Opens an empty file in a worker's folder, or, with local_rank < 0, in the attempt's: for
 * appending, and for reading it back. */
int log_dir_create(const struct log_dir *d, int64_t local_rank, const char *name, int *fd,
                   struct cr_error *err);

/* Writes the path of a file of a worker that was started in `attempt`; name "" = the worker's
 * folder. Writes "" if there is no folder, or the path is too long. */
void log_dir_path(const struct log_dir *d, uint32_t attempt, uint32_t local_rank, const char *name,
                  char out[LOG_PATH_MAX]);

void log_dir_done(struct log_dir *d);

#endif
