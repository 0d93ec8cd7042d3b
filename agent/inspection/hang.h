/* Watches whether the workers of this node hang (--hang-timeout, --hang-rule) or write bad values
 * (--value-rule). The pure code in agent/watchdog/quiet.h and log_rules.h says for which reasons
 * the workers of this node are silent; the coordinator decides whether the job hangs (rendezvous.h,
 * rendezvous_quiet()). If the coordinator is too old for that, this node decides alone, by an
 * inspection of its own workers. */
#ifndef AGENT_HANG_H
#define AGENT_HANG_H

#include "base/error.h"
#include "inspect/inspect.h"
#include "rendezvous/types.h"

#include <uv.h>

struct hang;

/* What was found out about a hang. */
struct hang_report {
    uint64_t reasons;  /* mask of the reasons (struct rendezvous_quiet) */
    int64_t quiet_ms;  /* for how many ms there was no activity, or no line that a rule wants */
    uint32_t rank;     /* the odd rank, or some rank */
    int64_t pid;       /* its process; 0 = unknown */
    const char *what;  /* one line that names the reason and the odd rank */
    const char *lines; /* lines that say where the workers are; "" if that is not known */
};

/* What the watch for hangs calls. `rows` and `cpu_ms` have one element for each worker of the
 * node. */
struct hang_calls {
    /* Stores the processor time in ms of each worker in cpu_ms, and the number of bytes that all
     * workers have written in *output. Returns false, and stores nothing, if no worker runs or if
     * the workers are being stopped: the node cannot hang in this state. */
    bool (*sample)(void *arg, int64_t *cpu_ms, uint64_t *output);
    /* Fills in rank, local_rank, pid and host of each living worker, and returns their number. */
    size_t (*list)(void *arg, struct inspect_row *rows);
    /* Returns the rank of the worker with local rank 0. */
    uint32_t (*first_rank)(void *arg);
    /* Passes the reasons for which the workers of this node are silent to the coordinator. Returns
     * false if the coordinator does not decide, so that this node has to. */
    bool (*tell)(void *arg, const struct rendezvous_quiet *quiet);
    /* Reports a hang, which ends the round. The report is valid until the call returns. */
    void (*on_hang)(void *arg, const struct hang_report *report);
    /* Reports that no worker has been active for quiet_ms, without ending anything. Comes once
     * until a worker is active again. */
    void (*on_quiet)(void *arg, int64_t quiet_ms);
    /* Reports that a worker has broken a value rule; `what` says which one, and with which
     * value. */
    void (*on_bad_value)(void *arg, uint32_t local_rank, const char *what);
};

struct hang_options {
    int64_t limit_ms;  /* time limit of --hang-timeout; 0 = no limit */
    int64_t notice_ms; /* time of CRUN_HANG_NOTICE; 0 = on_quiet is not called */
    bool only_output; /* the field of that name in struct quiet (agent/watchdog/quiet.h) */
    char *const *hang_rules, *const *value_rules; /* as in struct agent_job */
    size_t workers;
};

/* Opens a watch for hangs, which takes no samples before hang_begin(). `calls` must stay valid
 * until the watch is closed. Returns 0 and stores the watch in *out. On error returns -ENOMEM and
 * sets err. */
int hang_open(uv_loop_t *loop, const struct hang_options *options, const struct hang_calls *calls,
              void *arg, struct hang **out, struct cr_error *err);

/* Call this when the workers of a round have been started. From now on the watch takes samples, and
 * the time without activity begins. */
void hang_begin(struct hang *h);

/* Returns the mask of the reasons for a hang that are watched for (struct rendezvous_quiet). */
uint64_t hang_reasons(const struct hang *h);

/* Call this when the coordinator has decided that the job hangs, and that this node has to report
 * it. The texts are copied. Returns true if on_hang follows, and false if the workers have gone on
 * or are being stopped. */
bool hang_decided(struct hang *h, const struct hang_report *report);

/* Call this when a worker has ended. */
void hang_worker_ended(struct hang *h, uint32_t local_rank);

/* Returns whether there are rules, so that hang_line() must be called with each line. */
bool hang_needs_lines(const struct hang *h);
/* Call this when a worker has written a line. Reports nothing within this call: a broken rule is
 * reported by the loop later. */
void hang_line(struct hang *h, uint32_t local_rank, const char *line, size_t len);

/* Closes the watch for hangs. When that is done, the watch is freed and on_close runs on the
 * loop. */
void hang_close(struct hang *h, void (*on_close)(void *arg));

#endif
