/* Finds the verdict on a failed attempt: which worker failed first and of what, which workers
 * failed later, and which ones crun stopped. Also writes the failure report. Pure: no I/O.
 *
 * Workers are put in the kernel's order of deaths, corrected by their error records. Example: a
 * worker writes its error record and takes seconds to end. Other workers die in these seconds,
 * because it no longer answers them. The worker with the record has failed first, although it died
 * last. */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include "agent/report/error_record.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A worker that ended with an error, or that crun stopped. The strings must be valid during each
 * call. */
struct verdict_worker {
    uint32_t rank, local_rank;
    pid_t pid;
    int exit_code; /* exit code, 0 to 255; or minus the number of the signal that killed it */
    bool core_dumped;
    int signal_sent;             /* last signal that crun sent it before it ended, or 0 */
    bool timer_expired; /* true if the watchdog killed it because a timer that it had set expired */
    /* if crun killed it as hung: the time in ms for which it had made no step; else 0 */
    int64_t hung_ms;
    uint64_t hung_step;          /* the last step that the worker made; valid if hung_ms > 0 */
    /* number of its death in the kernel's order of deaths, from 1 */
    uint64_t order;
    int64_t started_ns, died_ns; /* wall clock, in ns since 1970 */
    struct error_record error;
    const char *error_path; /* path of its error file; "" if it had none */
    const char *log_folder; /* path of its log folder, or NULL */
    /* names of its files in log_folder, such as "stdout.log, stderr.log"; "" if there are none */
    const char *log_names;
    const char *last_words; /* last bytes of its stderr, last_words_len of them; NULL if they are
                             * not known */
    size_t last_words_len;
    int last_words_error; /* errno why its last words are lost; 0 = they are not */
    bool last_words_mixed; /* they are those of stdout and stderr together */
};

struct verdict {
    const char *title; /* name of the program, as torchrun's box shows it */
    const char *host;
    const struct verdict_worker *workers; /* [count], ordered by local rank */
    size_t count;
    uint32_t restarts, max_restarts;
    uint64_t oom_kills; /* number of kills that crun's memory cgroup counted during the attempt */
};

/* Returns the index of the worker that failed first. `count` must be greater than 0. */
size_t verdict_first(const struct verdict_worker *workers, size_t count);

/* Returns whether crun sent the worker a signal before it ended, so that its end is not a failure
 * of its own. */
bool verdict_is_victim(const struct verdict_worker *w);

/* The functions below append text and return 0 or -ENOMEM. */

/* Appends the cause of the worker's death: "exit code 3", or "killed by signal 11 (SIGSEGV,
 * segmentation fault), core dumped". */
int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w);

/* Appends one line, without a newline, on the worker `w`, which failed first: "rank 1 (local rank
 * 1, pid 14598) on node1 failed first: exit code 3". */
int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w);

/* Appends "; its message: '…'" or "; its last line: '…'" with the first line of the worker's error
 * record, or the last line that it wrote. Appends nothing if there is neither. */
int verdict_last_line(struct cr_buffer *out, const struct verdict_worker *w);

/* Appends the whole report: "crun: " and the line of verdict_line() for the first failure, then the
 * evidence, then torchrun's box. */
int verdict_report(struct cr_buffer *out, const struct verdict *v);

#endif
