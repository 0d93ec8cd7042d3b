/* Watches for a hang (--hang-timeout): when no worker of this node has written output or used the
 * processor for a time, runs an inspection and reports where the workers are. */
#ifndef AGENT_HANG_H
#define AGENT_HANG_H

#include "base/error.h"
#include "inspect/inspect.h"

#include <uv.h>

struct hang;

/* What the watch calls. `rows` and `cpu_ms` have one element for each worker of the node. */
struct hang_calls {
    /* Stores the processor time in ms of each worker in cpu_ms, and the number of bytes that all
     * workers have written in *output. Returns false if no workers run that can hang. */
    bool (*sample)(void *arg, int64_t *cpu_ms, uint64_t *output);
    /* Fills in rank, local_rank, pid and host of each living worker, and returns their number. */
    size_t (*list)(void *arg, struct inspect_row *rows);
    /* Runs when the workers have been quiet for quiet_ms, which is the limit, and an inspection has
     * looked at them. `rows` has its result, as far as it could look, and is valid until the call
     * returns. */
    void (*on_hang)(void *arg, int64_t quiet_ms, struct inspect_row *rows, size_t count);
};

/* Opens a watch. The watch takes no samples before hang_begin(). only_output has the meaning that
 * it has in struct quiet (agent/watchdog/quiet.h). `calls` must stay valid. Returns 0, or -ENOMEM
 * and a text in err. */
int hang_open(uv_loop_t *loop, int64_t limit_ms, bool only_output, size_t workers,
              const struct hang_calls *calls, void *arg, struct hang **out,
              struct cr_error *err);

/* Call this when the workers of a round have been started. */
void hang_begin(struct hang *h);

/* Frees the watch; then on_close runs on the loop. */
void hang_close(struct hang *h, void (*on_close)(void *arg));

#endif
