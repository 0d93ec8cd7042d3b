/* Decides when a node hangs. It hangs if, for a certain time, no worker of it has written output or
 * used the processor; on request, only output counts. Pure: no I/O and no clock; the caller takes
 * the samples. */
#ifndef AGENT_QUIET_H
#define AGENT_QUIET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A worker that uses less than 1/QUIET_SHARE of one processor counts as waiting: libraries have
 * threads that wake up now and then although the program waits. */
#define QUIET_SHARE 100

struct quiet {
    /* true if only output counts as activity, not the use of the processor */
    bool only_output;
    int64_t limit_ms;    /* time in ms without activity after which the node hangs */
    /* time in ms between two samples; 0 = a tenth of limit_ms, at least 0.2 s and at most 10 s.
     * quiet_init() sets 0. */
    int64_t interval_ms;
    size_t workers;
    int64_t *cpu_ms;     /* [workers]: processor time in ms of each worker at the last sample */
    uint64_t output;     /* bytes of output that all workers together had written at the last
                          * sample */
    int64_t sampled_ms;  /* time of the last sample (ms, monotonic clock); -1 if there is none since
                          * quiet_begin() */
    int64_t since_ms;    /* time of the last activity, or of quiet_begin() (ms, monotonic clock) */
};

/* Initialises *q; the parameters are the fields of these names. Returns 0 or -ENOMEM. */
int quiet_init(struct quiet *q, int64_t limit_ms, bool only_output, size_t workers);
void quiet_done(struct quiet *q);

/* Call this when workers have been started: the time without activity begins now. */
void quiet_begin(struct quiet *q, int64_t now_ms);

/* Processes one sample. cpu_ms has one element for each worker: the processor time in ms that the
 * worker has used so far, with its descendants. `output` is the number of bytes that all workers
 * have written so far. Returns true if the node hangs. */
bool quiet_sample(struct quiet *q, int64_t now_ms, const int64_t *cpu_ms, uint64_t output);

/* Call this when `ms` milliseconds do not count, because nobody could see what the workers did in
 * them. The next sample is due so much later. */
void quiet_leave_out(struct quiet *q, int64_t ms);

/* Returns when the next sample has to be taken (ms, monotonic clock). */
int64_t quiet_next_ms(const struct quiet *q);

#endif
