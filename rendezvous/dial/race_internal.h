/* Decides which of a host's addresses a node tries, and when. Pure.
 *
 * A name may have several addresses, some of which are of no use: the packets to them are lost, or
 * another program listens there. So all addresses are tried side by side. The next address is
 * started RACE_NEXT_MS after the previous one, or as soon as one has failed. The first address from
 * which WELCOME comes wins. An established connection does not decide, because the other end may be
 * any program. A coordinator that refuses the node wins only if no other address is left, or if
 * RACE_REFUSED_MS have passed since the refusal without a WELCOME from another address. */
#ifndef RENDEZVOUS_RACE_INTERNAL_H
#define RENDEZVOUS_RACE_INTERNAL_H

#include "base/log/trace.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RACE_MAX        16            /* number of a host's addresses that are tried at most */
#define RACE_NEXT_MS    INT64_C(250)  /* ms from the start of one address to the next */
/* for how many ms after a refusal another address can still win */
#define RACE_REFUSED_MS INT64_C(1000)
#define RACE_WHY_MAX    80

/* clang-format off */
/* S(NAME) — each state of an address. The try as a whole has a time limit, set by the member. */
#define RACE_STATES(S) \
    S(WAITS)   /* the address is not started yet. Limit: RACE_NEXT_MS since the last start */ \
    S(TRIED)   /* the address is being tried. Limit: that of the whole try */ \
    S(REFUSED) /* a coordinator at the address refuses the node. Limit: RACE_REFUSED_MS */ \
    S(FAILED)  /* the address has failed; `why` has the reason. No time limit */
/* clang-format on */
enum race_state {
#define S(name) RACE_##name,
    RACE_STATES(S)
#undef S
};

struct race_entry {
    char addr[RDZV_ADDR_MAX]; /* numeric */
    enum race_state state;
    bool connected;           /* true: a connection is established, but no WELCOME came yet */
    /* if FAILED: the reason, such as "connection refused"; if TRIED: what is known, or "" */
    char why[RACE_WHY_MAX];
    bool is_stranger;         /* true: `why` says that another program than crun has answered */
};

struct race {
    struct race_entry entries[RACE_MAX];
    uint32_t count;
    uint32_t started;   /* number of addresses that were started: entries[0], entries[1], … */
    int64_t next_ms;    /* time at which the next address is to start */
    int64_t refused_ms; /* time of the first refusal; CR_FOREVER = there was none */
    struct cr_trace trace; /* gets a text for each change of an address's state */
};

/* Begins a race without addresses. */
void race_begin(struct race *r, int64_t now_ms);
/* Adds an address. Does nothing if the race has this address already, or has RACE_MAX addresses. */
void race_add(struct race *r, const char *addr);
/* Orders the addresses so that IPv6 and IPv4 alternate, because often one of the two does not work
 * at all. If `first` is one of the addresses, it comes first. Call this before the first address is
 * started. */
void race_order(struct race *r, const char *first);
/* Orders the addresses by race_compare(), so that all nodes try them in the same order. */
void race_sort(struct race *r);
/* Compares two numeric addresses. Returns a negative number if `a` comes first, a positive one if
 * `b` does, and 0 if they are equal. The order is the same on all nodes. */
int race_compare(const char *a, const char *b);

/* Copies what the race `last` has found out (`why`, `is_stranger`) about each address that both
 * races have. So race_describe() has a text for an address that is being tried again. */
void race_remember(struct race *r, const struct race *last);

/* Returns the index of the address to start now, and marks it as started; or -1 if none is due.
 * Call this repeatedly until it returns -1. */
int race_start_next(struct race *r, int64_t now_ms);
/* These functions, and race_refused() below, tell the race what has happened at an address:
 * race_connected() that the connection is established, race_failed() that the address has failed,
 * race_refused() that a coordinator there has refused the node. After a failure or a refusal the
 * next address is due at once. */
void race_connected(struct race *r, uint32_t index);
void race_failed(struct race *r, int64_t now_ms, uint32_t index, const char *why);
/* Does what race_failed() does. Call this if the address has failed because another program than
 * crun has answered there. */
void race_met_stranger(struct race *r, int64_t now_ms, uint32_t index, const char *why);
/* Stores what is known about an address that is still being tried, for race_describe(). */
void race_note(struct race *r, uint32_t index, const char *what);
void race_refused(struct race *r, int64_t now_ms, uint32_t index);

/* Returns the index of an address whose refusal is to be accepted: no other address is left, or
 * RACE_REFUSED_MS have passed since the first refusal. Returns -1 if no refusal is to be accepted
 * now. */
int race_accepts_refusal(const struct race *r, int64_t now_ms);
/* Returns whether another program than crun has answered at one of the addresses. */
bool race_has_stranger(const struct race *r);
/* Returns whether all addresses have failed. */
bool race_is_lost(const struct race *r);
/* Returns the time at which race_start_next() or race_accepts_refusal() has to be called;
 * CR_FOREVER = never. */
int64_t race_deadline(const struct race *r);

/* Writes to `out`, which has `room` bytes, what is known about each address that was started, such
 * as "10.77.0.1: connection refused, fd77::1: no answer". */
void race_describe(const struct race *r, char *out, size_t room);

#endif
