/* Decides when a node hangs: when for a time none of its workers has written output, nor used the
 * processor (unless only output counts). Pure: no I/O and no clock; the caller takes the
 * samples. */
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
    int64_t limit_ms;    /* the time without activity after which the node hangs */
    size_t workers;
    int64_t *cpu_ms;     /* [workers]: processor time of each worker in the last sample */
    uint64_t output;     /* bytes that the workers had written in the last sample */
    int64_t sampled_ms;  /* time of the last sample (ms, monotonic clock); -1 if none */
    int64_t since_ms;    /* time since which there was no activity */
};

/* Initialises *q. Returns 0 or -ENOMEM. */
int quiet_init(struct quiet *q, int64_t limit_ms, bool only_output, size_t workers);
void quiet_done(struct quiet *q);

/* Call this when workers have been started: the time without activity begins now. */
void quiet_begin(struct quiet *q, int64_t now_ms);

/* Takes a sample. cpu_ms has one element a worker: the processor time in ms that the worker has
 * used so far, with its descendants. `output` is the number of bytes that all workers have written
 * so far. Returns true if the node hangs. */
bool quiet_sample(struct quiet *q, int64_t now_ms, const int64_t *cpu_ms, uint64_t output);

/* Returns the time of the next sample. */
int64_t quiet_next_ms(const struct quiet *q);

#endif
