/* The gateway: the workers' end of a trunk. gateway.h says what it does.
 *
 * The gate answers in the order in which the store carries out requests and ends waits. Therefore
 * the gateway passes each reply on to its worker as soon as the reply comes. Equal WAITs of several
 * workers for one key share one WAIT at the store: each of these workers is a member of the same
 * `struct shared_wait`. */
#include "store/gateway/gateway.h"

#include "base/assert.h"
#include "base/memory.h"
#include "store/gateway/frame_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    256 /* number of lists of targets, and of lists of shared waits; a power of
                        * two */
#define REASON_MAX 128

/* Two limits for one worker. PENDING_MAX: number of its requests in the shared session that the
 * store has not answered. UNREAD_MAX: number of bytes of replies that it has not read. At either
 * limit, no further request of this worker is taken. Without these limits, a worker that sends many
 * requests and never reads could fill the memory of both ends of the trunk with replies. */
#define PENDING_MAX 16
#define UNREAD_MAX  ((size_t) 16 << 20)

/* What the replies with an id belong to: the requests of a worker, the watches of a worker, a
 * shared wait, or the gateway's own PING. */
enum target_kind { TARGET_WORKER, TARGET_WATCHER, TARGET_WAIT, TARGET_PING };
struct target {
    uint32_t id;
    enum target_kind kind;
    LIST_ENTRY(target) next;
};
LIST_HEAD(target_list, target);

/* A WAIT or BARRIER that the gateway has sent to the store, and its members: the workers that wait
 * for its answer, oldest first. */
struct shared_wait {
    struct target target;
    LIST_ENTRY(shared_wait) next; /* links of a list in store_gateway.waits: the waits that further
                                   * workers may join */
    TAILQ_HEAD(, store_gateway_worker) members;
    bool is_closed; /* true: no further worker may join, and the wait is in no list of waits */
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
    bool is_stalled;        /* true: a limit is reached, and `in` may hold complete requests */
    bool has_sent;          /* true: a request other than the first PINGs has come */
    bool watches;           /* true: the worker watches keys; its requests have the id of
                             * `watcher` */
    struct target target, watcher;
    struct store_parser parser;
    struct cr_buffer in;    /* bytes of requests that are incomplete, or kept because of a limit */
    struct cr_buffer out;
    size_t pending;         /* number of requests in the shared session that are not answered yet */
    struct shared_wait *wait;  /* the wait of which this worker is a member; NULL if it does not
                                * wait */
    TAILQ_ENTRY(store_gateway_worker) next_member;
    bool has_begun_it;      /* true: the gateway sent `wait` after this worker's WAIT had come */
    uint64_t joined_at;     /* value of gateway->asked when this worker joined `wait` */
    char reason[REASON_MAX]; /* the error, if has_failed is set */
};

struct store_gateway {
    const struct store_limits *limits;
    struct trunk trunk;
    struct cr_buffer in; /* received bytes of the store's stream that form no complete frame yet */
    uint32_t next_id;
    /* asked: number of requests with a reply that were sent for the shared session of the gate.
     * answered: number of their replies that have come; the store answers them in order. From these
     * numbers is_fresh() finds out whether the store ended a wait before or after it carried out a
     * certain request. */
    uint64_t asked, answered;
    struct target ping;
    bool is_pinging;      /* true: the store has not answered the last PING of the gateway */
    uint64_t joined; /* number of workers' WAITs that joined a WAIT that was at the store already */
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

/* Creates a shared wait without members, and sends its WAIT or BARRIER to the store. Returns NULL
 * if memory is short. */
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

/* Call this when a wait has no members any more. The function ends the wait at the store and frees
 * it. */
static void cancel_wait(struct store_gateway *g, struct shared_wait *wait) {
    /* If memory is short, FRAME_END is not sent. The wait then stays at the store until its keys
     * exist, and take_reply() ignores the answer. */
    (void) frame_put(&g->trunk, wait->target.id, FRAME_END, NULL, 0);
    forget_wait(wait);
}

/* Takes the worker out of its wait, if it has one. If the wait has no other members, ends the
 * wait. */
static void drop_wait(struct store_gateway_worker *w) {
    struct shared_wait *wait = w->wait;
    if (wait == NULL) return;
    remove_member(w);
    if (TAILQ_EMPTY(&wait->members)) cancel_wait(w->gateway, wait);
}

/* Call this when the store has answered w->wait. Returns whether this is also an answer to the
 * worker's own WAIT: it is if the store ended the wait after the worker's WAIT had come. That is
 * certain in two cases. First, the gateway sent the wait to the store after the worker's WAIT had
 * come. Second, the store has answered a request that the gateway sent after the worker's WAIT had
 * come: because answers come in order, the wait had not ended when the store carried out this
 * request. */
static bool is_fresh(const struct store_gateway_worker *w) {
    return w->has_begun_it || w->gateway->answered > w->joined_at;
}

/* Sends one new WAIT to the store for all members that `old` still has, and makes them members of
 * the new wait. If memory is short, fails these workers. */
static void wait_again(struct store_gateway *g, struct shared_wait *old) {
    struct shared_wait *wait = begin_wait(g, old->dialect, old->request, old->len, false);
    struct store_gateway_worker *w;
    while ((w = TAILQ_FIRST(&old->members)) != NULL) {
        remove_member(w);
        if (wait != NULL) add_member(wait, w, true);
        else fail_worker(w, "out of memory", REASON_MAX);
    }
}

/* Handles the end of a wait at the store: all of its keys exist. The members for which the answer
 * is fresh (is_fresh()) get it. For the other members, sends one new WAIT. */
static void wait_ended(struct store_gateway *g, struct shared_wait *wait, const struct frame *f) {
    struct store_gateway_worker *w, *next;
    for (w = TAILQ_FIRST(&wait->members); w != NULL; w = next) {
        next = TAILQ_NEXT(w, next_member);
        if (!is_fresh(w)) continue;
        remove_member(w);
        give(w, f->bytes, f->len);
    }
    /* the wait is over: no further worker joins it, and no frame comes for its id */
    if (!wait->is_closed) LIST_REMOVE(wait, next);
    LIST_REMOVE(&wait->target, next);
    if (!TAILQ_EMPTY(&wait->members)) wait_again(g, wait);
    free(wait);
}

/* Call this when an element of a queue has answered a wait. The element answers one worker; for the
 * other members, the wait goes on at the store. Later WAITs do not join this wait, because the
 * store answers a new WAIT at once while the queue has elements. */
static void wait_answered_one(struct store_gateway *g, struct shared_wait *wait,
                              const struct frame *f) {
    struct store_gateway_worker *w;
    TAILQ_FOREACH (w, &wait->members, next_member) {
        if (is_fresh(w)) break;
    }
    if (!wait->is_closed) LIST_REMOVE(wait, next);
    wait->is_closed = true;
    if (w == NULL) { /* the answer is fresh for none: the element may be older than all WAITs */
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
    /* No further worker may join a BARRIER, because the store counts those who wait. Nor may one
     * join a WAIT with several keys: once a key exists, the store stops waiting for this key, even
     * if the key is deleted again, but the WAIT of a worker that joined later would have to wait
     * for it. */
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

/* Sends a request that the gate carries out in its shared session. CANCEL_WAIT is such a request,
 * too: the gateway itself ends the worker's wait, and the store's reply to CANCEL_WAIT comes after
 * the replies to the worker's earlier requests. */
static int take_other(struct store_gateway_worker *w, const struct store_request *r,
                      const uint8_t *bytes) {
    struct store_gateway *g = w->gateway;
    if (r->op == STORE_OP_CANCEL_WAIT) drop_wait(w);
    int rc = frame_put(&g->trunk, w->target.id, kind_of(w->parser.dialect), bytes, r->size);
    /* the reply to a MULTI_GET of no keys has no bytes, and the gate sends no frame for it */
    bool is_empty = r->op == STORE_OP_MULTI_GET && r->item_count == 0;
    if (rc < 0 || is_empty || store_op_reply(r->op) == STORE_REPLY_NONE) return rc;
    w->pending++;
    g->asked++;
    return 0;
}

/* Sends a request of a worker that watches keys. The gate carries out the requests of such a worker
 * in an own session, so that replies and pushes come in one stream. */
static int take_watcher(struct store_gateway_worker *w, const struct store_request *r,
                        const uint8_t *bytes) {
    if (!w->watches) add_target(w->gateway, &w->watcher, TARGET_WATCHER);
    w->watches = true;
    return frame_put(&w->gateway->trunk, w->watcher.id, kind_of(w->parser.dialect) | FRAME_OWN,
                     bytes, r->size);
}

/* Answers a PING with its nonce, which follows the operation in the request. */
static int answer_ping(struct store_gateway_worker *w, const struct store_request *r,
                       const uint8_t *bytes) {
    give(w, bytes + 1, r->size - 1);
    return 0;
}

static int take_request(struct store_gateway_worker *w, const struct store_request *r,
                        const uint8_t *bytes) {
    /* Torch's client begins with a PING to find out whether it speaks to a store, so the gateway
     * answers it without a journey to the store. The store answers each later PING, because its
     * reply shows that the store has carried out the worker's earlier requests. */
    if (r->op == STORE_OP_PING && !w->has_sent) return answer_ping(w, r, bytes);
    w->has_sent = true;
    /* a client of the legacy dialect has no CANCEL_WAIT: its next request ends its wait */
    if (w->parser.dialect == STORE_DIALECT_LEGACY) drop_wait(w);
    if (w->watches || r->op == STORE_OP_WATCH) return take_watcher(w, r, bytes);
    if (r->op == STORE_OP_WAIT || r->op == STORE_OP_BARRIER) return take_wait(w, r, bytes);
    return take_other(w, r, bytes);
}

/* Finds the dialect from the first bytes of a worker, and stores it in w->parser. Returns how many
 * bytes to skip before the first request; 0 and leaves the dialect at STORE_DIALECT_NONE if more
 * bytes are needed; or -EPROTO if the bytes come from no client of torch. */
static int64_t greet(struct store_gateway_worker *w, const uint8_t *data, size_t len) {
    size_t skip = 0;
    enum store_dialect dialect = STORE_DIALECT_NONE;
    if (store_detect(data, len, &dialect, &skip) == 0) return 0;
    if (dialect == STORE_DIALECT_ADMIN || dialect == STORE_DIALECT_FOREIGN) return -EPROTO;
    w->parser.dialect = dialect;
    return (int64_t) skip;
}

/* Handles the handshake or request at the start of the worker's bytes. Returns how many bytes it
 * has used: 0 if more bytes are needed, or if only the dialect was found out. On error returns a
 * negative errno and sets *reason to a static text. */
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

static bool may_take(const struct store_gateway_worker *w) {
    return w->pending < PENDING_MAX && w->out.len < UNREAD_MAX;
}

/* Handles the complete requests in w->in, until PENDING_MAX or UNREAD_MAX is reached. Returns 0. On
 * error returns a negative errno and sets *reason to a static text. */
static int take_requests(struct store_gateway_worker *w, const char **reason) {
    size_t at = 0;
    w->is_stalled = false;
    while (at < w->in.len) {
        w->is_stalled = !may_take(w);
        if (w->is_stalled) break;
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

int store_gateway_from_worker(struct store_gateway_worker *w, const void *data, size_t len,
                              const char **reason) {
    /* a failed worker gets no replies, and its parser is still in the request that was refused */
    if (w->has_failed) return 0;
    *reason = "out of memory";
    if (cr_buffer_append(&w->in, data, len) < 0) return -ENOMEM;
    return take_requests(w, reason);
}

bool store_gateway_go_on(struct store_gateway_worker *w) {
    const char *reason;
    bool may = w->is_stalled && may_take(w) && !w->has_failed;
    if (may && take_requests(w, &reason) < 0) {
        fail_worker(w, reason, strnlen(reason, REASON_MAX - 1));
    }
    return !w->is_stalled;
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

/* Ends the worker's wait and its watches, at the store, too. */
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
    return w->has_failed || (w->is_half_closed && w->pending == 0 && !w->is_stalled);
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
    (void) store_gateway_go_on(w);
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
