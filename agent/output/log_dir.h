/* Makes the folder of a job's logs and error files, in the layout of torchrun:
 *
 *   <base>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}
 *                              attempt_<n>/filtered_{stdout,stderr}.log
 *
 * <base> defaults to a new folder in the temp directory; "/dev/null" means that no folder is made.
 * n counts restarts. A round that is no restart (because a node came or left) has the n of the
 * round before it. If this node starts workers in such a round, their folder is attempt_<n>.1; in
 * the next such round, attempt_<n>.2; and so on. So no folder is used twice, and no log is lost. */
#ifndef AGENT_LOG_DIR_H
#define AGENT_LOG_DIR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_PATH_MAX 4096

/* Names an attempt's folder: attempt_<restart>, or attempt_<restart>.<again> if again > 0. */
struct log_attempt {
    uint32_t restart;
    uint32_t again; /* how many times this node has already started workers with this number of
                     * restarts */
};

#define LOG_ATTEMPT_MAX 40 /* bytes of the name of an attempt's folder, with its NUL */

struct log_dir {
    char path[LOG_PATH_MAX]; /* absolute path of the job's folder; "" = there is no folder */
    size_t base_len;         /* length in bytes of the path of the base folder, if log_dir_open()
                              * made that folder; 0 if the caller gave it */
    int fd;                  /* descriptor of the job's folder, or -1 */
    int attempt_fd;          /* descriptor of the current attempt's folder, or -1 */
    struct log_attempt attempt; /* the current attempt; valid if has_attempt */
    bool has_attempt;           /* true if log_dir_begin() has been called */
};

/* Makes the job's folder in the folder `base`. If `base` is NULL, first makes a new base folder in
 * the temp directory. If `base` is "/dev/null", makes no folder. In the folder's name, '/', '%' and
 * control bytes of the run id are written as %XX. Returns 0, or a negative errno and sets err to a
 * text that names the folder and the remedy. */
int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err);

/* Call this if at least one worker is started in a round. Begins the attempt of a round before
 * which the job has restarted `restart` times: makes the attempt's folder, and in it one folder for
 * each local rank i for which starts[i] is true. `starts` has `workers` elements. Returns 0; or a
 * negative errno, and sets err. */
int log_dir_begin(struct log_dir *d, uint32_t restart, uint32_t workers, const bool *starts,
                  struct cr_error *err);

/* Makes the missing folders of the workers i for which starts[i] is true, in the attempt that has
 * begun. Call this before a worker is started again while its attempt goes on. Returns 0; or a
 * negative errno, and sets err. */
int log_dir_add_workers(const struct log_dir *d, uint32_t workers, const bool *starts,
                        struct cr_error *err);

/* Creates a file in a worker's folder, or in the attempt's folder if local_rank < 0, and opens it
 * for appending and reading. If the file exists already, its contents stay. Returns 0 and stores
 * the descriptor in *fd, or returns a negative errno and sets err to a text that names the file. */
int log_dir_create(const struct log_dir *d, int64_t local_rank, const char *name, int *fd,
                   struct cr_error *err);

/* Opens a worker's folder in the current attempt. Returns the descriptor, or -1 on error. */
int log_dir_open_worker(const struct log_dir *d, uint32_t local_rank);

/* Writes to `out` the path of the file `name` in the folder of a worker that was started in
 * `attempt`; if `name` is "", the path of that folder. Writes "" if the job has no folder or if the
 * path is too long. */
void log_dir_path(const struct log_dir *d, struct log_attempt attempt, uint32_t local_rank,
                  const char *name, char out[LOG_PATH_MAX]);

/* Call this when a job has ended well and nobody has requested logs. If the job's folder contains
 * nothing but folders, removes it. Does the same with the new base folder around it, if
 * log_dir_open() made one. */
void log_dir_remove_empty(const struct log_dir *d);

void log_dir_done(struct log_dir *d);

#endif
