/* The verdict on a failed attempt: which worker failed first and of what, which ones failed after
 * it, and which ones crun stopped; and the report that says so. Pure.
 *
 * Workers are ordered by the kernel's order of death. What they wrote down corrects it: a worker
 * that recorded its error and then took seconds to end failed before those that died meanwhile
 * because it no longer answered. */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include "agent/report/error_record.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A worker that ended with an error, or that crun stopped. All texts are borrowed. */
struct verdict_worker {
    uint32_t rank, local_rank;
    pid_t pid;
    int exit_code; /* 0 to 255, or minus the signal that killed it */
    bool core_dumped;
    int signal_sent;             /* the last signal that crun sent it before it ended, or 0 */
    bool timer_expired;          /* the watchdog killed it: a timer that it had set expired */
    int64_t hung_ms;             /* crun killed it: it had made no step for so long; 0 = no */
    uint64_t hung_step;          /* the last step before that */
    uint64_t order;              /* 1, 2, 3 … in the kernel's order of death */
    int64_t started_ns, died_ns; /* wall clock */
    struct error_record error;
    const char *error_path; /* "" if it was given none */
    const char *log_folder; /* or NULL */
    const char *log_names;  /* its files there: "stdout.log, stderr.log", or "" */
    const char *last_words; /* the end of its stderr, last_words_len bytes; NULL = unknown */
    size_t last_words_len;
};

struct verdict {
    const char *title; /* of the program */
    const char *host;
    const struct verdict_worker *workers; /* `count` of them, by local rank */
    size_t count;
    uint32_t restarts, max_restarts;
    uint64_t oom_kills; /* counted by our memory cgroup during the attempt */
};

/* The index of the worker that failed first; count > 0. */
size_t verdict_first(const struct verdict_worker *workers, size_t count);

/* Whether crun stopped the worker before it failed by itself. */
bool verdict_is_victim(const struct verdict_worker *w);

/* The functions below append text and return 0 or -ENOMEM. */

/* "exit code 3", or "killed by signal 11 (SIGSEGV, segmentation fault), core dumped". */
int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w);

/* "rank 1 (local rank 1, pid 14598) on node1 failed first: exit code 3", without a newline. */
int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w);

/* The whole report: the line above after "crun: ", the evidence, and torchrun's box. */
int verdict_report(struct cr_buffer *out, const struct verdict *v);

#endif
