/* The connections of a relay to the coordinator's host, one for each core. */
#include "rendezvous/relay/relay_internal.h"

#include "base/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int64_t now_ms(const struct relay_trunk *t) { return (int64_t) uv_now(t->owner->loop); }

/* ---- closing ---- */

static void trunk_free(struct relay_trunk *t) {
    struct rendezvous_relay *owner = t->owner;
    LIST_REMOVE(t, entry);
    relay_done(&t->core);
    free(t->run_id);
    free(t);
    relay_freed_one(owner);
}

static void handle_closed(struct relay_trunk *t) {
    if (--t->open_handles == 0) trunk_free(t);
}

static void on_timer_closed(uv_handle_t *handle) { handle_closed(handle->data); }
static void on_stream_closed(void *arg) { handle_closed(arg); }

static void begin_closing(struct relay_trunk *t) {
    if (t->closing) return;
    t->closing = true;
    uv_close((uv_handle_t *) &t->timer, on_timer_closed);
    secured_stream_close(t->stream, on_stream_closed, t);
}

/* ---- settling ---- */

static void on_timer(uv_timer_t *timer) {
    struct relay_trunk *t = timer->data;
    relay_tick(&t->core, now_ms(t));
    relay_trunk_settle(t);
}

static void settle_node(struct relay_trunk *t, uint32_t i) {
    struct relay_place *p = &t->core.places[i];
    struct relay_node *node = t->nodes[i];
    if (node == NULL) return;
    if (p->out.len > 0) relay_node_send(node, p->out.data, p->out.len);
    cr_buffer_done(&p->out);
    if (p->in.len == 0) cr_buffer_done(&p->in);
    if (!p->ends || t->nodes[i] == NULL) return;
    bool is_broken = p->is_broken;
    t->nodes[i] = NULL;
    node->trunk = NULL;
    relay_lost(&t->core, i, RENDEZVOUS_CLOSED);
    relay_node_end(node, is_broken);
}

void relay_trunk_settle(struct relay_trunk *t) {
    if (t->closing) return;
    for (uint32_t i = 0; i < RDZV_RELAY_PLACES; i++) settle_node(t, i);
    /* settle_node() has lost the last node, and the trunk is being closed */
    if (t->closing) return;
    if (t->core.is_over) cr_warn("relay: job '%.200s': %s", t->run_id, t->core.why);
    if (t->core.is_over || t->core.used == 0) {
        begin_closing(t);
        return;
    }
    if (t->is_open && t->core.out.len > 0) {
        secured_stream_send(t->stream, t->core.out.data, t->core.out.len);
        cr_buffer_done(&t->core.out);
        secured_stream_flush(t->stream);
    }
    int64_t when_ms = relay_deadline(&t->core), now = now_ms(t);
    (void) uv_timer_start(&t->timer, on_timer, when_ms > now ? (uint64_t) (when_ms - now) : 0, 0);
}

void relay_trunk_end(struct relay_trunk *t, const char *why) {
    relay_trunk_lost(&t->core, why);
    relay_trunk_settle(t);
}

/* ---- the connection ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct relay_trunk *t = arg;
    cr_debug("relay: job '%.200s': connected from %s to %s", t->run_id, own_addr, peer_addr);
    t->is_open = true;
    relay_trunk_settle(t);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct relay_trunk *t = arg;
    relay_trunk_receive(&t->core, data, len);
    relay_trunk_settle(t);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) how;
    relay_trunk_end(arg, why);
}

static void on_refused(void *arg, enum secure_failure failure, const char *why) {
    (void) failure;
    relay_trunk_end(arg, why);
}

static const struct secured_stream_events stream_events = {on_open, on_data, on_lost, on_refused};

static struct relay_trunk *trunk_new(struct rendezvous_relay *owner, const char *run_id) {
    struct relay_trunk *t = calloc(1, sizeof(*t));
    if (t == NULL) return NULL;
    t->owner = owner;
    t->run_id = strdup(run_id);
    if (t->run_id != NULL && relay_open(&t->core, (int64_t) uv_now(owner->loop), run_id) == 0) {
        t->stream = secured_stream_new(owner->loop, owner->upstream.host, owner->upstream.port,
                                       owner->ring, run_id, &stream_events, t);
    }
    t->core.trace = cr_log_trace();
    if (t->stream == NULL) {
        relay_done(&t->core);
        free(t->run_id);
        free(t);
        return NULL;
    }
    (void) uv_timer_init(owner->loop, &t->timer);
    t->timer.data = t;
    t->open_handles = 2;
    LIST_INSERT_HEAD(&owner->trunks, t, entry);
    secured_stream_open(t->stream);
    return t;
}

static struct relay_trunk *find_trunk(struct rendezvous_relay *owner, const char *run_id) {
    struct relay_trunk *t;
    LIST_FOREACH(t, &owner->trunks, entry) {
        bool has_room = !t->closing && !t->core.is_over && t->core.used < RDZV_RELAY_PLACES;
        if (has_room && strcmp(t->run_id, run_id) == 0) return t;
    }
    return trunk_new(owner, run_id);
}

int relay_trunk_add(struct relay_node *node, const char *run_id, const char *addr) {
    struct relay_trunk *t = find_trunk(node->owner, run_id);
    int place = t != NULL ? relay_attach(&t->core, addr) : -1;
    if (place < 0) return -ENOMEM;
    node->trunk = t;
    node->place = (uint32_t) place;
    t->nodes[place] = node;
    return 0;
}
