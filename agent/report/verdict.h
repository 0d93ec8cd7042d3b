/* The verdict: which worker failed first, of what, who failed after it, whom we stopped ourselves;
 * and the report that says so. Pure.
 *
 * The order is the kernel's order of death, refined by what workers wrote down: one that recorded its
 * error and then took seconds to end failed before those that died of its silence meanwhile. */
#ifndef AGENT_VERDICT_H
#define AGENT_VERDICT_H

#include "agent/report/error_file.h"
#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One worker that did not end well. All texts are borrowed. */
struct verdict_worker {
    uint32_t rank, local_rank;
    pid_t pid;
    int exit_code;   /* 1…255, or minus the signal */
    int core_dumped;
    int signal_sent; /* the last signal of ours that it got before it ended, or 0 */
    int timer_expired; /* its own timer (watchdog.h) was over, and so it got the signal */
    int64_t hung_ms;   /* it got it for making no step for so long … (0 = no) */
    uint64_t hung_step; /* … after this one */
    uint64_t order;  /* 1, 2, 3 … in the kernel's order of death */
    int64_t started_ns, died_ns; /* wall clock */
    struct error_file error;
    const char *error_path;  /* "" if there is no place for one */
    const char *log_folder;  /* where its files are, or NULL */
    const char *log_names;   /* "stdout.log, stderr.log" or "" */
    const char *last_words;  /* the end of its stderr, last_words_len bytes; or NULL */
    size_t last_words_len;
};

struct verdict {
    const char *title; /* the program */
    const char *host;
    const struct verdict_worker *workers; /* by local rank */
    size_t count;
    uint32_t restarts, max_restarts;
    uint64_t oom_kills; /* that our memory cgroup counted during the attempt */
};

/* The index of the worker that failed first; count > 0. */
size_t verdict_first(const struct verdict_worker *workers, size_t count);

/* We stopped it, and it had not failed of itself before. */
int verdict_is_victim(const struct verdict_worker *w);

/* Appends "rank 1 (local rank 1, pid 14598) on node1 failed first: exit code 3", one line without its
 * end. 0 or -ENOMEM, as for all below. */
int verdict_line(struct cr_buffer *out, const struct verdict *v, const struct verdict_worker *w);

/* Appends "exit code 3" or "killed by signal 11 (SIGSEGV, segmentation fault), core dumped". */
int verdict_cause(struct cr_buffer *out, const struct verdict_worker *w);

/* Appends the whole report: the line above after "crun: ", the evidence, and torchrun's box. */
int verdict_report(struct cr_buffer *out, const struct verdict *v);

#endif
