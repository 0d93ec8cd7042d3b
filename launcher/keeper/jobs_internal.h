/* The folders of kept jobs. A job's folder has these files: `command` (the command line as one line
 * of text), `console` (all output of crun and the workers), `socket` (at which the keeper listens
 * while the job runs), and, after the end, `status` (the exit status as a number). */
#ifndef LAUNCHER_KEEPER_JOBS_INTERNAL_H
#define LAUNCHER_KEEPER_JOBS_INTERNAL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define KEPT_ID_MAX   33 /* bytes of an id, NUL included */
#define KEPT_PATH_MAX 512
#define KEPT_ENDED_MAX 32 /* number of ended jobs whose folders are kept */

enum kept_state {
    KEPT_RUNNING,
    KEPT_ENDED,
    KEPT_LOST, /* the keeper is gone and has left no exit status: it was killed, or the machine was
                * restarted */
};

struct kept_job {
    char id[KEPT_ID_MAX];
    char command[256]; /* cut if it is longer */
    int64_t started_s; /* start of the job, in seconds since 1970 */
    enum kept_state state;
    int status; /* exit status; valid if `state` is KEPT_ENDED */
};

/* Writes the path of the folder that holds this user's jobs: CRUN_JOBS_DIR, or else
 * /tmp/crun-jobs-UID. Makes the folder if it is missing. Returns 0; or a negative errno, and sets
 * err, if the folder cannot be made or if other users may enter it. */
int kept_folder(char out[KEPT_PATH_MAX], struct cr_error *err);

/* Makes the folder of a new job. `name` becomes its id; if it is NULL, the id is drawn. Returns 0;
 * or a negative errno, and sets err. */
int kept_make(const char *folder, const char *name, char *const *words, char id[KEPT_ID_MAX],
              struct cr_error *err);

/* Stores the jobs of the folder in *out, which the caller frees, the oldest first. Returns 0; or a
 * negative errno, and sets err. */
int kept_list(const char *folder, struct kept_job **out, size_t *count, struct cr_error *err);

/* Removes the folders of the oldest ended jobs, so that KEPT_ENDED_MAX of them are left. */
void kept_tidy(const char *folder, const struct kept_job *jobs, size_t count);

/* Chooses the job whose id is `text` or is the only one that begins with it. If `text` is NULL,
 * chooses the only running job. Pure. Returns NULL and sets err if there is no such job, or more
 * than one. */
const struct kept_job *kept_choose(const struct kept_job *jobs, size_t count, const char *text,
                                   struct cr_error *err);

/* Opens a file of a job, with the flags of open(2). Returns the descriptor or a negative errno. */
int kept_open(const char *folder, const char *id, const char *file, int flags);

/* Opens the socket of a job: listens if `listens`, otherwise connects. Returns the descriptor or a
 * negative errno. */
int kept_socket(const char *folder, const char *id, int listens);

/* Reads the exit status of a job into *status. Returns 0 or a negative errno. */
int kept_read_status(const char *folder, const char *id, int *status);
int kept_write_status(const char *folder, const char *id, int status);

/* The keeper: runs `words` (a command line of crun) until it ends, in the folder of the job `id`.
 * `ready_fd` is the end of a pipe; the keeper writes one byte when it listens. Never returns. */
void keeper_run(const char *folder, const char *id, char **words, int ready_fd)
    __attribute__((noreturn));

/* ---- packets between a client and the keeper: a letter and a number ---- */

#define KEEPER_SIGNAL 'S' /* to the keeper: send the job this signal */
#define KEEPER_ENDED  'X' /* to the client: the job has ended with this exit status */

struct keeper_packet {
    char type;
    int32_t number;
};

#endif
