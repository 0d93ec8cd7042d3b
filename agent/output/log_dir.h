/* Makes the folder of a job's logs and error files, in the layout of torchrun:
 *
 *   <base>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}
 *                              attempt_<n>/filtered_{stdout,stderr}.log
 *
 * <base> defaults to a new folder in the temp directory; "/dev/null" means that no folder is made.
 * attempt_<n> is emptied at each start of workers, and n counts restarts. A round that is no
 * restart (because a node came or left) has the n of the round before it, so it replaces the files
 * of that round, as in torchrun. */
#ifndef AGENT_LOG_DIR_H
#define AGENT_LOG_DIR_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define LOG_PATH_MAX 4096

struct log_dir {
    char path[LOG_PATH_MAX]; /* absolute path of the job's folder; "" = there is no folder */
    size_t base_len;         /* length of the path of a new base folder; 0 = it was given to us */
    int fd;                  /* descriptor of the job's folder, or -1 */
    int attempt_fd;          /* descriptor of attempt_<n>, or -1 */
    uint32_t attempt;
};

/* Makes the job's folder. If `base` is NULL, it makes a new base folder in the temp directory; if
 * it is "/dev/null", it makes no folder. In the folder's name, '/', '%' and control bytes of the
 * run id are written as %XX. Returns 0, or a negative errno and sets err to a text that names the
 * folder and the remedy. */
int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err);

/* Makes attempt_<n> with one folder per worker, and empties folders that exist. `stays` has one
 * flag per local rank, or is NULL: the folder of a worker whose flag is set is not emptied, because
 * that worker goes on in its process. Returns 0, or a negative errno and sets err. */
int log_dir_begin(struct log_dir *d, uint32_t attempt, uint32_t workers, const uint8_t *stays,
                  struct cr_error *err);

/* Creates an empty file in a worker's folder, or in the attempt's folder if local_rank < 0, and
 * opens it for appending and reading. Returns 0 and stores the descriptor in *fd, or returns a
 * negative errno and sets err to a text that names the file. */
int log_dir_create(const struct log_dir *d, int64_t local_rank, const char *name, int *fd,
                   struct cr_error *err);

/* Writes to `out` the path of a file of a worker that was started in `attempt`; if `name` is "",
 * the path of the worker's folder. Writes "" if there is no folder or the path is too long. */
void log_dir_path(const struct log_dir *d, uint32_t attempt, uint32_t local_rank, const char *name,
                  char out[LOG_PATH_MAX]);

/* Removes the job's folder, and the new base folder around it if log_dir_open() made one, if they
 * hold nothing but folders. Call this after a job that ended well, whose logs nobody asked for. */
void log_dir_remove_empty(const struct log_dir *d);

void log_dir_done(struct log_dir *d);

#endif
