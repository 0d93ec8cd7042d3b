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
    uint32_t again; /* number of earlier attempts of this node with the same number of restarts */
};

#define LOG_ATTEMPT_MAX 40 /* bytes of the name of an attempt's folder, with its NUL */

struct log_dir {
    char path[LOG_PATH_MAX]; /* absolute path of the job's folder; "" = there is no folder */
    size_t base_len;         /* length in bytes of the path of the base folder, if log_dir_open()
                              * made that folder; 0 if the caller gave it */
    int fd;                  /* descriptor of the job's folder, or -1 */
    int attempt_fd;          /* descriptor of the current attempt's folder, or -1 */
    struct log_attempt attempt; /* the current attempt; valid if has_attempt */
    bool has_pipes;             /* true if the job's folder is in a file system with named pipes */
    bool has_attempt;           /* true if log_dir_begin() has been called */
};

/* Makes the job's folder in the folder `base`. If `base` is NULL, first makes a new base folder in
 * the temp directory. If `base` is "/dev/null", makes no folder. In the folder's name, '/', '%' and
 * control bytes of the run id are written as %XX. Returns 0, or a negative errno and sets err to a
 * text that names the folder and the remedy. */
int log_dir_open(struct log_dir *d, const char *base, const char *run_id, struct cr_error *err);

/* Call this at the beginning of a round in which this node starts at least one worker. `restart` is
 * the number of restarts that the job has had. Makes the folder of a new attempt, and in it one
 * folder for each local rank i for which starts[i] is true. `starts` has `workers` elements.
 * Returns 0; or a negative errno, and sets err. */
int log_dir_begin(struct log_dir *d, uint32_t restart, uint32_t workers, const bool *starts,
                  struct cr_error *err);

/* Call this before a worker is started again in the current attempt. Makes the folders of the
 * workers i for which starts[i] is true, if they are missing. Returns 0; or a negative errno, and
 * sets err. */
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

/* one message of a Unix socket can carry this number of descriptors (SCM_MAX_FD) */
#define LOG_DIR_REMOVED_MAX 253

/* Descriptors of folders that have been removed. The file system frees the blocks of such a folder
 * when its last descriptor is closed. That can take long: ext4 that is mounted with "discard" and
 * without a journal waits for the disk, about 0.1 ms for each folder. */
struct log_dir_removed {
    int fds[LOG_DIR_REMOVED_MAX];
    size_t count;
};

/* Call this when a job has ended well and the user has not requested logs. If the job's folder
 * contains nothing but folders, removes it, and also the base folder if log_dir_open() made that.
 * Adds descriptors of removed folders to *out, which the caller closes; `out` must be
 * zero-initialised. After this call, only log_dir_done() may be called. */
void log_dir_remove_empty(struct log_dir *d, struct log_dir_removed *out);

void log_dir_done(struct log_dir *d);

#endif
