/* Knocks at a job's endpoint: see knocker_internal.h. */
#include "rendezvous/way/knocker_internal.h"

#include "base/buffer.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/way/tcp_stream_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* time in ms from one knock to the next. A launcher that is started again at the endpoint waits for
 * the last call (30 s by default) before it forms a round of its own. */
#define KNOCK_MS 2000

struct knocker {
    struct tcp_stream *stream;
    const struct coordinator_host *leader;
    char *run_id;
    char addr[RDZV_ADDR_MAX];
    uint16_t port;
    uv_timer_t timer;
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct knocker *k = arg;
    struct rdzv_message m = {.type = RDZV_LEADS};
    struct cr_buffer bytes = {0};
    uint64_t epoch = 0;
    (void) own_addr, (void) peer_addr;
    bool leads = coordinator_host_leads(k->leader, k->run_id, &epoch);
    m.leads = (struct rdzv_leads){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
                                  .run_id = k->run_id, .epoch = epoch, .addr = k->addr,
                                  .port = k->port};
    if (leads && cr_buffer_append(&bytes, RDZV_MAGIC, RDZV_MAGIC_LEN) == 0 &&
        rdzv_message_encode(&m, RDZV_VERSION_MIN, &bytes) == 0) {
        tcp_stream_send(k->stream, bytes.data, bytes.len);
    }
    cr_buffer_done(&bytes);
    tcp_stream_shut(k->stream);
}

/* LEADS has no answer, so on_data() and on_lost() have nothing to do. */
static void on_data(void *arg, const char *data, size_t len) { (void) arg, (void) data, (void) len; }

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) arg, (void) how, (void) why;
}

static const struct tcp_stream_events stream_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost};

static void on_timer(uv_timer_t *timer) {
    struct knocker *k = timer->data;
    uint64_t epoch;
    tcp_stream_shut(k->stream);
    if (coordinator_host_leads(k->leader, k->run_id, &epoch)) tcp_stream_open(k->stream);
}

struct knocker *knocker_new(uv_loop_t *loop, const char *host, uint16_t port, const char *run_id,
                            const struct coordinator_host *leader) {
    struct knocker *k = calloc(1, sizeof(*k));
    if (k == NULL) return NULL;
    k->leader = leader;
    k->run_id = strdup(run_id);
    if (k->run_id != NULL) k->stream = tcp_stream_new(loop, host, port, &stream_events, k);
    if (k->stream == NULL) {
        free(k->run_id);
        free(k);
        return NULL;
    }
    (void) uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    return k;
}

void knocker_start(struct knocker *k, const char *addr, uint16_t port) {
    (void) snprintf(k->addr, sizeof(k->addr), "%s", addr);
    k->port = port;
    (void) uv_timer_start(&k->timer, on_timer, KNOCK_MS, KNOCK_MS);
}

void knocker_stop(struct knocker *k) {
    (void) uv_timer_stop(&k->timer);
    tcp_stream_shut(k->stream);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct knocker *k = handle->data;
    void (*on_close)(void *) = k->on_close;
    void *arg = k->on_close_arg;
    free(k->run_id);
    free(k);
    on_close(arg);
}

static void on_stream_closed(void *arg) {
    struct knocker *k = arg;
    uv_close((uv_handle_t *) &k->timer, on_timer_closed);
}

void knocker_close(struct knocker *k, void (*on_close)(void *arg), void *arg) {
    k->on_close = on_close;
    k->on_close_arg = arg;
    tcp_stream_close(k->stream, on_stream_closed, k);
}
