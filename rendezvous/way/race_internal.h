/* Decides which of a host's addresses a node tries, and when. Pure.
 *
 * A name may have several addresses, some of which do not answer: the packets to them are lost, or
 * another program listens there. So all addresses are tried side by side: the next one starts
 * RACE_NEXT_MS after the last, or as soon as one has failed, and the first from which WELCOME comes
 * wins. An established connection does not decide, because the other end may be any program. A
 * coordinator that refuses the node wins only if no other address is left, or if none has answered
 * RACE_REFUSED_MS after the refusal. */
#ifndef RENDEZVOUS_RACE_INTERNAL_H
#define RENDEZVOUS_RACE_INTERNAL_H

#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RACE_MAX        16            /* most addresses of one host; further ones are not tried */
#define RACE_NEXT_MS    INT64_C(250)  /* ms between the starts of two addresses */
#define RACE_REFUSED_MS INT64_C(1000) /* ms that other addresses get after a refusal */
#define RACE_WHY_MAX    80

/* clang-format off */
/* S(NAME) — each state of an address. The try as a whole has a time limit, set by the member. */
#define RACE_STATES(S) \
    S(WAITS)   /* waits for its turn. Limit: RACE_NEXT_MS after the start of the last */ \
    S(TRIED)   /* is tried. Limit: that of the try */ \
    S(REFUSED) /* a coordinator there refuses the node. Limit: RACE_REFUSED_MS */ \
    S(FAILED)  /* has failed; `why` has the reason. No time limit */
/* clang-format on */
enum race_state {
#define S(name) RACE_##name,
    RACE_STATES(S)
#undef S
};

struct race_entry {
    char addr[RDZV_ADDR_MAX]; /* numeric */
    enum race_state state;
    bool connected;           /* while TRIED: the connection is established, but silent */
    /* if FAILED: the reason, such as "connection refused"; if TRIED: what is known, or "" */
    char why[RACE_WHY_MAX];
};

struct race {
    struct race_entry entries[RACE_MAX];
    uint32_t count;
    uint32_t started;   /* number of addresses that are not WAITS any more; they are the first */
    int64_t next_ms;    /* time at which the next address is to start */
    int64_t refused_ms; /* time at which the first refusal came; CR_FOREVER = none */
};

/* Begins a race without addresses. */
void race_begin(struct race *r, int64_t now_ms);
/* Adds an address, unless it is there already or the race is full. */
void race_add(struct race *r, const char *addr);
/* Orders the addresses so that IPv6 and IPv4 take turns, because often one of the two does not work
 * at all; `first`, if it is one of them, comes first of all. Call it before the first start. */
void race_order(struct race *r, const char *first);
/* Orders the addresses by their numbers, so that all nodes try them in the same order. */
void race_sort(struct race *r);
/* Compares two numeric addresses for that order. Returns a negative number, 0 or a positive one. */
int race_compare(const char *a, const char *b);

/* Takes over what the race `last` has found out about the same addresses, until this race finds out
 * more; so a text that is written while an address is tried again is as good as the one before. */
void race_remember(struct race *r, const struct race *last);

/* Returns the index of the address to start now, and marks it as started; or -1 if none is due.
 * Call it until it returns -1. */
int race_start_next(struct race *r, int64_t now_ms);
/* Call these when the connection to an address is established, when it has failed, or when a
 * coordinator there has refused the node. A failure lets the next address start at once. */
void race_connected(struct race *r, uint32_t index);
void race_failed(struct race *r, int64_t now_ms, uint32_t index, const char *why);
/* Notes what is known about an address that is still tried, for race_describe(). */
void race_note(struct race *r, uint32_t index, const char *what);
void race_refused(struct race *r, int64_t now_ms, uint32_t index);

/* Returns the index of the refusal to accept, because no other address can win any more; or -1. */
int race_accepts_refusal(const struct race *r, int64_t now_ms);
/* Returns whether all addresses have failed. */
bool race_is_lost(const struct race *r);
/* Returns the time at which race_start_next() or race_accepts_refusal() has to be called;
 * CR_FOREVER = never. */
int64_t race_deadline(const struct race *r);

/* Writes what is known about each address that was tried, such as "10.77.0.1: connection refused,
 * fd77::1: no answer". */
void race_describe(const struct race *r, char *out, size_t room);

#endif
