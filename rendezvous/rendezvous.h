/* The face of the room: functions and callbacks with which a node takes part in the rendezvous of
 * its job. The rendezvous decides which nodes form a round, and which ranks their workers get.
 * rendezvous/types.h has the data types.
 *
 * A node's agent owns one `struct rendezvous`. The agent calls rendezvous_join(),
 * rendezvous_failed(), rendezvous_succeeded() or rendezvous_leave(). It gets the callbacks on_round
 * (start your workers with these ranks), on_stop (this round is over: stop your workers, and join
 * again) and on_end (the job is over, with this outcome). One place decides about membership,
 * ranks, the restart budget and the outcome: the coordinator, a pure state machine that runs on the
 * hosting node beside the store. docs/rendezvous.md has the rules.
 *
 * Every round has a key space of its own: the address in `struct rendezvous_round` leads to a store
 * that was empty when the round began. */
#ifndef RENDEZVOUS_RENDEZVOUS_H
#define RENDEZVOUS_RENDEZVOUS_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdint.h>
#include <uv.h>

struct rendezvous;

/* The callbacks of a node. They run on the loop's thread, one at a time, and never from inside a
 * rendezvous_ function. A callback may call every rendezvous_ function.
 *
 * The agent calls rendezvous_join(); on_round follows, and the agent starts its workers. What the
 * agent does next depends on what happens first:
 *
 *   all workers ended well   call rendezvous_succeeded(). on_end follows when all nodes have called
 *                            it. If another node failed or was lost before that, on_stop follows
 *                            instead, because all nodes must run the next round
 *   a worker failed          call rendezvous_failed(), stop the other workers without waiting for
 *                            on_stop, and call rendezvous_join(). If the budget is spent, on_end
 *                            (FAILED) comes instead of on_round, perhaps before that join
 *   on_stop                  stop the workers, then call rendezvous_join()
 *   on_end                   stop the workers if there are any; only on_close can follow */
struct rendezvous_events {
    void (*on_round)(void *arg, const struct rendezvous_round *round);

    /* The round is over: stop the workers. `why` is one line for the log. grace_max_ms limits the
     * grace between SIGTERM and SIGKILL; CR_FOREVER means that only the agent's own stop timeout
     * limits it. A node that is cut off from the coordinator gets the rest of its lease as the
     * limit, because after its lease its ranks may run on other nodes. All workers must be gone
     * before the next rendezvous_join().
     *
     * on_stop comes at most once per round, and not after rendezvous_failed(), with one exception:
     * while workers are being stopped, a further on_stop with a limit may come, which shortens
     * their grace. */
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);

    /* The job is over; only on_close can follow. `err` is never NULL. If the outcome is LOST, `err`
     * describes what happened and the remedy. If the outcome is FAILED, `err` has the job's first
     * failure, as the failed node described it in rendezvous_failed(). If the outcome is SUCCEEDED,
     * `err` is empty. */
    void (*on_end)(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err);

    /* ---- each of the callbacks below may be NULL ---- */

    /* The round will end soon: answer with rendezvous_change_answer(). If this callback is NULL,
     * the rendezvous answers that no worker counts steps, which means that the workers can be
     * stopped at any time. */
    void (*on_change)(void *arg, const struct rendezvous_change *change);

    /* All ranks stop for the change after the step `step`. When every worker of this node that
     * counts steps has made that step, call rendezvous_change_ready(). on_stop follows when all
     * nodes are ready, or after left_ms milliseconds if they are not. */
    void (*on_change_at)(void *arg, uint64_t id, uint64_t step, int64_t left_ms);

    /* Says how long the workers of this node may run if this process stands still: until until_ms
     * (ms, monotonic clock). After that time other nodes may get the workers' ranks. While the
     * coordinator answers, this callback is called again and again, each time with a later
     * until_ms. If no lease runs, until_ms is CR_FOREVER. Must not call a rendezvous_ function. */
    void (*on_lease)(void *arg, int64_t until_ms);

    /* on_notice: an operator requests that this node gives notice (rendezvous_notice()) and leaves.
     * on_dump: an operator requests the flight records of this node's workers. */
    void (*on_notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why);
    void (*on_dump)(void *arg, const char *why);

    /* An inquiry has begun: call rendezvous_progress() for each process group of each worker, and
     * then once with NULL. When the inquiry is over, on_behind is called: is_found is true if some
     * rank waits in an operation; `what` is one line that names the rank for which others wait. */
    void (*on_ask_progress)(void *arg, uint64_t inquiry);
    void (*on_behind)(void *arg, bool is_found, const char *what);

    /* The coordinator asks what the workers of this round do: call rendezvous_rank() for each of
     * them. This callback may be NULL. */
    void (*on_ask_ranks)(void *arg, uint64_t round);

    /* An operator has ordered an inspection. Answer with rendezvous_row() and
     * rendezvous_inspected(), with the same id, within seconds. If this callback is NULL, the
     * answer is that there are no workers. */
    void (*on_inspect)(void *arg, uint64_t id, const char *why);

    /* The coordinator has decided that the job hangs (rendezvous_quiet()). Called once for each
     * piece of the report. If `decides` is true, call rendezvous_failed() after the last piece,
     * unless the workers of this node have gone on since; in that case call rendezvous_quiet(). */
    void (*on_hung)(void *arg, const struct rendezvous_hung *hung);

    /* The coordinator begins a paired test with another node. Answer with rendezvous_paired(). If
     * an earlier test still runs, end it without an answer. */
    void (*on_pair)(void *arg, const struct rendezvous_pair *pair);

    /* This node or another node of the job has called rendezvous_failure(). */
    void (*on_failure)(void *arg, const struct rendezvous_failure *failure);
};

/* Checks the options without resolving a name or opening a socket; rendezvous_open() makes the same
 * checks first. Returns 0, or -EINVAL and sets err to a text that names the wrong option. */
int rendezvous_check(const struct rendezvous_options *options, struct cr_error *err);

/* If this node hosts, opens what it hosts: the store's thread, the coordinator, and the store of
 * the first round. Does not connect or join yet. `options` and the texts in it are copied; `events`
 * must live until on_close. Returns 0, or a negative errno such as -EADDRINUSE, -EADDRNOTAVAIL or
 * -EINVAL and a text in err; on error everything is closed again. */
int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err);

/* If this node hosts the coordinator, calls `events` for its jobs and their nodes (server.h) and
 * returns true. Otherwise returns false. */
struct rendezvous_status_events;
bool rendezvous_visit(const struct rendezvous *r, const struct rendezvous_status_events *events,
                      void *arg);

/* Call this when somebody looks at a snapshot. If this node hosts the coordinator,
 * rendezvous_visit() calls on_rank for workers of all nodes from about a second later on, for a
 * minute. */
void rendezvous_watch_ranks(struct rendezvous *r);

/* Requests a place in the next round. Call this at the start; and after a round was stopped or has
 * failed, when its workers are gone, except for `kept` workers that wait in their processes for the
 * next round. on_round or on_end follows. */
void rendezvous_join(struct rendezvous *r, uint32_t kept);

/* Notes the result of this node's health check: why the node is not fit, or "" if it is fit. Call
 * this before rendezvous_join(). A node that is not fit gets no place in a round; spares that are
 * fit get it. Call this also if the result changes while the node waits: once the node is fit, it
 * may get a place. */
void rendezvous_set_unfit(struct rendezvous *r, const char *why);

/* Reports that a worker of this node has failed in `round`. Only a node's first failure in a round
 * counts; a failure in a round that is not the current one is ignored. `what` is one line that
 * other nodes may log: rank, host, exit code or signal. The first failure of a round on any node
 * costs one restart of the job's budget; further failures in the round cost nothing. If a node of
 * the round has gone, or goes soon after the failure, that excuses the failure, and even the first
 * one costs nothing. If `blame` is RENDEZVOUS_KILLED, this whole node may be about to end; if the
 * node goes within KILLED_MS (coordinator/charge.c), that excuses the failure, too. If `blame` is
 * RENDEZVOUS_FINAL, the job fails even if restarts are left, unless the failure is excused. */
void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what,
                       enum rendezvous_blame blame);

/* Reports that all workers of this node have ended well in `round`. When all nodes have called this
 * function, on_end follows. If the round has to be repeated, on_stop follows instead. */
void rendezvous_succeeded(struct rendezvous *r, uint64_t round);

/* Reports that this process or its machine stood still. Call this before any other event is
 * handled. slept_ms is the time in ms for which the machine was suspended; the monotonic clock does
 * not count this time. If the fence of this node's lease has passed, on_stop runs inside this
 * call. */
void rendezvous_stood_still(struct rendezvous *r, int64_t slept_ms);

/* Answers on_change. `step` is the number of steps that this node's furthest worker has made; that
 * worker may have begun one more step, but begins no other before on_change_at. -1 means that no
 * worker counts steps, so that all can be stopped at any time. needs_ms is the time that the
 * slowest worker needs after its last step, for a checkpoint for example. If the round ends because
 * nodes wait to join, the time until on_stop is lengthened by needs_ms if necessary. If the round
 * ends because a node leaves, that time is not lengthened. */
void rendezvous_change_answer(struct rendezvous *r, uint64_t id, int64_t step, int64_t needs_ms);

/* Answers on_change_at: all workers of this node that count steps have made the agreed step, and
 * have saved their checkpoints. */
void rendezvous_change_ready(struct rendezvous *r, uint64_t id);

/* Announces that this node will leave within left_ms milliseconds. The coordinator announces the
 * change to all nodes of the round, also to this one. When on_stop comes, stop the workers; then
 * call rendezvous_leave() and rendezvous_close(). */
void rendezvous_notice(struct rendezvous *r, enum rendezvous_change_kind kind, int64_t left_ms,
                       const char *why);

/* Tells all nodes of the job about a worker of this node that has failed. Call it before
 * rendezvous_failed(). offset_ns and offset_error_ns in `failure` are ignored. */
void rendezvous_failure(struct rendezvous *r, const struct rendezvous_failure *failure);
/* Requests an inquiry, which finds out for which rank others wait. on_ask_progress and on_behind
 * follow on all nodes, unless the coordinator is too old to know inquiries. */
void rendezvous_inquire(struct rendezvous *r);
/* Answers on_ask_progress; `inquiry` is the argument of that callback. `p` is NULL in the last
 * call. */
void rendezvous_progress(struct rendezvous *r, uint64_t inquiry,
                         const struct rendezvous_progress *p);

/* Answers on_ask_ranks: call this once for each worker of this node. */
void rendezvous_rank(struct rendezvous *r, const struct rendezvous_rank *w);

/* Reports for which reasons the workers of this node may hang. Call this when a mask of the report
 * changes. If all nodes that watch for a reason are silent, and the reason is broken on one of
 * them, the coordinator orders an inspection on all nodes (on_inspect), and on_hung follows.
 * Returns false if the coordinator does not know such reports; in that case this node has to decide
 * by itself. */
bool rendezvous_quiet(struct rendezvous *r, const struct rendezvous_quiet *quiet);

/* Answers on_pair: `why` says why the paired test `id` has failed, or is "" if it has passed. */
void rendezvous_paired(struct rendezvous *r, uint64_t id, const char *why);

/* Answer on_inspect: one call of rendezvous_row() for each set of workers at the same place, then
 * rendezvous_inspected(). */
void rendezvous_row(struct rendezvous *r, uint64_t id, const struct rendezvous_row *row);
void rendezvous_inspected(struct rendezvous *r, uint64_t id, uint32_t rows);

/* Reports that this node leaves now, because its launcher got a signal. Call it before you stop the
 * workers, so that the other nodes stop their workers at the same time. When the workers are gone,
 * call rendezvous_close(): only after that do the other nodes form a round without this node. After
 * rendezvous_leave() only two callbacks can follow: on_close, and an on_stop with a limit if the
 * node is cut off while its workers end. What this node hosts stays open until
 * rendezvous_close(). */
void rendezvous_leave(struct rendezvous *r);

/* Closes everything, calls `on_close` from the loop (unless it is NULL), and frees `r`. This
 * function is allowed in every state; no other callback follows. A hosting node sends the end of
 * the job to the other nodes. If it also hosts jobs of other launchers, it waits until these are
 * over. After that it waits for at most close_timeout_ms until the nodes have closed their
 * connections. */
void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg));

/* Call this if the launcher gets a signal between rendezvous_close() and on_close. A node that
 * hosts jobs of other launchers waits in this time until these jobs are over. This call ends the
 * wait: the node says goodbye to the nodes of these jobs, and on_close follows soon. */
void rendezvous_hasten_close(struct rendezvous *r);

#endif
