/* Connects to a coordinator whose host may have several addresses.
 *
 * Each address that is tried has a `struct caller` with a secured_stream of its own. The callbacks
 * of the streams, the resolver and the timer only note what happened; advance() decides what to do.
 * When a caller is not needed any more, let_go() removes it: no event of this caller follows, its
 * stream closes, and its memory is freed when the stream is closed. */
#include "rendezvous/dial/dial.h"

#include "base/assert.h"
#include "base/buffer.h"
#include "base/log/log.h"
#include "base/memory.h"
#include "base/time/clock.h"
#include "rendezvous/dial/race_internal.h"
#include "rendezvous/dial/secured_stream_internal.h"
#include "rendezvous/dial/stranger_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time limit in ms for the answer to the greeting. After this time, a second connection asks the
 * other end which program it is; the first connection goes on waiting for the answer. */
#define ASK_AFTER_MS INT64_C(500)
/* time limit in ms for the other end to answer, when it is asked which program it is */
#define ASK_MS       INT64_C(1000)
#define ANSWER_MAX   ((size_t) 4096)
/* A TCPStore counts as one that is not crun's after this many connections, one after the other, to
 * which it gave no answer that only crun gives. One such connection is not enough: crun, too,
 * closes a connection if memory is short, or may be slow. */
#define STORE_ANSWERS 2
/* least time in ms between two log lines that say that authentication has failed */
#define REFUSAL_LINE_MS INT64_C(60000)

/* What a caller does on its connection. */
enum caller_role {
    GREETS,         /* sends the greeting */
    ASKS,           /* asks another program what it is */
    ASKS_TORCHRUN,  /* asks a TCPStore whether it has torchrun's state of the job */
    ASKS_OLD,       /* asks what ASKS_TORCHRUN asks, in the protocol of torch 2.0 and earlier */
    ASKS_FOR_CRUN,  /* asks a TCPStore whether it is crun's own */
};

struct caller {
    struct dial *dial;
    struct caller *next;
    struct secured_stream *stream;
    enum caller_role role;
    uint32_t index;    /* index of the address in race.entries */
    /* GREETS: time at which a second connection asks the other end what it is; other roles: time at
     * which the caller gives up; CR_FOREVER = no limit */
    int64_t limit_ms;
    bool asked;        /* GREETS: true if a second caller asks the other end what it is */
    bool is_old;       /* true if the other end is a TCPStore of torch 2.0 or earlier */
    /* true if the connection has ended after a refusal; the race may still accept the refusal */
    bool is_over;
    char own_addr[RDZV_ADDR_MAX], peer_addr[RDZV_ADDR_MAX];
    struct cr_buffer in;
};

/* A request to the resolver. libuv cannot stop a request at once, so it may live longer than the
 * race that needed it. */
struct lookup {
    struct dial *dial; /* the dial that waits for the answer; NULL = none */
    struct dial *owner;
    uv_getaddrinfo_t request;
};

struct dial {
    uv_loop_t *loop;
    char *host, *run_id;
    uint16_t port;
    struct secure_ring *ring; /* secrets of the job; NULL = connections are not authenticated */
    int64_t warned_ms;        /* time of the last warning that authentication has failed */
    bool sorted;
    bool accepts_stores; /* true: a TCPStore of torch ends the race with on_store */
    /* number of connections in a row that a TCPStore has closed without an answer to the
     * greeting */
    unsigned store_answers;
    const struct dial_events *events;
    void *arg;
    struct cr_buffer greeting;
    struct race race, last; /* races of the newest dial_open() and of the one before */
    bool racing;             /* true: addresses are tried, and `race` has them */
    struct lookup *lookup;   /* request to the resolver that is under way, or NULL */
    const char *failed;      /* error that advance() has to report; NULL = none */
    struct caller *callers;  /* list of the callers of the race */
    struct caller *current;  /* the caller on whose connection WELCOME or a refusal came, or NULL */
    /* address at which a coordinator answered last; "" = none so far. race_order() puts it
     * first. */
    char last_addr[RDZV_ADDR_MAX];
    char report[512];
    uv_timer_t timer;        /* runs until advance() has something to do */
    /* number of callers and lookups that are not freed yet, plus 1 until the timer is closed */
    int open_handles;
    bool closing;
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct dial *d) { return (int64_t) uv_now(d->loop); }

static void advance(struct dial *d);

/* ---- making and freeing ---- */

struct dial *dial_new(uv_loop_t *loop, const char *host, uint16_t port, const char *run_id,
                      const struct dial_events *events, void *arg) {
    struct dial *d = calloc(1, sizeof(*d));
    if (d == NULL) return NULL;
    d->loop = loop;
    d->host = strdup(host);
    d->run_id = strdup(run_id);
    d->port = port;
    d->warned_ms = INT64_MIN / 2;
    d->events = events;
    d->arg = arg;
    if (d->host == NULL || d->run_id == NULL) {
        free(d->host);
        free(d->run_id);
        free(d);
        return NULL;
    }
    (void) uv_timer_init(loop, &d->timer);
    d->timer.data = d;
    d->open_handles = 1;
    return d;
}

static void handle_is_closed(struct dial *d) {
    if (--d->open_handles > 0) return;
    void (*on_close)(void *) = d->on_close;
    void *arg = d->on_close_arg;
    cr_buffer_done(&d->greeting);
    free(d->host);
    free(d->run_id);
    free(d);
    on_close(arg);
}

int dial_aim(struct dial *d, const char *host, uint16_t port) {
    char *copy = strdup(host);
    if (copy == NULL) return -ENOMEM;
    free(d->host);
    d->host = copy;
    d->port = port;
    return 0;
}

void dial_sort(struct dial *d) { d->sorted = true; }
void dial_accept_stores(struct dial *d, bool accepts) { d->accepts_stores = accepts; }
void dial_secure(struct dial *d, struct secure_ring *ring) { d->ring = ring; }

/* ---- letting callers go ---- */

static void on_caller_closed(void *arg) {
    struct caller *c = arg;
    struct dial *d = c->dial;
    cr_buffer_done(&c->in);
    free(c);
    handle_is_closed(d);
}

static void unlink_caller(struct dial *d, const struct caller *c) {
    struct caller **at = &d->callers;
    while (*at != NULL && *at != c) at = &(*at)->next;
    if (*at != NULL) *at = c->next;
}

static bool is_active(const struct caller *c) {
    const struct dial *d = c->dial;
    if (d->current == c) return true;
    for (const struct caller *i = d->callers; i != NULL; i = i->next) {
        if (i == c) return true;
    }
    return false;
}

/* Removes a caller: sends its queued bytes and closes its connection. When that is done, frees the
 * caller. */
static void let_go(struct caller *c) {
    struct dial *d = c->dial;
    unlink_caller(d, c);
    if (d->current == c) d->current = NULL;
    secured_stream_close(c->stream, on_caller_closed, c);
}

/* Returns the caller with the role GREETS at an address; NULL if it is gone. */
static struct caller *caller_of(const struct dial *d, uint32_t index) {
    struct caller *c = d->callers;
    while (c != NULL && (c->index != index || c->role != GREETS)) c = c->next;
    return c;
}

static void end_race(struct dial *d) {
    d->racing = false;
    while (d->callers != NULL) let_go(d->callers);
    (void) uv_timer_stop(&d->timer);
}

/* ---- the streams' events ---- */

static struct caller *call(struct dial *d, uint32_t index, enum caller_role role);
static void ask_about(struct caller *c);

static void fail(struct caller *c, const char *why) {
    struct dial *d = c->dial;
    race_failed(&d->race, now_ms(d), c->index, why);
    let_go(c);
}

/* Call this if another program than crun has answered. */
static void fail_stranger(struct caller *c, const char *why) {
    struct dial *d = c->dial;
    race_met_stranger(&d->race, now_ms(d), c->index, why);
    let_go(c);
}

static void greet(struct caller *c) {
    struct dial *d = c->dial;
    secured_stream_send(c->stream, d->greeting.data, d->greeting.len);
    c->limit_ms = now_ms(d) + ASK_AFTER_MS;
    race_connected(&d->race, c->index);
    secured_stream_flush(c->stream);
}

/* Appends the question of this caller's role. Returns 0 or -ENOMEM. */
static int append_question(const struct caller *c, struct cr_buffer *out) {
    switch (c->role) {
    case ASKS_TORCHRUN: return stranger_ask_for_torchrun(out, c->dial->run_id, false);
    case ASKS_OLD: return stranger_ask_for_torchrun(out, c->dial->run_id, true);
    case ASKS_FOR_CRUN: return stranger_ask_for_crun(out);
    case ASKS:
    case GREETS: break; /* a caller that greets asks nothing */
    }
    return stranger_ask(out);
}

static void send_question(struct caller *c) {
    struct cr_buffer question = {0};
    if (append_question(c, &question) == 0) {
        secured_stream_send(c->stream, question.data, question.len);
    }
    cr_buffer_done(&question);
    secured_stream_flush(c->stream);
}

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct caller *c = arg;
    if (!is_active(c)) return;
    (void) snprintf(c->own_addr, sizeof(c->own_addr), "%s", own_addr);
    (void) snprintf(c->peer_addr, sizeof(c->peer_addr), "%s", peer_addr);
    if (c->role == GREETS) greet(c);
    else send_question(c);
    advance(c->dial);
}

static void win(struct caller *c) {
    struct dial *d = c->dial;
    d->store_answers = 0;
    struct cr_buffer in = c->in;
    c->in = (struct cr_buffer){0};
    /* takes the winner out of the list, because end_race() removes all callers in the list */
    unlink_caller(d, c);
    end_race(d);
    d->current = c;
    memcpy(d->last_addr, d->race.entries[c->index].addr, sizeof(d->last_addr));
    d->events->on_open(d->arg, c->own_addr, c->peer_addr);
    if (d->current == c) d->events->on_data(d->arg, in.data, in.len);
    cr_buffer_done(&in);
    if (d->current != c || !c->is_over) return;
    let_go(c);
    d->events->on_lost(d->arg, RENDEZVOUS_CLOSED, "the connection was closed");
}

/* Handles the bytes that have come so far in answer to the greeting. */
static void got_greeting(struct caller *c) {
    struct dial *d = c->dial;
    char why[RACE_WHY_MAX];
    switch (stranger_first(c->in.data, c->in.len)) {
    case STRANGER_UNDECIDED: return;
    case STRANGER_WELCOME: win(c); return;
    case STRANGER_REFUSED:
        c->limit_ms = CR_FOREVER;
        if (d->race.entries[c->index].state == RACE_TRIED) {
            race_refused(&d->race, now_ms(d), c->index);
        }
        return;
    case STRANGER_FOREIGN:
        (void) snprintf(why, sizeof(why), "it is not a crun: %s",
                        stranger_name(c->in.data, c->in.len));
        fail_stranger(c, why);
    }
}

/* Removes all callers at the address of `c`, except `c` itself. */
static void drop_others(const struct caller *c) {
    struct caller *next;
    for (struct caller *i = c->dial->callers; i != NULL; i = next) {
        next = i->next;
        if (i != c && i->index == c->index) let_go(i);
    }
}

static void end_hopeless(struct caller *c) {
    struct dial *d = c->dial;
    char why[RACE_WHY_MAX + RDZV_ADDR_MAX];
    (void) snprintf(why, sizeof(why), "torchrun serves this job at %s",
                    d->race.entries[c->index].addr);
    end_race(d);
    d->race.started = 0; /* so dial_report() returns "", because `why` says everything */
    d->report[0] = '\0';
    d->events->on_hopeless(d->arg, why);
}

static void end_at_store(struct caller *c) {
    struct dial *d = c->dial;
    char own_addr[RDZV_ADDR_MAX], addr[RDZV_ADDR_MAX];
    memcpy(own_addr, c->own_addr, sizeof(own_addr));
    memcpy(addr, d->race.entries[c->index].addr, sizeof(addr));
    bool is_old = c->is_old;
    end_race(d);
    d->events->on_store(d->arg, own_addr, addr, is_old);
}

static void ask_for_torchrun(struct caller *c) {
    c->role = ASKS_TORCHRUN;
    cr_buffer_clear(&c->in);
    send_question(c);
}

/* Call this when the other end is a TCPStore that is not crun's. The address has failed. But if
 * stores are accepted, and this has happened STORE_ANSWERS times in a row, the race ends with
 * on_store. */
static void is_plain_store(struct caller *c) {
    struct dial *d = c->dial;
    drop_others(c);
    if (d->accepts_stores && ++d->store_answers >= STORE_ANSWERS) end_at_store(c);
    else fail_stranger(c, "it is not a crun: it is a TCPStore of torch");
}

/* Call this when the TCPStore turns out to be crun's own: its coordinator is stopped or slow. The
 * address stays in the race. */
static void is_own_store(struct caller *c) {
    race_note(&c->dial->race, c->index, "its store answers, but its coordinator does not");
    let_go(c);
}

/* Handles a TCPStore's answer that it has no state of a torchrun of this job. If the store has
 * closed the connection on which the greeting was sent, it is not crun's. If that connection is
 * still open, the store is asked for what only crun's stores have: stores of torch 2.15 leave a
 * connection open whose first bytes they do not know, and crun's own store may answer while its
 * coordinator is stopped or slow. */
static void got_no_torchrun(struct caller *c) {
    struct dial *d = c->dial;
    if (caller_of(d, c->index) == NULL) {
        is_plain_store(c);
        return;
    }
    struct caller *next = call(d, c->index, ASKS_FOR_CRUN);
    if (next == NULL) race_failed(&d->race, now_ms(d), c->index, "out of memory");
    else next->is_old = c->is_old;
    let_go(c);
}

/* Handles the answer of a program that was asked what it is. If it is a TCPStore, it is asked a
 * second question: whether it has the state of a torchrun of this job. */
static void got_answer(struct caller *c) {
    char why[RACE_WHY_MAX];
    if (c->role == ASKS && stranger_is_store(c->in.data, c->in.len)) {
        ask_for_torchrun(c);
    } else if (c->role == ASKS_TORCHRUN && stranger_has_torchrun(c->in.data, c->in.len)) {
        end_hopeless(c);
    } else if (c->role == ASKS_TORCHRUN) {
        got_no_torchrun(c);
    } else if (c->role == ASKS_OLD && stranger_is_check_answer(c->in.data, c->in.len)) {
        c->is_old = true;
        if (stranger_has_torchrun(c->in.data, c->in.len)) end_hopeless(c);
        else got_no_torchrun(c);
    } else {
        (void) snprintf(why, sizeof(why), "it is not a crun: %s",
                        stranger_name(c->in.data, c->in.len));
        drop_others(c);
        fail_stranger(c, why);
    }
}

static void got_bytes(struct caller *c, const char *data, size_t len) {
    if (c->role == ASKS_FOR_CRUN) {
        is_own_store(c);
    } else if (c->in.len + len > ANSWER_MAX || cr_buffer_append(&c->in, data, len) < 0) {
        fail_stranger(c, "it is not a crun: it sends too much");
    } else if (c->role == GREETS) {
        got_greeting(c);
    } else {
        got_answer(c);
    }
}

static void on_data(void *arg, const char *data, size_t len) {
    struct caller *c = arg;
    struct dial *d = c->dial;
    if (d->current == c) {
        d->events->on_data(d->arg, data, len);
    } else if (is_active(c)) {
        got_bytes(c, data, len);
        advance(d);
    }
}

/* Gives up asking a program what it is, because it has not answered, or has closed the connection.
 * If it has answered as a TCPStore before, it is one that is not crun's. Otherwise, if the
 * connection on which the greeting was sent is still open, the address stays in the race; if that
 * connection is closed, the address has failed. */
static void give_up_asking(struct caller *c) {
    if (c->role == ASKS_FOR_CRUN) is_plain_store(c);
    else if (caller_of(c->dial, c->index) != NULL) let_go(c);
    else fail_stranger(c, "it closes the connection; it is not a crun");
}

/* Handles the end of a connection during a race. If the connection was established, but the other
 * end has closed it without an answer to the greeting, a second connection asks what the other end
 * is. */
static void ended_in_race(struct caller *c, const char *why) {
    const struct race_entry *e = &c->dial->race.entries[c->index];
    if (e->state == RACE_REFUSED) {
        c->is_over = true;
    } else if (c->role == GREETS && e->connected && !c->asked) {
        ask_about(c);
        let_go(c);
    } else if (c->role == GREETS && c->asked) {
        let_go(c); /* the second caller at this address still asks, and decides about the address */
    } else if (c->role == GREETS) {
        fail(c, why);
    } else if (c->role == ASKS && call(c->dial, c->index, ASKS_OLD) != NULL) {
        /* A TCPStore of torch 2.0 or earlier closes the connection when it gets the question of
         * ASKS. The new caller asks in the protocol of such a store. */
        let_go(c);
    } else {
        give_up_asking(c);
    }
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    struct caller *c = arg;
    struct dial *d = c->dial;
    if (d->current == c) {
        let_go(c);
        d->events->on_lost(d->arg, how, why);
    } else if (is_active(c)) {
        ended_in_race(c, why);
        advance(d);
    }
}

/* Logs that authentication has failed, but at most once in REFUSAL_LINE_MS. The node goes on trying
 * to connect, because the answer may have come from a stranger, or the secrets may be replaced. */
static void warn_of_refusal(struct dial *d, uint32_t index, const char *why) {
    if (now_ms(d) - d->warned_ms < REFUSAL_LINE_MS) return;
    d->warned_ms = now_ms(d);
    const char *remedy =
        secure_ring_is_munge(d->ring) ? "" : "; give all nodes the same --rdzv-token-file";
    cr_warn("cannot authenticate with the coordinator at '%s' port %u: %s%s; this node tries again",
            d->race.entries[index].addr, d->port, why, remedy);
}

static void on_refused(void *arg, enum secure_failure failure, const char *why) {
    struct caller *c = arg;
    struct dial *d = c->dial;
    if (d->current == c) {
        let_go(c);
        d->events->on_lost(d->arg, RENDEZVOUS_BROKEN, why);
    } else if (is_active(c)) {
        if (failure != SECURE_STRANGE) warn_of_refusal(d, c->index, why);
        drop_others(c);
        if (failure == SECURE_STRANGE) fail_stranger(c, why);
        else fail(c, why);
        advance(d);
    }
}

static const struct secured_stream_events stream_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost, .on_refused = on_refused};

/* ---- the race ---- */

/* Adds a caller for the address `index`, and starts to connect. Returns NULL when memory is
 * short. */
static struct caller *call(struct dial *d, uint32_t index, enum caller_role role) {
    struct caller *c = calloc(1, sizeof(*c));
    if (c == NULL) return NULL;
    *c = (struct caller){.dial = d, .index = index, .role = role, .next = d->callers,
                         .limit_ms = role == GREETS ? CR_FOREVER : now_ms(d) + ASK_MS};
    struct secure_ring *ring = role == GREETS ? d->ring : NULL;
    c->stream = secured_stream_new(d->loop, d->race.entries[index].addr, d->port, ring, d->run_id,
                                   &stream_events, c);
    if (c->stream == NULL) {
        free(c);
        return NULL;
    }
    d->open_handles++;
    d->callers = c;
    secured_stream_open(c->stream);
    return c;
}

static void ask_about(struct caller *c) {
    c->asked = true;
    c->limit_ms = CR_FOREVER;
    if (call(c->dial, c->index, ASKS) == NULL) {
        race_failed(&c->dial->race, now_ms(c->dial), c->index, "out of memory");
    }
}

static void start_due(struct dial *d) {
    for (int i; (i = race_start_next(&d->race, now_ms(d))) >= 0;) {
        if (call(d, (uint32_t) i, GREETS) == NULL) {
            race_failed(&d->race, now_ms(d), (uint32_t) i, "out of memory");
        }
    }
}

/* Handles all callers whose time limit is over. If such a caller has sent the greeting, a second
 * caller asks the other end what it is. If such a caller has asked, it gives up; the connection
 * with the greeting stays open, because a coordinator that is stopped or slow answers neither
 * greeting nor question. */
static void check_limits(struct dial *d) {
    struct caller *c = d->callers;
    while (c != NULL && now_ms(d) < c->limit_ms) c = c->next;
    if (c == NULL) return;
    if (c->role == GREETS) ask_about(c);
    else give_up_asking(c);
    check_limits(d); /* the list of callers has changed, so search it again */
}

static int64_t deadline(const struct dial *d) {
    int64_t when_ms = race_deadline(&d->race);
    for (const struct caller *c = d->callers; c != NULL; c = c->next) {
        if (c->limit_ms < when_ms) when_ms = c->limit_ms;
    }
    return when_ms;
}

static void on_timer(uv_timer_t *timer) { advance(timer->data); }

static void arm_timer(struct dial *d, int64_t when_ms) {
    int64_t now = now_ms(d);
    if (when_ms == CR_FOREVER) (void) uv_timer_stop(&d->timer);
    else
        (void) uv_timer_start(&d->timer, on_timer, when_ms > now ? (uint64_t) (when_ms - now) : 0,
                              0);
}

static void lose(struct dial *d, const char *why) {
    end_race(d);
    d->failed = NULL;
    d->events->on_lost(d->arg, RENDEZVOUS_BROKEN, why);
}

/* Does what is due in the race: starts addresses, handles time limits, and ends a race that is
 * decided. */
static void advance(struct dial *d) {
    if (d->failed != NULL) {
        lose(d, d->failed);
        return;
    }
    if (!d->racing) return;
    start_due(d);
    check_limits(d);
    int refusal = race_accepts_refusal(&d->race, now_ms(d));
    if (refusal >= 0) win(caller_of(d, (uint32_t) refusal));
    else if (race_is_lost(&d->race)) lose(d, dial_report(d));
    else arm_timer(d, deadline(d));
}

static void start_race(struct dial *d) {
    if (d->sorted) race_sort(&d->race);
    else race_order(&d->race, d->last_addr);
    race_remember(&d->race, &d->last);
    d->racing = true;
}

/* ---- the resolver ---- */

static void add_address(struct dial *d, const struct sockaddr *sa) {
    char addr[RDZV_ADDR_MAX];
    int rc = sa->sa_family == AF_INET
                 ? uv_ip4_name((const struct sockaddr_in *) (const void *) sa, addr, sizeof(addr))
                 : uv_ip6_name((const struct sockaddr_in6 *) (const void *) sa, addr, sizeof(addr));
    if (rc == 0) race_add(&d->race, addr);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found) {
    struct lookup *lookup = CR_CONTAINER_OF(req, struct lookup, request);
    struct dial *d = lookup->dial, *owner = lookup->owner;
    free(lookup);
    if (d != NULL) {
        d->lookup = NULL;
        for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
            add_address(d, a->ai_addr);
        }
        if (status < 0 || d->race.count == 0) {
            (void) snprintf(d->report, sizeof(d->report), "cannot resolve host '%.200s': %s",
                            d->host, uv_strerror(status));
            d->failed = d->report;
        } else {
            start_race(d);
        }
        advance(d);
    }
    if (found != NULL) uv_freeaddrinfo(found);
    handle_is_closed(owner);
}

static int start_lookup(struct dial *d) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    if (lookup == NULL) return -ENOMEM;
    lookup->dial = lookup->owner = d;
    int rc = uv_getaddrinfo(d->loop, &lookup->request, on_resolved, d->host, NULL, &hints);
    if (rc < 0) {
        free(lookup);
        return rc;
    }
    d->lookup = lookup;
    d->open_handles++;
    return 0;
}

/* ---- the owner's calls ---- */

static bool is_numeric(const char *host) {
    struct in6_addr binary;
    return inet_pton(AF_INET, host, &binary) == 1 || inet_pton(AF_INET6, host, &binary) == 1;
}

void dial_open(struct dial *d, const void *greeting, size_t len) {
    CR_ASSERT(!dial_is_open(d) && !d->closing);
    d->last = d->race;
    race_begin(&d->race, now_ms(d));
    d->race.trace = cr_log_trace();
    cr_buffer_clear(&d->greeting);
    int rc = cr_buffer_append(&d->greeting, greeting, len);
    if (rc == 0 && is_numeric(d->host)) {
        race_add(&d->race, d->host);
        start_race(d);
    } else if (rc == 0) {
        rc = start_lookup(d);
    }
    if (rc < 0) d->failed = uv_strerror(rc);
    /* callbacks must not run inside this function, so advance() runs on the loop's next turn */
    if (d->lookup == NULL) arm_timer(d, now_ms(d));
}

bool dial_is_open(const struct dial *d) {
    return d->racing || d->current != NULL || d->lookup != NULL || d->failed != NULL;
}

bool dial_has_addresses(const struct dial *d) { return d->race.count > 0; }

const char *dial_report(struct dial *d) {
    if (d->race.started > 0) race_describe(&d->race, d->report, sizeof(d->report));
    return d->report;
}

bool dial_has_stranger(const struct dial *d) { return race_has_stranger(&d->race); }

void dial_send(struct dial *d, const void *data, size_t len) {
    if (d->current != NULL) secured_stream_send(d->current->stream, data, len);
}

void dial_flush(struct dial *d) {
    if (d->current != NULL) secured_stream_flush(d->current->stream);
}

void dial_shut(struct dial *d) {
    d->failed = NULL;
    if (d->lookup != NULL) {
        d->lookup->dial = NULL; /* on_resolved() frees it */
        (void) uv_cancel((uv_req_t *) &d->lookup->request);
        d->lookup = NULL;
    }
    if (d->racing) (void) dial_report(d);
    end_race(d);
    if (d->current != NULL) let_go(d->current);
}

static void on_timer_closed(uv_handle_t *handle) { handle_is_closed(handle->data); }

void dial_close(struct dial *d, void (*on_close)(void *arg), void *arg) {
    dial_shut(d);
    d->closing = true;
    d->on_close = on_close;
    d->on_close_arg = arg;
    uv_close((uv_handle_t *) &d->timer, on_timer_closed);
}
