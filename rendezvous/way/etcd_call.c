/* One call to etcd: it sends the HTTP request over a tcp_stream, and passes the bytes that come
 * back to the parser in etcd_answer.c. */
#include "rendezvous/way/etcd_call_internal.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "rendezvous/way/etcd_answer_internal.h"
#include "rendezvous/way/tcp_stream_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct etcd_call {
    struct tcp_stream *stream;
    const struct etcd_call_events *events;
    void *arg;
    struct cr_buffer request;
    struct etcd_answer answer;
    bool is_over;
    char own_addr[RDZV_ADDR_MAX];
};

static void on_closed(void *arg) {
    struct etcd_call *call = arg;
    cr_buffer_done(&call->request);
    etcd_answer_done(&call->answer);
    free(call);
}

/* Closes the stream, and frees the buffers only when the stream is closed, because the caller may
 * be the parser, which still uses them. */
void etcd_call_cancel(struct etcd_call *call) {
    if (call->is_over) return;
    call->is_over = true;
    tcp_stream_close(call->stream, on_closed, call);
}

static void end_call(struct etcd_call *call, const char *why) {
    if (call->is_over) return;
    etcd_call_cancel(call);
    call->events->on_done(call->arg, why);
}

static int on_object(void *arg, const json_t *object) {
    struct etcd_call *call = arg;
    call->events->on_answer(call->arg, object, call->own_addr);
    return call->is_over ? -ECANCELED : 0;
}

/* ---- the connection ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct etcd_call *call = arg;
    (void) peer_addr;
    (void) snprintf(call->own_addr, sizeof(call->own_addr), "%s", own_addr);
    tcp_stream_send(call->stream, call->request.data, call->request.len);
    tcp_stream_flush(call->stream);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct etcd_call *call = arg;
    struct cr_error err = {0};
    int rc = etcd_answer_receive(&call->answer, data, len, &err);
    if (rc != 0) end_call(call, rc < 0 ? err.text : NULL);
}

static void on_lost(void *arg, enum rendezvous_loss how, const char *why) {
    (void) how;
    struct etcd_call *call = arg;
    struct cr_error err = {0};
    int rc = etcd_answer_end(&call->answer, &err);
    if (rc == -ECONNRESET) end_call(call, why);
    else end_call(call, rc < 0 ? err.text : NULL);
}

static const struct tcp_stream_events stream_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost};

/* ---- starting ---- */

static int write_request(struct etcd_call *call, const char *host, uint16_t port, const char *path,
                         const json_t *body) {
    CR_AUTO_FREE char *json = json_dumps(body, JSON_COMPACT);
    if (json == NULL) return -ENOMEM;
    return cr_buffer_printf(&call->request,
                            "POST %s HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
                            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                            path, host, port, strlen(json), json);
}

struct etcd_call *etcd_call_start(uv_loop_t *loop, const char *host, uint16_t port,
                                  const char *path, const json_t *body,
                                  const struct etcd_call_events *events, void *arg) {
    struct etcd_call *call = calloc(1, sizeof(*call));
    if (call == NULL) return NULL;
    call->events = events;
    call->arg = arg;
    call->answer.on_object = on_object;
    call->answer.arg = call;
    if (write_request(call, host, port, path, body) == 0) {
        call->stream = tcp_stream_new(loop, host, port, &stream_events, call);
    }
    if (call->stream == NULL) {
        on_closed(call);
        return NULL;
    }
    tcp_stream_open(call->stream);
    return call;
}
