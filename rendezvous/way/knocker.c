/* Knocks at a job's endpoint: see knocker_internal.h. */
#include "rendezvous/way/knocker_internal.h"

#include "base/buffer.h"
#include "rendezvous/protocol/protocol.h"
#include "rendezvous/dial/dial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time in ms from one knock to the next. A launcher that is started again at the endpoint forms no
 * round before its last call is over (30 s by default), so it gets several knocks before that. */
#define KNOCK_MS 2000

struct knocker {
    uv_loop_t *loop;
    struct knocker_settings set;
    char *host, *run_id;
    char addr[RDZV_ADDR_MAX];
    uint16_t port;
    /* The connection of the last knock; NULL = it is closed. It stays open until the next knock,
     * because the ends must authenticate each other before LEADS is sent. */
    struct secured_stream *stream;
    uv_timer_t timer;
    int open_handles; /* number of streams that are not freed yet, plus 1 for the timer */
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static void handle_is_closed(struct knocker *k) {
    if (--k->open_handles > 0) return;
    void (*on_close)(void *) = k->on_close;
    void *arg = k->on_close_arg;
    free(k->host);
    free(k->run_id);
    free(k);
    on_close(arg);
}

static void on_stream_closed(void *arg) { handle_is_closed(arg); }

static void hang_up(struct knocker *k) {
    struct secured_stream *s = k->stream;
    k->stream = NULL;
    if (s != NULL) secured_stream_close(s, on_stream_closed, k);
}

/* ---- one knock ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct knocker *k = arg;
    struct rdzv_message m = {.type = RDZV_LEADS};
    struct cr_buffer bytes = {0};
    uint64_t epoch = 0;
    (void) own_addr, (void) peer_addr;
    bool leads = coordinator_host_leads(k->set.leader, k->run_id, &epoch);
    m.leads = (struct rdzv_leads){.version_min = RDZV_VERSION_MIN, .version_max = RDZV_VERSION_MAX,
                                  .run_id = k->run_id, .epoch = epoch, .addr = k->addr,
                                  .port = k->port};
    if (leads && cr_buffer_append(&bytes, RDZV_MAGIC, RDZV_MAGIC_LEN) == 0 &&
        rdzv_message_encode(&m, RDZV_VERSION_MIN, &bytes) == 0) {
        secured_stream_send(k->stream, bytes.data, bytes.len);
        secured_stream_flush(k->stream);
    }
    cr_buffer_done(&bytes);
}

/* Ignores what the other end sends: LEADS has no answer. */
static void on_data(void *arg, const char *data, size_t len) {
    (void) arg, (void) data, (void) len;
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) how, (void) why;
    hang_up(arg);
}

static void on_refused(void *arg, enum secure_failure failure, const char *why) {
    (void) failure, (void) why;
    hang_up(arg);
}

static const struct secured_stream_events stream_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost, .on_refused = on_refused};

static void on_timer(uv_timer_t *timer) {
    struct knocker *k = timer->data;
    uint64_t epoch;
    hang_up(k);
    if (!coordinator_host_leads(k->set.leader, k->run_id, &epoch)) return;
    k->stream = secured_stream_new(k->loop, k->host, k->set.port, k->set.ring, k->run_id,
                                   &stream_events, k);
    if (k->stream == NULL) return; /* memory is short; the next knock may succeed */
    k->open_handles++;
    secured_stream_open(k->stream);
}

/* ---- the functions of knocker_internal.h ---- */

struct knocker *knocker_new(uv_loop_t *loop, const struct knocker_settings *settings) {
    struct knocker *k = calloc(1, sizeof(*k));
    if (k == NULL) return NULL;
    k->loop = loop;
    k->set = *settings;
    k->host = strdup(settings->host);
    k->run_id = strdup(settings->run_id);
    if (k->host == NULL || k->run_id == NULL) {
        free(k->host);
        free(k->run_id);
        free(k);
        return NULL;
    }
    (void) uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    k->open_handles = 1;
    return k;
}

void knocker_start(struct knocker *k, const char *addr, uint16_t port) {
    (void) snprintf(k->addr, sizeof(k->addr), "%s", addr);
    k->port = port;
    (void) uv_timer_start(&k->timer, on_timer, KNOCK_MS, KNOCK_MS);
}

void knocker_stop(struct knocker *k) {
    (void) uv_timer_stop(&k->timer);
    hang_up(k);
}

static void on_timer_closed(uv_handle_t *handle) { handle_is_closed(handle->data); }

void knocker_close(struct knocker *k, void (*on_close)(void *arg), void *arg) {
    k->on_close = on_close;
    k->on_close_arg = arg;
    knocker_stop(k);
    uv_close((uv_handle_t *) &k->timer, on_timer_closed);
}
