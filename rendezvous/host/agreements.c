/* Computes the host's answers to first handshake messages on threads of libuv's pool, so that the
 * loop can handle other connections meanwhile. An answer takes two operations on the curve, 70 us,
 * which is more than everything else that the loop does for a node that joins. With MUNGE an answer
 * also waits for munged, for up to 0.5 s if munged is stopped.
 *
 * If only a few nodes connect, and they do not use MUNGE, the loop computes the answers itself,
 * because starting threads would cost more than it saves. Otherwise the peers wait in
 * host->agreements.waiting until a thread is free; the pool has at most host->agreements.threads
 * batches of peers at a time. A peer is not freed before its answer is computed, because the answer
 * counts as an open handle of the peer. */
#include "rendezvous/host/host_internal.h"

#include "base/log/log.h"

#include <stdlib.h>

/* In each window of WINDOW_MS milliseconds, the loop itself answers the first INLINE_MAX
 * connections. If more come, they are a crowd; the loop answers none of a crowd, which ends with a
 * window without connections. */
#define INLINE_MAX 16
#define WINDOW_MS  100
#define THREADS_MAX 4 /* libuv's pool has four threads, unless UV_THREADPOOL_SIZE says more */
#define BATCH_MAX  16 /* most peers in one batch */

/* Peers whose answers one thread computes, one after the other. */
struct batch {
    uv_work_t work;
    struct coordinator_host *host;
    uint32_t count;
    struct host_peer *peers[BATCH_MAX];
};

/* Returns how many batches may be computed at a time: one for each core besides the core of the
 * loop, at most THREADS_MAX. With MUNGE it is at least one, because a thread that waits for munged
 * needs no core. */
static uint32_t count_threads(bool is_munge) {
    unsigned cores = uv_available_parallelism();
    if (cores == 1 && is_munge) return 1;
    return cores > THREADS_MAX ? THREADS_MAX : cores - 1;
}

bool host_agrees_later(struct coordinator_host *host) {
    struct host_agreements *a = &host->agreements;
    int64_t now_ms = host_now_ms(host);
    int64_t age_ms = now_ms - a->since_ms;
    if (age_ms >= WINDOW_MS) {
        bool is_crowd = age_ms < 2 * WINDOW_MS && a->count > INLINE_MAX;
        a->since_ms = now_ms;
        a->count = is_crowd ? INLINE_MAX : 0;
    }
    bool is_munge = secure_ring_is_munge(host->ring);
    if (++a->count <= INLINE_MAX && !is_munge) return false;
    if (!a->has_threads) a->threads = count_threads(is_munge);
    a->has_threads = true;
    return a->threads > 0;
}

/* ---- the pool's threads ---- */

static void compute(uv_work_t *work) {
    struct batch *b = work->data;
    for (uint32_t i = 0; i < b->count; i++) secure_tunnel_agree(b->peers[i]->wire->tunnel);
}

/* ---- the loop's thread ---- */

static void start_batches(struct coordinator_host *host);

static void finish(struct host_peer *peer) {
    peer->wire->agrees = false;
    if (!peer->closing) {
        secure_tunnel_agreed(peer->wire->tunnel);
        host_tunnel_settle(peer);
        host_peer_mark(peer);
    }
    host_peer_handle_closed(peer);
}

static void on_computed(uv_work_t *work, int status) {
    struct batch *b = work->data;
    struct coordinator_host *host = b->host;
    (void) status; /* nobody cancels a batch */
    cr_debug("%u handshakes were computed on another thread", b->count);
    for (uint32_t i = 0; i < b->count; i++) finish(b->peers[i]);
    free(b);
    host->agreements.running--;
    start_batches(host);
    host_end_event(host);
}

/* Takes the peers of the next batch out of the queue. Returns NULL when memory is short. */
static struct batch *take_batch(struct coordinator_host *host) {
    struct batch *b = calloc(1, sizeof(*b));
    struct host_wire *wire;
    if (b == NULL) return NULL;
    b->host = host;
    b->work.data = b;
    while (b->count < BATCH_MAX && (wire = STAILQ_FIRST(&host->agreements.waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&host->agreements.waiting, agreement_entry);
        b->peers[b->count++] = wire->tcp.data;
    }
    return b;
}

/* Passes waiting peers to the pool. If there is no memory for a batch, computes the answer of one
 * peer in this thread instead. */
static void start_batches(struct coordinator_host *host) {
    struct host_agreements *a = &host->agreements;
    while (a->running < a->threads && !STAILQ_EMPTY(&a->waiting)) {
        struct batch *b = take_batch(host);
        if (b != NULL) {
            a->running++;
            (void) uv_queue_work(host->loop, &b->work, compute, on_computed);
            continue;
        }
        struct host_wire *wire = STAILQ_FIRST(&a->waiting);
        STAILQ_REMOVE_HEAD(&a->waiting, agreement_entry);
        secure_tunnel_agree(wire->tunnel);
        finish(wire->tcp.data);
    }
}

void host_agree(struct host_peer *peer) {
    struct coordinator_host *host = peer->host;
    if (peer->wire->agrees) return;
    peer->wire->agrees = true;
    peer->wire->open_handles++;
    STAILQ_INSERT_TAIL(&host->agreements.waiting, peer->wire, agreement_entry);
    start_batches(host);
}
