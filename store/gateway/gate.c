/* The gate: the store's end of a trunk. It carries out the gateway's requests in sessions of the
 * key space and puts the replies into the trunk.
 *
 * The gateway relies on the order of the frames in the trunk: the answer to a wait comes before the
 * reply to each request that was carried out after the wait had ended. Therefore the gate moves
 * answers to waits into the trunk before it carries out a request. If the request belongs to the
 * shared session, the gate does this once more before it sends the reply: the request may have
 * ended a wait of the worker that sent it, and a server without a gateway also answers the wait
 * first. */
#include "store/gateway/gateway.h"

#include "base/assert.h"
#include "base/memory.h"
#include "store/gateway/frame_internal.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 64 /* number of lists of own sessions: the id of a session selects its list; a power
                    * of two */

/* An own session: it carries out only the requests that come with one id. */
struct own_session {
    struct store_session session;
    uint32_t id;
    bool once; /* true: the gate ends the session after its first reply */
    LIST_ENTRY(own_session) next;
    /* dialect and bytes of the WAIT that the session has begun. If an element of a queue answers
     * this WAIT, wait_on() applies it again. */
    enum store_dialect dialect;
    struct cr_buffer request;
};
LIST_HEAD(own_list, own_session);

struct store_gate {
    struct store_keyspace *keys;
    uint64_t *operations;
    struct store_session shared; /* carries out all requests that have no session of their own */
    struct own_list own[BUCKETS];
    size_t own_count;
    struct store_parser parser;
    struct store_parser spare_parser; /* for wait_on(), which may run while the result of `parser`
                                       * is in use */
    int64_t now_ms; /* time of the last call of store_gate_receive() */
    struct trunk trunk;
    struct cr_buffer in; /* received bytes of the gateway's stream that form no complete frame
                          * yet */
};

struct store_gate *store_gate_new(struct store_keyspace *keys, const struct store_limits *limits,
                                  uint64_t *operations) {
    struct store_gate *gate = calloc(1, sizeof(*gate));
    if (gate == NULL) return NULL;
    gate->keys = keys;
    gate->operations = operations;
    gate->parser.limits = gate->spare_parser.limits = limits;
    return gate;
}

/* ---- own sessions ---- */

static struct own_session *find(struct store_gate *gate, uint32_t id) {
    struct own_session *o;
    LIST_FOREACH (o, &gate->own[id % BUCKETS], next) {
        if (o->id == id) return o;
    }
    return NULL;
}

static struct own_session *obtain(struct store_gate *gate, uint32_t id, uint32_t kind) {
    struct own_session *o = find(gate, id);
    if (o != NULL) return o;
    o = calloc(1, sizeof(*o));
    if (o == NULL) return NULL;
    o->id = id;
    o->session.gate = gate;
    o->session.legacy = (kind & FRAME_LEGACY) == FRAME_LEGACY;
    o->once = (kind & FRAME_ONCE) != 0;
    LIST_INSERT_HEAD(&gate->own[id % BUCKETS], o, next);
    gate->own_count++;
    return o;
}

static void end_session(struct store_gate *gate, struct own_session *o) {
    store_keyspace_leave(gate->keys, &o->session);
    LIST_REMOVE(o, next);
    gate->own_count--;
    cr_buffer_done(&o->request);
    free(o);
}

void store_gate_free(struct store_gate *gate) {
    if (gate == NULL) return;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (!LIST_EMPTY(&gate->own[i])) end_session(gate, LIST_FIRST(&gate->own[i]));
    }
    store_keyspace_leave(gate->keys, &gate->shared);
    store_parser_done(&gate->parser);
    store_parser_done(&gate->spare_parser);
    trunk_done(&gate->trunk);
    cr_buffer_done(&gate->in);
    free(gate);
}

/* ---- replies ---- */

/* Moves the output of a session to the trunk, as one frame for `id`. Returns 0 or -ENOMEM. */
static int send_output(struct store_gate *gate, struct store_output *out, uint32_t id,
                       uint32_t kind) {
    struct iovec iov[16];
    if (out->pending == 0) return 0;
    int rc = frame_begin(&gate->trunk, id, kind, out->pending);
    while (out->pending > 0 && rc == 0) {
        int n = store_output_iov(out, iov, (int) CR_ARRAY_LEN(iov), false);
        size_t len = 0;
        for (int i = 0; i < n && rc == 0; i++) {
            rc = trunk_put(&gate->trunk, iov[i].iov_base, iov[i].iov_len);
            len += iov[i].iov_len;
        }
        store_output_sent(out, len);
    }
    return rc;
}

static int send_failure(struct store_gate *gate, uint32_t id, const char *reason) {
    return frame_put(&gate->trunk, id, FRAME_FAILED, reason, strlen(reason));
}

/* Call this when the key space has refused a request. The function drops the request's output and
 * sends FRAME_FAILED for `id`, so that the gateway closes the connections of the workers that sent
 * the request. `o` is the own session of the request, which ends; or NULL if the request belongs to
 * the shared session. Returns 0 or -ENOMEM. */
static int refuse(struct store_gate *gate, struct own_session *o, uint32_t id, const char *reason) {
    /* both branches drop the output, which may hold a part of the reply */
    if (o != NULL) end_session(gate, o);
    else store_output_done(&gate->shared.out);
    return send_failure(gate, id, reason);
}

/* Call this when an element of a queue has answered the wait of `o`. The session begins to wait
 * again for the same keys. Elements that are in the queue now do not end the new wait: workers that
 * were answered before are about to pop them. Returns 0. On error returns a negative errno and sets
 * *reason to a static text. */
static int wait_on(struct store_gate *gate, struct own_session *o, const char **reason) {
    struct store_request request;
    *reason = "out of memory";
    gate->spare_parser.dialect = o->dialect;
    int rc = store_parse(&gate->spare_parser, o->request.data, o->request.len, &request);
    if (rc == 1) rc = store_keyspace_wait_on(gate->keys, &o->session, &request, gate->now_ms,
                                              reason);
    store_parser_next(&gate->spare_parser);
    return rc;
}

/* Moves the output of an own session to the trunk. After that, the session ends if a push was lost,
 * or if the session was made for one reply only (`once`) and this was the reply. Exception: if it
 * was an element of a queue that has answered the session's wait, the session waits again
 * (wait_on()). Returns 0 or -ENOMEM. */
static int send_own(struct store_gate *gate, struct own_session *o) {
    const char *lost = o->session.lost;
    if (lost == NULL && o->session.out.pending == 0) return 0;
    bool is_one = lost == NULL && o->once && o->session.by_queue;
    o->session.by_queue = false;
    int rc = lost != NULL ? send_failure(gate, o->id, lost)
                          : send_output(gate, &o->session.out, o->id,
                                        is_one ? FRAME_ONE : FRAME_OWNED);
    if (is_one && rc == 0) {
        const char *reason;
        if (wait_on(gate, o, &reason) < 0) return refuse(gate, o, o->id, reason);
        return send_own(gate, o); /* the new wait may be answered already, if all keys have values
                                   * now */
    }
    if (lost != NULL || o->once) end_session(gate, o);
    return rc;
}

int store_gate_wake(struct store_session *session) {
    struct own_session *o = CR_CONTAINER_OF(session, struct own_session, session);
    return send_own(session->gate, o);
}

/* Moves the output of all own sessions to the trunk: the answers to waits, and the pushes, that
 * another request has caused. Returns 0 or a negative errno. */
static int take_answers(struct store_gate *gate) {
    int rc = 0;
    if (TAILQ_EMPTY(&gate->keys->ready)) return 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        struct own_session *o, *next;
        for (o = LIST_FIRST(&gate->own[i]); o != NULL && rc == 0; o = next) {
            next = LIST_NEXT(o, next);
            rc = send_own(gate, o);
        }
    }
    return rc;
}

/* ---- requests ---- */

static int carry_out_shared(struct store_gate *gate, const struct frame *f,
                            const struct store_request *request) {
    const char *reason;
    struct store_session *s = &gate->shared;
    int rc = store_keyspace_apply(gate->keys, s, request, gate->now_ms, &reason);
    if (rc < 0) return refuse(gate, NULL, f->id, reason);
    rc = take_answers(gate);
    return rc < 0 ? rc : send_output(gate, &s->out, f->id, FRAME_REPLY);
}

static int carry_out_own(struct store_gate *gate, const struct frame *f,
                         const struct store_request *request) {
    const char *reason;
    struct own_session *o = obtain(gate, f->id, f->kind);
    if (o == NULL) return -ENOMEM;
    int rc = store_keyspace_apply(gate->keys, &o->session, request, gate->now_ms, &reason);
    if (rc < 0) return refuse(gate, o, f->id, reason);
    if (o->session.wait != NULL && request->op == STORE_OP_WAIT) {
        o->dialect = gate->parser.dialect;
        cr_buffer_clear(&o->request);
        if (cr_buffer_append(&o->request, f->bytes, f->len) < 0) return -ENOMEM;
    }
    rc = send_own(gate, o);
    return rc < 0 ? rc : take_answers(gate);
}

/* Carries out the request in a frame. Returns 0 or a negative errno: -EPROTO if the bytes of the
 * frame are not exactly one request, or if a request that waits or watches comes without FRAME_OWN.
 * Such a request needs an own session, because the shared session must be free for the next request
 * at once. */
static int take_request(struct store_gate *gate, const struct frame *f) {
    struct store_request request;
    bool is_legacy = (f->kind & FRAME_LEGACY) == FRAME_LEGACY;
    gate->parser.dialect = is_legacy ? STORE_DIALECT_LEGACY : STORE_DIALECT_MODERN;
    int rc = store_parse(&gate->parser, f->bytes, f->len, &request);
    bool has_own = (f->kind & FRAME_OWN) != 0;
    bool needs_own = rc == 1 && (request.op == STORE_OP_WAIT || request.op == STORE_OP_BARRIER ||
                                 request.op == STORE_OP_WATCH);
    bool is_right = rc == 1 && request.size == f->len && (!needs_own || has_own);
    if (!is_right) return -EPROTO;
    (*gate->operations)++;
    rc = take_answers(gate);
    if (rc == 0 && has_own) rc = carry_out_own(gate, f, &request);
    else if (rc == 0) rc = carry_out_shared(gate, f, &request);
    store_parser_next(&gate->parser);
    return rc;
}

static int take_frame(struct store_gate *gate, const struct frame *f) {
    uint32_t kind = f->kind & ~(FRAME_OWN | FRAME_ONCE);
    if (kind == FRAME_MODERN || kind == FRAME_LEGACY) return take_request(gate, f);
    if (kind != FRAME_END || f->len != 0) return -EPROTO;
    struct own_session *o = find(gate, f->id);
    if (o != NULL) end_session(gate, o);
    return 0;
}

int store_gate_receive(struct store_gate *gate, const void *data, size_t len, int64_t now_ms) {
    size_t at = 0, max = gate->parser.limits->request_max;
    gate->now_ms = now_ms;
    int rc = trunk_receive(&gate->trunk, data, len, &gate->in);
    while (rc == 0 && at < gate->in.len) {
        struct frame f;
        int64_t n = frame_read(gate->in.data + at, gate->in.len - at, max, &f);
        if (n == 0) break;
        rc = n < 0 ? (int) n : take_frame(gate, &f);
        if (n > 0) at += (size_t) n;
    }
    cr_buffer_consume(&gate->in, at);
    if (gate->in.len == 0) cr_buffer_done(&gate->in);
    return rc;
}

/* ---- the connection ---- */

uint64_t store_gate_received(const struct store_gate *gate) { return gate->trunk.received; }

int store_gate_connected(struct store_gate *gate, uint64_t received) {
    return trunk_resume(&gate->trunk, received);
}

struct cr_buffer *store_gate_out(struct store_gate *gate) {
    return trunk_pump(&gate->trunk) < 0 ? NULL : &gate->trunk.out;
}

size_t store_gate_held(const struct store_gate *gate) {
    return gate->in.cap + gate->trunk.kept.cap + gate->trunk.out.cap +
           gate->own_count * sizeof(struct own_session);
}
