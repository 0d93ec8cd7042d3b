/* Rendezvous: who takes part in a job, in which round, with which rank. The calls of the room;
 * rendezvous/types.h has the values.
 *
 * A node's agent owns one `struct rendezvous`. It calls join, failed, succeeded or leave. It
 * gets on_round (start your workers with these ranks), on_stop (this round is over: stop your
 * workers, then join again) and on_end (the job is over, and how). Decisions about membership,
 * ranks, the restart budget and the outcome are taken in one place, the coordinator: a pure
 * state machine that runs on the hosting node beside the store. docs/rendezvous.md has the
 * rules.
 *
 * Every round has a key space of its own: the address in `struct rendezvous_round` leads to a
 * store that was empty when the round began. */
#ifndef RENDEZVOUS_RENDEZVOUS_H
#define RENDEZVOUS_RENDEZVOUS_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdint.h>
#include <uv.h>

struct rendezvous;

/* Called on the loop thread, one at a time, never from inside a call below. Inside a callback
 * every call below is allowed.
 *
 * The life of a node: rendezvous_join(), then on_round, then one of
 *
 *   all workers ended well   call rendezvous_succeeded(). on_end follows when all nodes have done
 *                            so, or on_stop if another node failed or was lost: all run again
 *   a worker failed          call rendezvous_failed(), stop the other workers without waiting for
 *                            on_stop, then rendezvous_join(). If the budget is spent,
 *                            on_end(FAILED) comes instead, before or after that join
 *   on_stop                  stop the workers, then rendezvous_join()
 *   on_end                   stop the workers if there are any; nothing follows */
struct rendezvous_events {
    void (*on_round)(void *arg, const struct rendezvous_round *round);

    /* The round is over. `why` is one line for the log. Between SIGTERM and SIGKILL workers get
     * at most grace_max_ms; CR_FOREVER means the job's own stop timeout. A node that is cut off
     * from the coordinator has only the rest of its lease, because after that its ranks may run
     * on other nodes. All workers must be gone before the next join. Comes once per round, and
     * not after rendezvous_failed(). Exception: an on_stop with a limit may follow at any time
     * while workers are being stopped, and then shortens their time. */
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);

    /* The last callback but on_close. `err` is never NULL. LOST: what happened, and the remedy.
     * FAILED: the first failure, as its node described it in rendezvous_failed(). SUCCEEDED:
     * empty. */
    void (*on_end)(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err);

    /* ---- any of these may be NULL ---- */

    /* The round will end soon: answer with rendezvous_change_answer(). NULL: this node may be
     * stopped at any time. */
    void (*on_change)(void *arg, const struct rendezvous_change *change);

    /* The change takes place after `step`: call rendezvous_change_ready() when every worker that
     * counts steps has made so many. on_stop follows when all nodes are ready, or after left_ms. */
    void (*on_change_at)(void *arg, uint64_t id, uint64_t step, int64_t left_ms);

    /* An operator asks this node to leave, or for the flight records of its workers. */
    void (*on_notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms,
                      const char *why);
    void (*on_dump)(void *arg, const char *why);
};

/* Checks the options as far as that is possible without asking or opening anything;
 * rendezvous_open() does the same. Returns 0, or -EINVAL with a text. */
int rendezvous_check(const struct rendezvous_options *options, struct cr_error *err);

/* Opens what this node hosts (the store's thread, the coordinator, the store of the first
 * round), but joins nothing yet. `options` and what it points to are copied; `events` is
 * borrowed. Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL… with a text; then nothing is
 * left open. */
int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err);

/* Asks to be in the next round: at the start, and again when all workers of a stopped or failed
 * round are gone. Answered by on_round or on_end. */
void rendezvous_join(struct rendezvous *r);

/* A worker of this node failed in `round`. Only a node's first failure counts; a round that is
 * not the current one is ignored. `what` is one line that other nodes may print: rank, host,
 * exit code or signal. It costs one restart of the job's budget, once per round, wherever in the
 * job workers failed. */
void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what);

/* All workers of this node ended well in `round`. Answered by on_end when the workers of all
 * nodes did, or by on_stop. */
void rendezvous_succeeded(struct rendezvous *r, uint64_t round);

/* Answers on_change: this node's furthest worker has made `step` steps, may have begun one more,
 * and no further one. -1: no worker counts steps, they may be stopped at any time. needs_ms is
 * the time that the slowest worker needs after its last step; it lengthens the notice only where
 * nodes wait to be let in. */
void rendezvous_change_answer(struct rendezvous *r, uint64_t id, int64_t step, int64_t needs_ms);

/* Answers on_change_at: this node's workers have made the step and saved. */
void rendezvous_change_ready(struct rendezvous *r, uint64_t id);

/* This node will leave within left_ms. That is announced as a change to all nodes of the round,
 * this one included. After on_stop: stop the workers, rendezvous_leave(), rendezvous_close(). */
void rendezvous_notice(struct rendezvous *r, enum rendezvous_change_kind kind, int64_t left_ms,
                       const char *why);

/* This node leaves now (its launcher got a signal). The only callbacks that may follow are
 * on_close, and an on_stop with a limit if the node is cut off while its workers end. Call it
 * before the workers are stopped, so that the other nodes stop theirs meanwhile; then stop the
 * workers; then call rendezvous_close(): only after that do the others form a round without this
 * node. What this node hosts stays open until that close. */
void rendezvous_leave(struct rendezvous *r);

/* Frees, after `on_close` (NULL is fine) has run on the loop. Allowed in every state; no other
 * callback follows. A hosting node first sends the other nodes the end of the job, and waits for
 * them to hang up, at most close_timeout_ms. */
void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg));

#endif
