/* Finds the verdict on a failed attempt: which worker failed first and of what, which workers
 * failed later, and which ones crun stopped. Also writes the failure report. Pure: no I/O.
 *
 * Workers are put in the kernel's order of deaths; but for a worker with an error record, the time
 * at which it wrote the record counts, not its death. Example: a worker writes its error record and
 * takes seconds to end. In these seconds other workers die, because they get no more answers from
 * it. The worker with the record has failed first, although it died last. */
#ifndef AGENT_VERDICT_DECISION_H
#define AGENT_VERDICT_DECISION_H

#include "agent/evidence/evidence.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A worker that ended with an error, or that crun stopped. The strings must be valid while a
 * function below runs. */
struct verdict_worker {
    uint32_t rank, local_rank;
    pid_t pid;
    int exit_code; /* exit code, 0 to 255; or minus the number of the signal that killed the
                    * worker */
    bool core_dumped;
    int signal_sent; /* last signal that crun sent the worker before its end; 0 if none */
    bool timer_expired; /* true if the watchdog killed the worker because one of its timers had
                         * expired */
    /* if crun killed the worker as hung: the time in ms for which the worker had made no step; else
     * 0 */
    int64_t hung_ms;
    uint64_t hung_step;          /* the last step that the worker made; valid if hung_ms > 0 */
    /* position of the worker's death in the kernel's order of deaths, counted from 1 */
    uint64_t order;
    int64_t started_ns, died_ns; /* wall clock, in ns since 1970 */
    struct error_record error;
    const char *error_path; /* path of the worker's error file; "" if it had none */
    const char *log_folder; /* path of the worker's log folder, or NULL */
    /* names of the worker's files in log_folder, such as "stdout.log, stderr.log"; "" if none */
    const char *log_names;
    const char *last_words; /* the last last_words_len bytes of the worker's stderr; NULL if they
                             * are not known */
    size_t last_words_len;
    int last_words_error; /* errno that says why the last words are lost; 0 if they are not lost */
    const char *kernel_line; /* the kernel's line about the worker's death; NULL if there is none */
    bool oom_killed;         /* true if kernel_line says that memory was short */
    bool last_words_mixed; /* true if last_words are from stdout and stderr together */
};

struct verdict {
    const char *title; /* name of the program, as torchrun's box shows it */
    const char *host;
    const struct verdict_worker *workers; /* [count], ordered by local rank */
    size_t count;
    uint32_t restarts, max_restarts;
    /* number of out-of-memory kills that the kernel counted in crun's memory cgroup in the
     * attempt */
    uint64_t oom_kills;
    const char *behind; /* one line that names the rank for which others waited; "" if no rank
                         * waited */
};

/* Returns the index of the worker that failed first. `count` must be greater than 0. */
size_t verdict_first(const struct verdict_worker *workers, size_t count);

/* Returns whether the worker is a victim: crun sent it a signal before its end, so its end does not
 * count as a failure of its own. */
bool verdict_is_victim(const struct verdict_worker *w);

/* The functions below append text and return 0 or -ENOMEM. */

/* Appends the cause of the worker's death: "exit code 3", or "killed by signal 11 (SIGSEGV,
 * segmentation fault), core dumped". */
int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w);

/* Appends one line, without a newline, on the worker `w`, which failed first: "rank 1 (local rank
 * 1, pid 14598) on node1 failed first: exit code 3". */
int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w);

/* If the worker's error record has a message, appends "; its message: '…'" with the first line of
 * that message. Otherwise appends "; its last line: '…'" with the last line of its last words; or
 * nothing if there are none. */
int verdict_last_line(struct cr_buffer *out, const struct verdict_worker *w);

/* Appends the whole report: "crun: " and the line of verdict_line() for the first failure, then the
 * evidence, then torchrun's box. */
int verdict_report(struct cr_buffer *out, const struct verdict *v);

#endif
