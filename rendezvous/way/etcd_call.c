/* HTTP/1.1 as far as the gateway speaks it: status line, headers, a body by length, by chunks, or to the
 * end of the connection. The body is JSON objects, each on a line. Sizes are bounded; what does not
 * fit ends the call. */
#include "rendezvous/way/etcd_call.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "rendezvous/way/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_MAX ((size_t) 1 << 20)

enum framing { TO_THE_END, BY_LENGTH, BY_CHUNKS };

struct etcd_call {
    struct member_link *link;
    const struct etcd_call_events *events;
    void *arg;
    struct cr_buffer request, raw, body; /* raw: not yet understood; body: not yet a whole line */
    int head_done, status, over;
    enum framing framing;
    size_t left; /* bytes of the body, or of the chunk, that are still to come */
    char own_addr[RDZV_ADDR_MAX];
};

static void on_closed(void *arg) {
    struct etcd_call *call = arg;
    cr_buffer_done(&call->request);
    cr_buffer_done(&call->raw);
    cr_buffer_done(&call->body);
    free(call);
}

void etcd_call_cancel(struct etcd_call *call) {
    if (call->over) return;
    call->over = 1;
    member_link_close(call->link, on_closed, call);
}

static void finish(struct etcd_call *call, const char *why) {
    if (call->over) return;
    etcd_call_cancel(call);
    call->events->on_done(call->arg, why);
}

/* ---- the body: one JSON object a line ---- */

static void answer(struct etcd_call *call, const char *text, size_t len) {
    json_error_t where;
    json_auto_t *root = json_loadb(text, len, 0, &where);
    if (root == NULL) {
        finish(call, "etcd's answer is not JSON");
        return;
    }
    const char *error = json_string_value(json_object_get(root, "message"));
    if (call->status != 200 || error != NULL) {
        char why[300];
        (void) snprintf(why, sizeof(why), "etcd says: %.200s (status %d)", error ? error : "no", call->status);
        finish(call, why);
        return;
    }
    const json_t *result = json_object_get(root, "result");
    call->events->on_answer(call->arg, result != NULL ? result : root, call->own_addr);
}

static void answer_lines(struct etcd_call *call) {
    size_t at = 0;
    while (!call->over && at < call->body.len) {
        const char *line = call->body.data + at;
        const char *end = memchr(line, '\n', call->body.len - at);
        if (end == NULL) break;
        if (end > line) answer(call, line, (size_t) (end - line));
        at += (size_t) (end - line) + 1;
    }
    if (!call->over) cr_buffer_consume(&call->body, at);
}

static void body_ends(struct etcd_call *call) {
    if (!call->over && call->body.len > 0) answer(call, call->body.data, call->body.len);
    finish(call, NULL);
}

/* ---- framing; each returns the bytes it took from raw, 0 when it needs more ---- */

static size_t take_body(struct etcd_call *call, size_t limit) {
    size_t n = call->raw.len < limit ? call->raw.len : limit;
    if (call->body.len + n > ANSWER_MAX || cr_buffer_append(&call->body, call->raw.data, n) < 0) {
        finish(call, "etcd's answer is too long");
    }
    return n;
}

/* The end of the line at the front of raw, or NULL. */
static const char *line_end(const struct etcd_call *call) {
    return call->raw.len > 0 ? memchr(call->raw.data, '\n', call->raw.len) : NULL;
}

static size_t take_chunk(struct etcd_call *call) {
    if (call->left > 2) { /* its data; the CRLF behind it counts as two */
        size_t n = take_body(call, call->left - 2);
        call->left -= n;
        return n;
    }
    const char *end = line_end(call);
    if (end == NULL) {
        if (call->raw.len > 100) finish(call, "etcd sends a bad chunk");
        return 0;
    }
    if (call->left > 0) { /* the CRLF */
        call->left = 0;
        return (size_t) (end - call->raw.data) + 1;
    }
    char digits[20] = "";
    size_t n = (size_t) (end - call->raw.data);
    memcpy(digits, call->raw.data, n < sizeof(digits) - 1 ? n : sizeof(digits) - 1);
    unsigned long size = strtoul(digits, NULL, 16);
    if (size > ANSWER_MAX) finish(call, "etcd sends a bad chunk");
    else if (size == 0) body_ends(call);
    else call->left = size + 2;
    return n + 1;
}

static void header(struct etcd_call *call, const char *line, size_t len) {
    char text[200];
    (void) snprintf(text, sizeof(text), "%.*s", (int) (len < 199 ? len : 199), line);
    if (strncasecmp(text, "HTTP/1.", 7) == 0 && len > 9) {
        call->status = (int) strtoul(text + 9, NULL, 10);
    } else if (strncasecmp(text, "Content-Length:", 15) == 0) {
        call->framing = BY_LENGTH;
        call->left = (size_t) strtoul(text + 15, NULL, 10);
    } else if (strncasecmp(text, "Transfer-Encoding: chunked", 26) == 0) {
        call->framing = BY_CHUNKS;
        call->left = 0;
    }
}

static size_t take_header(struct etcd_call *call) {
    const char *end = line_end(call);
    if (end == NULL) {
        if (call->raw.len > 8192) finish(call, "etcd sends a bad header");
        return 0;
    }
    size_t len = (size_t) (end - call->raw.data);
    if (len <= 1) call->head_done = 1;
    else header(call, call->raw.data, len);
    return len + 1;
}

static size_t take_some(struct etcd_call *call) {
    if (!call->head_done) return take_header(call);
    if (call->framing == BY_CHUNKS) return take_chunk(call);
    if (call->framing == TO_THE_END) return take_body(call, call->raw.len);
    size_t n = take_body(call, call->left);
    call->left -= n;
    if (call->left == 0 && !call->over) body_ends(call);
    return n;
}

/* ---- the connection ---- */

static void on_open(void *arg, const char *own_addr, const char *peer_addr) {
    struct etcd_call *call = arg;
    (void) peer_addr;
    (void) snprintf(call->own_addr, sizeof(call->own_addr), "%s", own_addr);
    if (member_link_send(call->link, call->request.data, call->request.len) < 0) {
        finish(call, "out of memory");
        return;
    }
    member_link_flush(call->link);
}

static void on_data(void *arg, const char *data, size_t len) {
    struct etcd_call *call = arg;
    if (cr_buffer_append(&call->raw, data, len) < 0) {
        finish(call, "out of memory");
        return;
    }
    /* Cancelling keeps the buffers until the link is closed: they may be looked at. */
    for (size_t n = 1; !call->over && n > 0 && call->raw.len > 0;) {
        n = take_some(call);
        if (!call->over) cr_buffer_consume(&call->raw, n);
    }
    if (!call->over) answer_lines(call);
}

static void on_lost(void *arg, const char *why) {
    struct etcd_call *call = arg;
    if (call->head_done && call->framing == TO_THE_END) body_ends(call);
    else finish(call, why);
}

static const struct member_link_events link_events = {
    .on_open = on_open, .on_data = on_data, .on_lost = on_lost};

static void on_never_opened(void *arg) { (void) arg; }

struct etcd_call *etcd_call_start(uv_loop_t *loop, const char *host, uint16_t port, const char *path,
                                  const json_t *body, const struct etcd_call_events *events,
                                  void *arg) {
    CR_AUTO_FREE char *json = json_dumps(body, JSON_COMPACT);
    struct etcd_call *call = calloc(1, sizeof(*call));
    if (json == NULL || call == NULL) goto fail;
    call->events = events;
    call->arg = arg;
    if (cr_buffer_printf(&call->request,
                         "POST %s HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                         path, host, port, strlen(json), json) < 0) {
        goto fail;
    }
    call->link = member_link_new(loop, host, port, &link_events, call);
    if (call->link == NULL) goto fail;
    if (member_link_open(call->link) == 0) return call;
    member_link_close(call->link, on_never_opened, NULL);

fail:
    if (call != NULL) cr_buffer_done(&call->request);
    free(call);
    return NULL;
}
