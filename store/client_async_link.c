/* One connection on the loop: connects, shakes hands, sends, receives one whole reply at a time.
 *
 * libuv holds its memory until the close callback; the owner is rid of it at once. What is sent
 * belongs to its write. */
#include "store/client_async_internal.h"
#include "store/link_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct store_async_link {
    uv_tcp_t tcp;
    uv_connect_t connect;
    struct store_async *owner;
    const struct store_async_events *on;
    enum store_handshake how;
    int is_connected, is_up, is_closed;
    int expects; /* a reply */
    char stray;
    struct store_answer answer;
};

struct write {
    uv_write_t write;
    struct store_async_link *link;
    struct cr_buffer bytes;
};

int store_async_link_connected(const struct store_async_link *l) { return l->is_connected; }
struct store_answer *store_async_link_answer(struct store_async_link *l) {
    return &l->answer;
}

static void fail(struct store_async_link *l, int code, const char *reason) {
    if (l->is_closed) return;
    if (code == UV_EOF) code = -ECONNRESET;
    l->on->failed(l->owner, code, reason);
}

/* ---- sending ---- */

static void free_write(struct write *w) {
    cr_buffer_done(&w->bytes);
    free(w);
}

static void on_written(uv_write_t *req, int status) {
    struct write *w = (struct write *) (void *) req;
    struct store_async_link *l = w->link;
    free_write(w);
    if (status < 0) fail(l, status, NULL);
}

int store_async_link_send(struct store_async_link *l, struct cr_buffer *bytes) {
    struct write *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        cr_buffer_done(bytes);
        return -ENOMEM;
    }
    w->link = l;
    w->bytes = *bytes;
    *bytes = (struct cr_buffer){0};
    uv_buf_t buf = {.base = w->bytes.data, .len = w->bytes.len};
    int rc = uv_write(&w->write, (uv_stream_t *) &l->tcp, &buf, 1, on_written);
    if (rc < 0) free_write(w);
    return rc;
}

/* ---- receiving ---- */

void store_async_link_expect(struct store_async_link *l, enum store_reply shape,
                             size_t item_count) {
    store_answer_begin(&l->answer, shape, item_count);
    l->expects = 1;
}

static void shaken(struct store_async_link *l) {
    if (!store_handshake_accepts(l->how, (uint32_t) getpid(), l->answer.number)) {
        fail(l, -EPROTO, NULL);
        return;
    }
    l->is_up = 1;
    l->on->up(l->owner);
}

static void on_room(uv_handle_t *h, size_t suggested, uv_buf_t *buf) {
    struct store_async_link *l = h->data;
    (void) suggested;
    size_t room = 1; /* where nobody asked, one byte is enough to know */
    void *at = l->expects ? store_answer_room(&l->answer, &room) : &l->stray;
    *buf = uv_buf_init(at, at == NULL ? 0 : (unsigned) (room > 1u << 30 ? 1u << 30 : room));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct store_async_link *l = stream->data;
    (void) buf;
    if (n == 0 || l->is_closed) return;
    if (n < 0) {
        fail(l, n == UV_ENOBUFS ? -ENOMEM : (int) n, NULL);
        return;
    }
    if (!l->expects) {
        fail(l, -EPROTO, "bytes that nobody asked for");
        return;
    }
    int rc = store_answer_put(&l->answer, (size_t) n);
    if (rc == 0) return;
    l->expects = 0;
    if (rc < 0)
        fail(l, rc, l->answer.reason);
    else if (!l->is_up)
        shaken(l);
    else
        l->on->answered(l->owner);
}

/* ---- connecting ---- */

static void greet(struct store_async_link *l) {
    struct cr_buffer hello = {0};
    int rc = store_handshake_encode(l->how, (uint32_t) getpid(), &hello);
    store_async_link_expect(l, store_handshake_reply(l->how), 0);
    if (rc == 0) rc = uv_read_start((uv_stream_t *) &l->tcp, on_room, on_read);
    if (rc == 0) rc = store_async_link_send(l, &hello);
    cr_buffer_done(&hello);
    if (rc < 0) fail(l, rc, NULL);
}

static void on_connected(uv_connect_t *req, int status) {
    struct store_async_link *l = req->data;
    if (l->is_closed) return;
    uv_os_fd_t fd = -1;
    if (status == 0) status = uv_fileno((uv_handle_t *) &l->tcp, &fd);
    if (status == 0 && store_link_is_own_end(fd)) status = -ECONNREFUSED;
    if (status < 0) {
        fail(l, status, NULL);
        return;
    }
    l->is_connected = 1;
    greet(l);
}

static void on_closed(uv_handle_t *h) {
    struct store_async_link *l = h->data;
    struct store_async *a = l->owner;
    store_answer_done(&l->answer);
    free(l);
    store_async_release(a);
}

void store_async_link_close(struct store_async_link **at) {
    struct store_async_link *l = *at;
    *at = NULL;
    if (l == NULL) return;
    l->is_closed = 1;
    uv_close((uv_handle_t *) &l->tcp, on_closed);
}

static int start(struct store_async_link *l, const struct sockaddr *to) {
    uv_os_fd_t fd = -1;
    int rc = uv_fileno((uv_handle_t *) &l->tcp, &fd);
    if (rc == 0) store_link_prepare(fd);
    return rc < 0 ? rc : uv_tcp_connect(&l->connect, &l->tcp, to, on_connected);
}

int store_async_link_open(struct store_async *a, const struct sockaddr *to,
                          enum store_handshake how, const struct store_async_events *on,
                          struct store_async_link **out) {
    struct store_async_link *l = calloc(1, sizeof(*l));
    if (l == NULL) return -ENOMEM;
    int rc = uv_tcp_init_ex(a->timer.loop, &l->tcp, to->sa_family);
    if (rc < 0) {
        free(l); /* libuv has not kept it: 1.44 takes the handle off the loop again */
        return rc;
    }
    l->tcp.data = l->connect.data = l;
    l->owner = a;
    l->on = on;
    l->how = how;
    a->held++;
    rc = start(l, to);
    if (rc < 0)
        store_async_link_close(&l);
    else
        *out = l;
    return rc;
}
