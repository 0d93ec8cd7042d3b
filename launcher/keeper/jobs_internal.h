/* Functions for the folders of kept jobs. A job's folder has these files: `command` (the command
 * line as one line of text), `console` (all output of crun and the workers), `socket` (at which the
 * keeper listens while the job runs), and, after the end of the job, `status` (the exit status as a
 * number). */
#ifndef LAUNCHER_KEEPER_JOBS_INTERNAL_H
#define LAUNCHER_KEEPER_JOBS_INTERNAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEPT_ID_MAX   33 /* bytes of an id, NUL included */
#define KEPT_PATH_MAX 512
#define KEPT_ENDED_MAX 32 /* number of ended jobs whose folders are kept */

enum kept_state {
    KEPT_RUNNING,
    KEPT_ENDED,
    KEPT_LOST, /* the keeper has ended without writing an exit status: it was killed, or the machine
                * was restarted */
};

struct kept_job {
    char id[KEPT_ID_MAX];
    char command[256]; /* cut if it is longer */
    int64_t started_s; /* start of the job, in seconds since 1970 */
    enum kept_state state;
    int status; /* exit status; valid if `state` is KEPT_ENDED */
};

/* Writes to `out` the path of the folder that holds this user's jobs: the value of CRUN_JOBS_DIR
 * or, if it is not set, /tmp/crun-jobs-UID. Makes the folder if it is missing. Returns 0; or a
 * negative errno, and sets err, if the folder cannot be made or if other users may enter it. */
int kept_folder(char out[KEPT_PATH_MAX], struct cr_error *err);

/* Makes the folder of a new job, whose command line is `words`. The job's id is `name` or, if that
 * is NULL, a random one; it is stored in `id`. Returns 0; or a negative errno, and sets err. */
int kept_make(const char *folder, const char *name, char *const *words, char id[KEPT_ID_MAX],
              struct cr_error *err);

/* Stores the jobs of the folder in *out, an array that the caller frees, and their number in
 * *count. The oldest job comes first. Returns 0; or a negative errno, and sets err. */
int kept_list(const char *folder, struct kept_job **out, size_t *count, struct cr_error *err);

/* Removes the folders of jobs that have ended, the oldest first, until KEPT_ENDED_MAX of them are
 * left. */
void kept_tidy(const char *folder, const struct kept_job *jobs, size_t count);

/* Returns the job that `text` means: the one whose id is `text`, or the only one whose id begins
 * with `text`. If `text` is NULL, returns the only running job. If there is no such job, or more
 * than one, returns NULL and sets err. Pure. */
const struct kept_job *kept_choose(const struct kept_job *jobs, size_t count, const char *text,
                                   struct cr_error *err);

/* Opens a file of a job, with the flags of open(2). Returns the descriptor or a negative errno. */
int kept_open(const char *folder, const char *id, const char *file, int flags);

/* Opens the socket of a job: if `listens` is 1, to listen at it; otherwise connects to it. Returns
 * the descriptor or a negative errno. */
int kept_socket(const char *folder, const char *id, int listens);

/* Reads the exit status of a job into *status. Returns 0 or a negative errno. */
int kept_read_status(const char *folder, const char *id, int *status);
int kept_write_status(const char *folder, const char *id, int status);

/* The main function of the keeper: runs `words`, a command line of crun, as the job `id` until it
 * has ended. If `takes_input` is true, crun's stdin is a pipe with what clients send; otherwise it
 * is /dev/null. `ready_fd` is the write end of a pipe, to which the keeper writes one byte when it
 * listens. Never returns. */
void keeper_run(const char *folder, const char *id, char **words, bool takes_input, int ready_fd)
    __attribute__((noreturn));

/* ---- packets between a client and the keeper: a letter, followed by a number or by input ---- */

#define KEEPER_SIGNAL 'S' /* to the keeper: send the job this signal */
#define KEEPER_INPUT  'I' /* to the keeper: bytes for the job's stdin, at most KEEPER_INPUT_MAX; no
                           * bytes mean the end of stdin. The client may send one such packet for
                           * each KEEPER_CREDIT that it has received. */
#define KEEPER_ENDED  'X' /* to the client: the job has ended with this exit status */
#define KEEPER_CREDIT 'C' /* to the client: it may send one KEEPER_INPUT. Older keepers never send
                           * this packet. */
#define KEEPER_FULL   'F' /* to the client: the keeper closes the connection, because as many other
                           * clients are connected as it serves; the number says how many */

#define KEEPER_INPUT_MAX 4096

struct keeper_packet {
    char type;
    int32_t number;
};

#endif
