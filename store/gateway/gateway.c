/* The gateway: the workers' end of a trunk. gateway.h says what it does.
 *
 * A worker is given each reply when it comes, because the gate answers in the order in which things
 * happen at the store. A WAIT of a worker makes it a member of a `struct shared_wait`, which stands
 * for all equal WAITs of the node for one key. */
#include "store/gateway/gateway.h"

#include "base/assert.h"
#include "base/memory.h"
#include "store/gateway/frame_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    256 /* lists of targets, and of shared waits; a power of two */
#define REASON_MAX 128

/* Who gets the replies that come for an id. */
enum target_kind { TARGET_WORKER, TARGET_WATCHER, TARGET_WAIT, TARGET_PING };
struct target {
    uint32_t id;
    enum target_kind kind;
    LIST_ENTRY(target) next;
};
LIST_HEAD(target_list, target);

/* A WAIT or BARRIER at the store, and all workers that wait for its end, oldest first. */
struct shared_wait {
    struct target target;
    LIST_ENTRY(shared_wait) next; /* links of the list of waits that others may join */
    TAILQ_HEAD(, store_gateway_worker) members;
    bool is_closed; /* true: nobody may join, and it is in no list of waits */
    enum store_dialect dialect;
    size_t len;                   /* bytes of `request` */
    uint8_t request[];
};
LIST_HEAD(wait_list, shared_wait);

struct store_gateway_worker {
    struct store_gateway *gateway;
    void *owner;
    LIST_ENTRY(store_gateway_worker) next;
    TAILQ_ENTRY(store_gateway_worker) next_ready;
    bool is_ready, is_half_closed, has_failed;
    bool watches;           /* true: its requests are carried out in the session of `watcher` */
    struct target target, watcher;
    struct store_parser parser;
    struct cr_buffer in;    /* bytes of an incomplete request */
    struct cr_buffer out;
    size_t pending;         /* requests for the shared session whose reply has not come */
    struct shared_wait *wait;  /* the wait for whose end this worker waits; NULL = none */
    TAILQ_ENTRY(store_gateway_worker) next_member;
    bool has_begun_it;      /* true: `wait` was sent to the store after this worker's WAIT came */
    uint64_t joined_at;     /* value of gateway->asked when this worker joined `wait` */
    char reason[REASON_MAX]; /* why it has failed */
};

struct store_gateway {
    const struct store_limits *limits;
    struct trunk trunk;
    struct cr_buffer in; /* bytes of the store's stream that are no complete frame yet */
    uint32_t next_id;
    /* How many requests with a reply were sent for the shared session of the gate, and how many of
     * them have been answered; the store answers them in their order. The numbers show in which
     * order the store has carried out requests and ended waits (is_fresh()). */
    uint64_t asked, answered;
    struct target ping;
    bool is_pinging;      /* true: the store has not answered the last PING of the gateway */
    uint64_t joined; /* number of WAITs that joined one that was under way */
    LIST_HEAD(, store_gateway_worker) workers;
    TAILQ_HEAD(, store_gateway_worker) ready;
    struct target_list targets[BUCKETS];
    struct wait_list waits[BUCKETS];
};

/* ---- targets ---- */

static void add_target(struct store_gateway *g, struct target *t, enum target_kind kind) {
    t->id = g->next_id++;
    t->kind = kind;
    LIST_INSERT_HEAD(&g->targets[t->id % BUCKETS], t, next);
}

static struct target *find_target(struct store_gateway *g, uint32_t id) {
    struct target *t;
    LIST_FOREACH (t, &g->targets[id % BUCKETS], next) {
        if (t->id == id) return t;
    }
    return NULL;
}

struct store_gateway *store_gateway_new(const struct store_limits *limits) {
    struct store_gateway *g = calloc(1, sizeof(*g));
    if (g == NULL) return NULL;
    g->limits = limits;
    TAILQ_INIT(&g->ready);
    add_target(g, &g->ping, TARGET_PING);
    return g;
}

/* ---- what a worker is given ---- */

static void make_ready(struct store_gateway_worker *w) {
    if (w->is_ready) return;
    w->is_ready = true;
    TAILQ_INSERT_TAIL(&w->gateway->ready, w, next_ready);
}

static void fail_worker(struct store_gateway_worker *w, const char *reason, size_t len) {
    if (w->has_failed) return;
    w->has_failed = true;
    (void) snprintf(w->reason, sizeof(w->reason), "%.*s", (int) len, reason);
    make_ready(w);
}

static void give(struct store_gateway_worker *w, const void *reply, size_t len) {
    if (cr_buffer_append(&w->out, reply, len) < 0) fail_worker(w, "out of memory", REASON_MAX);
    make_ready(w);
}

/* ---- waits ---- */

static struct wait_list *waits_like(struct store_gateway *g, const uint8_t *request, size_t len) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) hash = (hash ^ request[i]) * 16777619u;
    return &g->waits[hash % BUCKETS];
}

static struct shared_wait *find_wait(struct store_gateway *g, enum store_dialect dialect,
                                     const uint8_t *request, size_t len) {
    struct shared_wait *wait;
    LIST_FOREACH (wait, waits_like(g, request, len), next) {
        bool is_equal = wait->len == len && memcmp(wait->request, request, len) == 0;
        if (is_equal && wait->dialect == dialect) return wait;
    }
    return NULL;
}

static uint32_t kind_of(enum store_dialect dialect) {
    return dialect == STORE_DIALECT_LEGACY ? FRAME_LEGACY : FRAME_MODERN;
}

/* Sends a WAIT or BARRIER to the store. Returns NULL when memory is short. */
static struct shared_wait *begin_wait(struct store_gateway *g, enum store_dialect dialect,
                                      const uint8_t *request, size_t len, bool is_closed) {
    struct shared_wait *wait = calloc(1, sizeof(*wait) + len);
    if (wait == NULL) return NULL;
    wait->dialect = dialect;
    wait->is_closed = is_closed;
    wait->len = len;
    memcpy(wait->request, request, len);
    TAILQ_INIT(&wait->members);
    add_target(g, &wait->target, TARGET_WAIT);
    uint32_t kind = kind_of(dialect) | FRAME_OWN | FRAME_ONCE;
    if (frame_put(&g->trunk, wait->target.id, kind, request, len) < 0) {
        LIST_REMOVE(&wait->target, next);
        free(wait);
        return NULL;
    }
    if (!is_closed) LIST_INSERT_HEAD(waits_like(g, request, len), wait, next);
    return wait;
}

static void forget_wait(struct shared_wait *wait) {
    if (!wait->is_closed) LIST_REMOVE(wait, next);
    LIST_REMOVE(&wait->target, next);
    free(wait);
}

static void add_member(struct shared_wait *wait, struct store_gateway_worker *w, bool begins) {
    w->wait = wait;
    w->has_begun_it = begins;
    w->joined_at = w->gateway->asked;
    TAILQ_INSERT_TAIL(&wait->members, w, next_member);
}

static void remove_member(struct store_gateway_worker *w) {
    TAILQ_REMOVE(&w->wait->members, w, next_member);
    w->wait = NULL;
}

/* Ends a wait for which nobody waits any more, at the store, too. */
static void cancel_wait(struct store_gateway *g, struct shared_wait *wait) {
    /* if memory is short, the wait at the store stays until its keys come: nobody is harmed */
    (void) frame_put(&g->trunk, wait->target.id, FRAME_END, NULL, 0);
    forget_wait(wait);
}

/* Ends the wait of a worker, if it waits. */
static void drop_wait(struct store_gateway_worker *w) {
    struct shared_wait *wait = w->wait;
    if (wait == NULL) return;
    remove_member(w);
    if (TAILQ_EMPTY(&wait->members)) cancel_wait(w->gateway, wait);
}

/* Returns whether the end of its wait is the answer to this worker's WAIT: the store must have
 * ended the wait after the WAIT came. That is certain if the wait was sent to the store after the
 * WAIT came. Otherwise it is certain if a request that was sent after the WAIT came has been
 * answered: the store answers in the order in which things happen, so the wait had not ended when
 * the store carried out that request. */
static bool is_fresh(const struct store_gateway_worker *w) {
    return w->has_begun_it || w->gateway->answered > w->joined_at;
}

/* Sends the WAIT of the members that are left once more, for all of them together. */
static void wait_again(struct store_gateway *g, struct shared_wait *old) {
    struct shared_wait *wait = begin_wait(g, old->dialect, old->request, old->len, false);
    struct store_gateway_worker *w;
    while ((w = TAILQ_FIRST(&old->members)) != NULL) {
        remove_member(w);
        if (wait != NULL) add_member(wait, w, true);
        else fail_worker(w, "out of memory", REASON_MAX);
    }
}

/* Call this when the store has ended a wait, because all of its keys exist. */
static void wait_ended(struct store_gateway *g, struct shared_wait *wait, const struct frame *f) {
    struct store_gateway_worker *w, *next;
    for (w = TAILQ_FIRST(&wait->members); w != NULL; w = next) {
        next = TAILQ_NEXT(w, next_member);
        if (!is_fresh(w)) continue;
        remove_member(w);
        give(w, f->bytes, f->len);
    }
    /* not in the list any more, so that the WAIT that is sent again is a new one */
    if (!wait->is_closed) LIST_REMOVE(wait, next);
    LIST_REMOVE(&wait->target, next);
    if (!TAILQ_EMPTY(&wait->members)) wait_again(g, wait);
    free(wait);
}

/* Call this when an element of a queue has answered a wait. The element answers one worker; the
 * wait goes on at the store for the others. Later WAITs do not join it: while the queue has
 * elements, the store answers a WAIT at once. */
static void wait_answered_one(struct store_gateway *g, struct shared_wait *wait,
                              const struct frame *f) {
    struct store_gateway_worker *w;
    TAILQ_FOREACH (w, &wait->members, next_member) {
        if (is_fresh(w)) break;
    }
    if (!wait->is_closed) LIST_REMOVE(wait, next);
    wait->is_closed = true;
    if (w == NULL) { /* the element came before all of these WAITs: ask anew, for all of them */
        wait_again(g, wait);
    } else {
        remove_member(w);
        give(w, f->bytes, f->len);
    }
    if (TAILQ_EMPTY(&wait->members)) cancel_wait(g, wait);
}

static void wait_failed(struct shared_wait *wait, const char *reason, size_t len) {
    struct store_gateway_worker *w;
    while ((w = TAILQ_FIRST(&wait->members)) != NULL) {
        remove_member(w);
        fail_worker(w, reason, len);
    }
    forget_wait(wait);
}

/* ---- requests of a worker ---- */

static int take_wait(struct store_gateway_worker *w, const struct store_request *r,
                     const uint8_t *bytes) {
    struct store_gateway *g = w->gateway;
    enum store_dialect dialect = w->parser.dialect;
    /* A BARRIER counts those who wait. In a WAIT with several keys, the store ticks off each key
     * when it exists, and the key may be deleted again: a later equal WAIT may wait for more keys.
     * */
    bool is_closed = r->op == STORE_OP_BARRIER || r->item_count != 1;
    drop_wait(w);
    struct shared_wait *wait = is_closed ? NULL : find_wait(g, dialect, bytes, r->size);
    bool joins = wait != NULL;
    if (joins) g->joined++;
    else wait = begin_wait(g, dialect, bytes, r->size, is_closed);
    if (wait == NULL) return -ENOMEM;
    add_member(wait, w, !joins);
    return 0;
}

/* Sends a request that the gate carries out in its shared session. CANCEL_WAIT is one of them: the
 * gateway has ended the wait already, and the store's answer comes after the replies to earlier
 * requests. */
static int take_other(struct store_gateway_worker *w, const struct store_request *r,
                      const uint8_t *bytes) {
    struct store_gateway *g = w->gateway;
    if (r->op == STORE_OP_CANCEL_WAIT) drop_wait(w);
    int rc = frame_put(&g->trunk, w->target.id, kind_of(w->parser.dialect), bytes, r->size);
    if (rc < 0 || store_op_reply(r->op) == STORE_REPLY_NONE) return rc;
    w->pending++;
    g->asked++;
    return 0;
}

/* Passes a request of a worker that watches keys to the session that belongs to this worker. Its
 * replies and pushes come in one stream. */
static int take_watcher(struct store_gateway_worker *w, const struct store_request *r,
                        const uint8_t *bytes) {
    if (!w->watches) add_target(w->gateway, &w->watcher, TARGET_WATCHER);
    w->watches = true;
    return frame_put(&w->gateway->trunk, w->watcher.id, kind_of(w->parser.dialect) | FRAME_OWN,
                     bytes, r->size);
}

static int take_request(struct store_gateway_worker *w, const struct store_request *r,
                        const uint8_t *bytes) {
    /* a legacy client without CANCEL_WAIT ends its wait by its next request */
    if (w->parser.dialect == STORE_DIALECT_LEGACY) drop_wait(w);
    if (w->watches || r->op == STORE_OP_WATCH) return take_watcher(w, r, bytes);
    if (r->op == STORE_OP_WAIT || r->op == STORE_OP_BARRIER) return take_wait(w, r, bytes);
    return take_other(w, r, bytes);
}

/* Finds the dialect of a worker from its first bytes. Returns how many bytes to skip, 0 if more are
 * needed (the dialect is still NONE) or the request begins at once, or -EPROTO. */
static int64_t greet(struct store_gateway_worker *w, const uint8_t *data, size_t len) {
    size_t skip = 0;
    enum store_dialect dialect = STORE_DIALECT_NONE;
    if (store_detect(data, len, &dialect, &skip) == 0) return 0;
    if (dialect == STORE_DIALECT_ADMIN || dialect == STORE_DIALECT_FOREIGN) return -EPROTO;
    w->parser.dialect = dialect;
    return (int64_t) skip;
}

/* Handles the request at the start of the worker's bytes. Returns its size in bytes, 0 if it is not
 * complete, or a negative errno and a static text in *reason. */
static int64_t take_bytes(struct store_gateway_worker *w, const uint8_t *data, size_t len,
                          const char **reason) {
    struct store_request request;
    *reason = "its first bytes are not those of torch's client of the store";
    if (w->parser.dialect == STORE_DIALECT_NONE) return greet(w, data, len);
    int rc = store_parse(&w->parser, data, len, &request);
    *reason = w->parser.reason;
    if (rc <= 0) return rc;
    size_t size = request.size;
    *reason = "out of memory";
    rc = take_request(w, &request, data);
    store_parser_next(&w->parser);
    return rc < 0 ? rc : (int64_t) size;
}

int store_gateway_from_worker(struct store_gateway_worker *w, const void *data, size_t len,
                              const char **reason) {
    size_t at = 0;
    *reason = "out of memory";
    if (cr_buffer_append(&w->in, data, len) < 0) return -ENOMEM;
    while (at < w->in.len) {
        bool greets = w->parser.dialect == STORE_DIALECT_NONE;
        int64_t n = take_bytes(w, (const uint8_t *) w->in.data + at, w->in.len - at, reason);
        if (n < 0) return (int) n;
        if (n == 0 && (!greets || w->parser.dialect == STORE_DIALECT_NONE)) break;
        at += (size_t) n;
    }
    cr_buffer_consume(&w->in, at);
    if (w->in.len == 0) cr_buffer_done(&w->in);
    return 0;
}

/* ---- workers ---- */

struct store_gateway_worker *store_gateway_add(struct store_gateway *g, void *owner) {
    struct store_gateway_worker *w = calloc(1, sizeof(*w));
    if (w == NULL) return NULL;
    w->gateway = g;
    w->owner = owner;
    w->parser.limits = g->limits;
    add_target(g, &w->target, TARGET_WORKER);
    LIST_INSERT_HEAD(&g->workers, w, next);
    return w;
}

void *store_gateway_owner(const struct store_gateway_worker *w) { return w->owner; }

/* Ends what the worker waits for and watches. */
static void leave(struct store_gateway_worker *w) {
    struct store_gateway *g = w->gateway;
    drop_wait(w);
    if (!w->watches) return;
    w->watches = false;
    LIST_REMOVE(&w->watcher, next);
    (void) frame_put(&g->trunk, w->watcher.id, FRAME_END, NULL, 0);
}

void store_gateway_half_closed(struct store_gateway_worker *w) {
    w->is_half_closed = true;
    leave(w);
    make_ready(w);
}

struct cr_buffer *store_gateway_replies(struct store_gateway_worker *w) { return &w->out; }

bool store_gateway_is_over(const struct store_gateway_worker *w, const char **reason) {
    *reason = w->has_failed ? w->reason : NULL;
    return w->has_failed || (w->is_half_closed && w->pending == 0);
}

void store_gateway_remove(struct store_gateway_worker *w) {
    leave(w);
    if (w->is_ready) TAILQ_REMOVE(&w->gateway->ready, w, next_ready);
    LIST_REMOVE(&w->target, next);
    LIST_REMOVE(w, next);
    store_parser_done(&w->parser);
    cr_buffer_done(&w->in);
    cr_buffer_done(&w->out);
    free(w);
}

struct store_gateway_worker *store_gateway_take_ready(struct store_gateway *g) {
    struct store_gateway_worker *w = TAILQ_FIRST(&g->ready);
    if (w == NULL) return NULL;
    TAILQ_REMOVE(&g->ready, w, next_ready);
    w->is_ready = false;
    return w;
}

void store_gateway_free(struct store_gateway *g) {
    if (g == NULL) return;
    while (!LIST_EMPTY(&g->workers)) store_gateway_remove(LIST_FIRST(&g->workers));
    trunk_done(&g->trunk);
    cr_buffer_done(&g->in);
    free(g);
}

/* ---- replies of the store ---- */

static void take_wake(struct store_gateway *g, struct shared_wait *wait, const struct frame *f) {
    if (f->kind == FRAME_FAILED) wait_failed(wait, (const char *) f->bytes, f->len);
    else if (f->kind == FRAME_ONE) wait_answered_one(g, wait, f);
    else wait_ended(g, wait, f);
}

static void take_worker_reply(struct store_gateway_worker *w, const struct frame *f) {
    if (f->kind == FRAME_FAILED) {
        fail_worker(w, (const char *) f->bytes, f->len);
        return;
    }
    if (f->kind == FRAME_REPLY && w->pending > 0) w->pending--;
    give(w, f->bytes, f->len);
}

static int take_reply(struct store_gateway *g, const struct frame *f) {
    if (f->kind < FRAME_REPLY || f->kind > FRAME_FAILED) return -EPROTO;
    if (f->kind == FRAME_REPLY && ++g->answered > g->asked) return -EPROTO;
    struct target *t = find_target(g, f->id);
    if (t == NULL) return 0; /* the worker is gone, or has cancelled its wait */
    if (t->kind == TARGET_PING) g->is_pinging = false;
    if (t->kind == TARGET_WAIT) {
        take_wake(g, CR_CONTAINER_OF(t, struct shared_wait, target), f);
    } else if (t->kind == TARGET_WORKER) {
        take_worker_reply(CR_CONTAINER_OF(t, struct store_gateway_worker, target), f);
    } else if (t->kind == TARGET_WATCHER) {
        take_worker_reply(CR_CONTAINER_OF(t, struct store_gateway_worker, watcher), f);
    }
    return 0;
}

int store_gateway_from_store(struct store_gateway *g, const void *data, size_t len) {
    size_t at = 0;
    int rc = trunk_receive(&g->trunk, data, len, &g->in);
    while (rc == 0 && at < g->in.len) {
        struct frame f;
        int64_t n = frame_read(g->in.data + at, g->in.len - at, UINT32_MAX, &f);
        if (n == 0) break;
        rc = take_reply(g, &f);
        at += (size_t) n;
    }
    cr_buffer_consume(&g->in, at);
    if (g->in.len == 0) cr_buffer_done(&g->in);
    return rc;
}

/* ---- the connection ---- */

uint64_t store_gateway_received(const struct store_gateway *g) { return g->trunk.received; }

int store_gateway_connected(struct store_gateway *g, uint64_t received) {
    return trunk_resume(&g->trunk, received);
}

struct cr_buffer *store_gateway_to_store(struct store_gateway *g) {
    return trunk_pump(&g->trunk) < 0 ? NULL : &g->trunk.out;
}

bool store_gateway_ping(struct store_gateway *g) {
    static const uint8_t request[5] = {13}; /* PING with the nonce 0 */
    if (g->is_pinging) return false;
    /* if memory is short, this PING is left out, and the next call sends one */
    if (frame_put(&g->trunk, g->ping.id, FRAME_MODERN, request, sizeof(request)) < 0) return true;
    g->is_pinging = true;
    g->asked++;
    return true;
}

size_t store_gateway_held(const struct store_gateway *g) { return trunk_held(&g->trunk); }

void store_gateway_counts(const struct store_gateway *g, uint64_t *asked, uint64_t *joined) {
    *asked = g->asked;
    *joined = g->joined;
}
