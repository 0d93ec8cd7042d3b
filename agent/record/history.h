/* The history of a node: its ledger (agent/report/ledger.h) and its event log. The agent calls a
 * function of this header for each thing that happens; the function notes it in the ledger and
 * writes it to the event log. */
#ifndef AGENT_HISTORY_H
#define AGENT_HISTORY_H

#include "agent/agent_job.h"
#include "agent/channel/worker_channel.h"
#include "agent/output/log_relay.h"
#include "agent/record/case_file.h"
#include "agent/report/report.h"
#include "agent/verdict/verdict.h"

#include <stdbool.h>

struct history {
    const struct agent_job *job;
    const struct worker_channels *channels; /* NULL until the agent has opened them */
    const struct log_relay *relay;          /* NULL until the agent has opened it */
    const struct case_file *case_file;
    struct event_log *log; /* NULL if there is no --event-log */
    struct ledger ledger;
    uint64_t rows_logged; /* number of rows of the ledger that were written to the log */
    bool counts_steps;    /* true if a worker has counted a step in any round so far */
};

/* Begins the ledger, and opens the event log if the job has one. The caller sets `channels` and
 * `relay` later. Returns 0; or a negative errno, and sets err. */
int history_open(struct history *h, const struct agent_job *job, const struct case_file *case_file,
                 const char *host, struct cr_error *err);
void history_close(struct history *h); /* the history may be all zeros */

void history_round(struct history *h, const struct rendezvous_round *round);
/* Notes the result of a health check: why the node is not fit, or "" if it is fit. */
void history_health(struct history *h, const char *why);
/* Notes that the workers of the round have been started. */
void history_started(struct history *h, const struct rendezvous_round *round);
/* Notes that a worker was started again alone. `restarts` is how often this has happened to the
 * worker in this round. */
void history_worker_restarted(struct history *h, uint32_t local_rank, uint32_t restarts);
void history_worker_ended(struct history *h, uint32_t local_rank, const struct worker_exit *how);
/* Notes that this node begins to stop its workers. `failures` is the number of this node's workers
 * that have failed. If it is 0, `cause` is the reason to stop; otherwise `cause` is ignored. Only
 * the first call in a round has an effect. */
void history_broken(struct history *h, uint32_t failures, enum ledger_cause cause);
void history_done(struct history *h); /* notes that all workers of this node have ended well */
void history_gone(struct history *h); /* notes that no process of the round is left */
/* Ends the ledger, and writes it to the event log with the outcome of the job, one word. */
void history_end(struct history *h, const char *outcome);

/* Fills in *out with the ledger as it is now. */
void history_read(struct history *h, struct ledger *out);

/* Appends the table "where the time went", and a NUL, if the option --summary requires it.
 * is_first_node is true if this node had group rank 0; if --summary is not given, only such a node
 * writes the table. */
void history_write_summary(const struct history *h, bool is_first_node, struct cr_buffer *out);

#endif
