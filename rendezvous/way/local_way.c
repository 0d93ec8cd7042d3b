/* The way to a coordinator in this process.
 *
 * Member and coordinator exchange the same bytes as over a socket, through two buffers. A libuv
 * idle handle delivers the bytes on the next turn of the loop. If they were delivered at once, a
 * call of the member would reach the coordinator, and the coordinator's answer would reach the
 * member while that call still runs. */
#include "rendezvous/way/way_internal.h"

#include "base/buffer.h"
#include "rendezvous/protocol/protocol.h"

#include <stdlib.h>

#define OUT_OF_MEMORY "out of memory"

/* bytes that are reserved for each buffer when the way is created: four of the largest frames. One
 * turn of the loop queues less, so that later a lack of memory does not end the connection */
#define QUEUE_ROOM (4 * RDZV_FRAME_MAX)

struct local_way {
    struct way way;
    struct host_peer *peer; /* the coordinator's end of the connection; NULL = not connected */
    bool connecting;        /* true: the next on_turn() connects */
    bool hanging_up;        /* true: the next on_turn() closes the connection */
    /* why the connection has ended; NULL = it has not ended, or on_lost was already called. While
     * this is not NULL, no bytes are queued. */
    const char *lost;
    struct cr_buffer greeting;
    struct cr_buffer to_host, to_member;
    struct cr_buffer spare; /* empty; replaces a buffer while its bytes are delivered */
    uv_idle_t turn;         /* active while on_turn() has something to do */
};

static void on_turn(uv_idle_t *turn);

static void next_turn(struct local_way *l) {
    if (!l->way.closing) (void) uv_idle_start(&l->turn, on_turn);
}

static void deliver(void *arg, const char *data, size_t len) {
    struct local_way *l = arg;
    if (l->lost != NULL) return;
    if (data == NULL) l->lost = "the coordinator hung up";
    else if (cr_buffer_append(&l->to_member, data, len) < 0) l->lost = OUT_OF_MEMORY;
    next_turn(l);
}

static void disconnect(struct local_way *l, const char *why) {
    struct host_peer *peer = l->peer;
    l->peer = NULL;
    l->hanging_up = false;
    l->lost = NULL;
    cr_buffer_clear(&l->to_host);
    if (peer != NULL) host_peer_gone(peer, why);
    cr_buffer_clear(&l->to_member);
}

/* ---- on_turn(): calls do_one() until do_one() finds nothing to do ---- */

static void open_peer(struct local_way *l) {
    l->connecting = false;
    l->lost = NULL;
    l->peer = coordinator_host_add_local(l->way.host, deliver, l);
    if (l->peer != NULL && cr_buffer_append(&l->to_host, l->greeting.data, l->greeting.len) < 0) {
        l->lost = OUT_OF_MEMORY;
    }
    if (l->peer != NULL) l->way.events->on_open(l->way.arg, "");
    else l->way.events->on_lost(l->way.arg, RENDEZVOUS_BROKEN, OUT_OF_MEMORY);
}

/* Returns the bytes of the queue, and gives the queue the spare buffer, because other bytes may be
 * queued while the returned ones are delivered. */
static struct cr_buffer take(struct local_way *l, struct cr_buffer *queue) {
    struct cr_buffer data = *queue;
    *queue = l->spare;
    l->spare = (struct cr_buffer){0};
    return data;
}

static void give_back(struct local_way *l, struct cr_buffer *data) {
    cr_buffer_clear(data);
    l->spare = *data;
}

static void bring_to_host(struct local_way *l) {
    struct cr_buffer data = take(l, &l->to_host);
    if (l->peer != NULL) host_peer_receive(l->peer, data.data, data.len);
    give_back(l, &data);
}

static void bring_to_member(struct local_way *l) {
    struct cr_buffer data = take(l, &l->to_member);
    l->way.events->on_data(l->way.arg, data.data, data.len);
    give_back(l, &data);
}

static void report_lost(struct local_way *l) {
    const char *why = l->lost;
    disconnect(l, why);
    l->way.events->on_lost(l->way.arg, RENDEZVOUS_CLOSED, why);
}

/* Does the first thing that is due, in the order of the lines below. Returns whether one was due.
 * Bytes of the member are delivered before its hang-up, so that its last message is not lost. */
static bool do_one(struct local_way *l) {
    if (l->to_host.len > 0) bring_to_host(l);
    else if (l->hanging_up) disconnect(l, "it hung up");
    else if (l->connecting) open_peer(l);
    else if (l->to_member.len > 0) bring_to_member(l);
    else if (l->lost != NULL) report_lost(l);
    else return false;
    return true;
}

static void on_turn(uv_idle_t *turn) {
    struct local_way *l = turn->data;
    uv_update_time(l->way.loop);
    while (!l->way.closing && do_one(l)) {
    }
    if (!l->way.closing) (void) uv_idle_stop(&l->turn);
}

/* ---- the calls of way.h ---- */

static void local_connect(struct way *w, const void *greeting, size_t len) {
    struct local_way *l = (struct local_way *) w;
    cr_buffer_clear(&l->greeting);
    l->connecting = cr_buffer_append(&l->greeting, greeting, len) == 0;
    if (!l->connecting) l->lost = OUT_OF_MEMORY;
    next_turn(l);
}

static void local_send(struct way *w, const void *data, size_t len) {
    struct local_way *l = (struct local_way *) w;
    if (l->lost != NULL) return;
    if (cr_buffer_append(&l->to_host, data, len) < 0) l->lost = OUT_OF_MEMORY;
    next_turn(l);
}

static void local_flush(struct way *w) { (void) w; }

static void local_hang_up(struct way *w) {
    struct local_way *l = (struct local_way *) w;
    l->connecting = false;
    l->hanging_up = l->peer != NULL;
    next_turn(l);
}

static void on_turn_closed(uv_handle_t *handle) {
    struct local_way *l = handle->data;
    disconnect(l, "it closed");
    cr_buffer_done(&l->greeting);
    cr_buffer_done(&l->to_host);
    cr_buffer_done(&l->to_member);
    cr_buffer_done(&l->spare);
    way_closed(&l->way);
}

static void local_close(struct way *w) {
    uv_close((uv_handle_t *) &((struct local_way *) w)->turn, on_turn_closed);
}

const struct way_kind way_local = {
    .description = "is this node", .connect = local_connect, .send = local_send,
    .flush = local_flush, .hang_up = local_hang_up, .close = local_close};

struct way *way_local_new(uv_loop_t *loop, struct coordinator_host *host) {
    struct local_way *l = calloc(1, sizeof(*l));
    if (l == NULL) return NULL;
    if (cr_buffer_reserve(&l->to_host, QUEUE_ROOM) < 0 ||
        cr_buffer_reserve(&l->to_member, QUEUE_ROOM) < 0 ||
        cr_buffer_reserve(&l->spare, QUEUE_ROOM) < 0) {
        cr_buffer_done(&l->to_host);
        cr_buffer_done(&l->to_member);
        free(l);
        return NULL;
    }
    l->way = (struct way){.kind = &way_local, .loop = loop, .host = host};
    (void) uv_idle_init(loop, &l->turn);
    l->turn.data = l;
    return &l->way;
}
