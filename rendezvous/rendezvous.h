/* Rendezvous: who takes part, in which round, with which rank. The room's front door.
 *
 * A node's agent owns one `struct rendezvous`. It says *join*, *failed*, *succeeded* or *leave*; it is
 * told *round* (start your workers with these ranks), *stop* (this round is over: stop your workers,
 * then join again) and *end* (the job is over, and how). Decisions (membership, ranks, the restart
 * budget, the verdict) are taken in one place, the coordinator, a pure state machine that runs on
 * the hosting node beside the store; see docs/rendezvous.md.
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

/* Called on the loop thread, one at a time, never from inside a call below. Inside a callback every
 * call below is allowed.
 *
 * A node's life: join -> on_round -> one of
 *   all workers ended well   rendezvous_succeeded(), then on_end (all nodes did), or on_stop (a node
 *                            failed or was lost meanwhile: everybody runs again), then join
 *   a worker failed          rendezvous_failed(), stop the other workers without being told, then
 *                            join. If the budget is spent, on_end(FAILED) comes instead, before or
 *                            after that join
 *   on_stop                  stop the workers, then join
 *   on_end                   stop the workers if there are any; nothing follows */
struct rendezvous_events {
    void (*on_round)(void *arg, const struct rendezvous_round *round);
    /* The round is over. `why` is one line for the log. Workers get at most grace_max_ms between
     * SIGTERM and SIGKILL (CR_FOREVER: the job's own stop timeout): a node that is cut off from the
     * coordinator has only the rest of its lease, for then its ranks run elsewhere. All of them must
     * be gone before the next join. Comes once a round, and not after rendezvous_failed(), except
     * that a bounded one (grace_max_ms < CR_FOREVER) may follow at any time while workers are being
     * stopped: then hasten. */
    void (*on_stop)(void *arg, int64_t grace_max_ms, const char *why);
    /* Last callback but on_close's. `err` is never NULL: for LOST what happened and the remedy; for
     * FAILED the first failure as its node told it (`what` of rendezvous_failed); else empty. */
    void (*on_end)(void *arg, enum rendezvous_outcome outcome, const struct cr_error *err);

    /* Any of these may be NULL.
     * The round is to end soon: answer with rendezvous_change_answer() (NULL: "at any time"). */
    void (*on_change)(void *arg, const struct rendezvous_change *change);
    /* It ends once every worker that counts steps has made `step` of them: say rendezvous_change_ready()
     * then. on_stop follows, when all nodes are ready or after left_ms. */
    void (*on_change_at)(void *arg, uint64_t id, uint64_t step, int64_t left_ms);
    /* An operator asks this node to go away, or for its workers' flight records. */
    void (*on_notice)(void *arg, enum rendezvous_change_kind kind, int64_t left_ms, const char *why);
    void (*on_dump)(void *arg, const char *why);
};

/* What can be said of the options alone: nothing is asked, nothing is opened. rendezvous_open() says the
 * same. Returns 0, or -EINVAL with a text. */
int rendezvous_check(const struct rendezvous_options *options, struct cr_error *err);

/* Opens what this node hosts (the store's thread, the coordinator, the first round's store) but joins
 * nothing yet. `options` and what it points to are copied; `events` is borrowed.
 * Returns 0, or -EADDRINUSE, -EADDRNOTAVAIL, -EINVAL… with a text; then nothing is left open. */
int rendezvous_open(uv_loop_t *loop, const struct rendezvous_options *options,
                    const struct rendezvous_events *events, void *arg, struct rendezvous **out,
                    struct cr_error *err);

/* Asks to be in the next round: at the start, and again once all workers of a stopped or failed
 * round are gone. Answered by on_round or on_end. */
void rendezvous_join(struct rendezvous *r);

/* A worker of this node failed in `round` (first failure of the node only; a round that is no longer
 * ours is ignored). `what` is one line that other nodes may print: rank, host, exit code or signal.
 * Spends one restart of the job's budget, once a round, wherever the failure was. */
void rendezvous_failed(struct rendezvous *r, uint64_t round, const char *what);

/* All workers of this node ended well in `round`. Answered by on_end once all nodes said so, or by
 * on_stop. */
void rendezvous_succeeded(struct rendezvous *r, uint64_t round);

/* Answers on_change: the furthest of this node's workers has made `step` steps and may have begun one
 * more, but no further; -1: none counts steps, they may be stopped at any time. needs_ms is what the
 * slowest needs after its last step; it lengthens the notice only where nodes are let in. */
void rendezvous_change_answer(struct rendezvous *r, uint64_t id, int64_t step, int64_t needs_ms);

/* Answers on_change_at: this node's workers have done what the change asked for. */
void rendezvous_change_ready(struct rendezvous *r, uint64_t id);

/* This node goes away within left_ms: announced to all nodes of the round, this one included, as a
 * change. Once on_stop has come: stop the workers, rendezvous_leave(), rendezvous_close(). */
void rendezvous_notice(struct rendezvous *r, enum rendezvous_change_kind kind, int64_t left_ms,
                       const char *why);

/* This node goes away (a signal to the launcher); no callback follows but on_close's, and a bounded
 * on_stop if the node is cut off while its workers end. Call it at once,
 * so that the other nodes stop too; stop the workers; then rendezvous_close(): only then do the
 * others form a round without this node. What this node hosts stays open until that close. */
void rendezvous_leave(struct rendezvous *r);

/* Frees, after the loop has run `on_close` (NULL is fine). Allowed in every state; no callback but
 * on_close follows. A host tells the other nodes first, and waits for them to hang up, at most
 * close_timeout_ms. */
void rendezvous_close(struct rendezvous *r, void (*on_close)(void *arg));

#endif
