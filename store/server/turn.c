/* Fairness: all clients share one thread, so the work that one client requests at once is spread
 * over several turns of the loop.
 *
 * - The requests of one client are carried out until their cost exceeds STORE_TURN_COST, about the
 *   time of sending that many bytes. The client is then stalled: its connection waits for EPOLLOUT,
 *   and the next turn of the loop continues with its requests. Without this limit one client could
 *   delay all others by seconds: a request of one byte can be expensive (LIST_KEYS, stat), and a
 *   quarter of a million such requests fit into one read.
 * - A client that does not read its replies is stalled at STORE_OUTPUT_PAUSE unread bytes.
 * - A long LIST_KEYS is carried out in pieces (see store/keyspace/listing.c).
 * - If one request answers the waits of many clients, WAKES_MAX of these clients are sent their
 *   output at once and the others in the next turns, in order. One send() takes 7 to 10 us, so
 *   10,000 clients take 78 ms (docs/benchmarks.md, "The store"). With this limit, another client
 *   waits for at most WAKES_MAX sends. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"

/* cost of a stat request in bytes (server_internal.h), in addition to the length of its text */
#define COST_OF_STAT ((size_t) 64 << 10)

#define WAKES_MAX 512

/* ---- the cost of requests ---- */

void store_turn_add_stat(struct store_server *server, size_t text_len) {
    server->turn_cost += COST_OF_STAT + text_len;
}

bool store_turn_stall(struct store_connection *c) {
    struct store_server *server = c->space->server;
    size_t pending = c->session.out.pending;
    if (c->session.listing != NULL) return c->stalled = true;
    if (server->turn_cost > STORE_TURN_COST) return c->stalled = true;
    if (pending < STORE_OUTPUT_PAUSE) return false;
    if (store_send_pending(c) < 0) {
        store_connection_close(c, NULL);
        return true;
    }
    server->turn_cost += pending - c->session.out.pending;
    c->stalled = c->session.out.pending >= STORE_OUTPUT_PAUSE;
    return c->stalled;
}

/* ---- listing in pieces ---- */

bool store_turn_list_on(struct store_connection *c) {
    const char *reason = NULL;
    int rc = store_keyspace_list_on(&c->space->keys, &c->session, &reason);
    if (rc < 0) {
        store_connection_close(c, reason);
    } else {
        store_flush(c);
    }
    return rc != 0 || c->closing;
}

/* ---- waking in pieces ---- */

static void flush_some(struct store_space *space) {
    for (int i = 0; i < WAKES_MAX; i++) {
        struct store_session *s = store_keyspace_take_ready(&space->keys);
        if (s == NULL) return;
        if (s->gate != NULL) store_gates_flush(space, s);
        else store_flush(CR_CONTAINER_OF(s, struct store_connection, session));
    }
}

static void on_waking(uv_idle_t *idle) {
    struct store_space *space = CR_CONTAINER_OF(idle, struct store_space, waking);
    flush_some(space);
    if (TAILQ_EMPTY(&space->keys.ready)) (void) uv_idle_stop(idle);
}

void store_turn_flush_woken(struct store_space *space) {
    if (TAILQ_EMPTY(&space->keys.ready)) return;
    flush_some(space);
    if (!TAILQ_EMPTY(&space->keys.ready)) (void) uv_idle_start(&space->waking, on_waking);
}
