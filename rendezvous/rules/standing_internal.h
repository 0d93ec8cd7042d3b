/* What the coordinator remembers about hosts on which something goes wrong again and again. Pure: a
 * function of (record, event, now).
 *
 * A *short life* is the time of a node that was lost, or left without notice, within
 * flap_window_ms after it had joined; a host has one short life per round at most. After flap_limit
 * short lives in a row the host is slowed: its next node waits 5 s, and each further short life
 * doubles this time. After twice flap_limit short lives in a row, nodes of this host are refused
 * for flap_refusal_ms. A node that lives longer ends the row.
 *
 * A failure *begins* on a host if the first worker that failed in the round was there, and the
 * failure was charged. After aside_after failures, none of them more than aside_ms after the one
 * before, the host is set aside for aside_ms: its nodes take part only if the other nodes are fewer
 * than the job's minimum.
 *
 * All of this is forgotten when the coordinator is lost or an operator admits the host. */
#ifndef RENDEZVOUS_STANDING_INTERNAL_H
#define RENDEZVOUS_STANDING_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* limit of the number of hosts that have a record. If one more host needs a record, the record with
 * the oldest event is removed. Without the limit, nodes that invent host names could fill the
 * memory. */
#define STANDINGS_MAX 256

struct standing_rules {
    uint32_t flap_limit;  /* short lives in a row after which a host is slowed; 0 = it never is */
    int64_t flap_window_ms, flap_refusal_ms;
    uint32_t aside_after; /* failures after which a host is set aside; 0 = it never is */
    int64_t aside_ms;
};

/* The record of one host. */
struct standing {
    char *host;
    uint32_t short_lives; /* in a row */
    uint32_t failures;    /* failures that began here, in a row */
    uint64_t rounds_counted; /* number of the round of the last short life, plus 1; 0 = none */
    int64_t event_ms;     /* time of the last short life or failure */
    int64_t failed_ms;    /* time of the last failure; valid if failures is not 0 */
    int64_t slowed_until_ms, refused_until_ms, aside_until_ms; /* 0 = not */
};

struct standings {
    struct standing_rules rules;
    struct standing *hosts; /* `count` records, in the order in which they were made */
    uint32_t count, room;
};

/* What follows from an event. */
enum standing_change { STANDING_SAME, STANDING_SLOWED, STANDING_REFUSED, STANDING_ASIDE };

/* Returns the record of the host; NULL if there is none. */
struct standing *standings_find(const struct standings *t, const char *host);
/* Call this when a node that was in round number `round` is gone, life_ms after it has joined. It
 * counts a short life for the host; or, if life_ms is more than flap_window_ms, sets the host's
 * number of short lives to 0. Returns what follows for the host. If memory is short, nothing is
 * counted. */
enum standing_change standings_lost(struct standings *t, int64_t now_ms, const char *host,
                                    uint64_t round, int64_t life_ms);
/* Counts a failure that began on the host. Call this when the failure is charged. Returns
 * STANDING_ASIDE if the host is set aside from now on, else STANDING_SAME. */
enum standing_change standings_failed(struct standings *t, int64_t now_ms, const char *host);
/* Takes back what standings_failed() did for the last failure of the host: the failure is not
 * counted, and if the host was set aside because of it, it is no longer set aside. Call this when
 * the charge of the failure is refunded. */
void standings_excused(struct standings *t, const char *host);
/* Removes the record of the host. Returns false if the host has no record. */
bool standings_admit(struct standings *t, const char *host);
void standings_forget(struct standings *t); /* forgets all hosts; the rules stay */

#endif
