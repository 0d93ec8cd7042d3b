/* The connections of gateways (store/gateway), and the trunks that outlive them.
 *
 * A connection that begins with the magic number of gateways leaves the server's epoll instance and
 * becomes a `struct gate_line`, a libuv handle on the server's loop. Its first message, HELLO,
 * names a trunk. If the space has this trunk already, the new connection replaces the trunk's
 * earlier one.
 *
 * A space serves gateways of one round only, from store_space_begin_round() until the space is
 * cleared or closed. So no gateway can write into the store of another round. */
#include "store/server/server_internal.h"

#include "base/cleanup.h"
#include "base/log/log.h"
#include "store/gateway/gateway.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GREETING_MS 10000 /* longest time in ms from the opening of a connection to its HELLO */
/* Time in ms for which a trunk without a connection is kept. A node that is cut off for longer has
 * lost its lease, and its round is over. */
#define LINGER_MS   UINT64_C(300000)
#define READ_SIZE   ((size_t) 64 << 10)

/* One connection of a gateway. */
struct gate_line {
    uv_tcp_t tcp;
    uv_timer_t greeting;
    uv_write_t write;
    struct store_server *server;
    struct store_space *space;     /* NULL once the space has dropped this connection */
    LIST_ENTRY(gate_line) next;    /* links of space->lines */
    struct store_trunk *trunk;     /* NULL until HELLO has come */
    struct store_codec functions;  /* the codec of the space */
    void *codec;                   /* result of the codec's open(); NULL if the space has no
                                    * codec */
    struct cr_buffer in, out, writing;
    bool is_writing;
    uv_work_t work;                /* the work() of the codec */
    bool is_working;               /* true: `work` is under way; it counts as a handle */
    int handles;                   /* libuv handles that are not closed yet */
};

/* One trunk of a gateway. */
struct store_trunk {
    LIST_ENTRY(store_trunk) next; /* links of space->trunks */
    uint8_t id[STORE_GATEWAY_ID];
    struct store_space *space;
    struct store_gate *gate;
    struct gate_line *line;       /* NULL while there is no connection */
    uint64_t lost_ms;             /* time in ms at which the last connection ended */
    size_t charged;               /* bytes by which the trunk has raised space->keys.memory */
};

/* ---- the end of connections and trunks ---- */

static void drop_handle(struct gate_line *line) {
    if (--line->handles > 0) return;
    if (line->codec != NULL) line->functions.close(line->codec);
    cr_buffer_done(&line->in);
    cr_buffer_done(&line->out);
    cr_buffer_done(&line->writing);
    store_server_given_back(line->server);
    free(line);
}

static void on_handle_closed(uv_handle_t *handle) { drop_handle(handle->data); }

/* Closes a connection; its trunk, if it has one, waits for the next connection. */
static void close_line(struct gate_line *line) {
    struct store_space *space = line->space;
    if (space == NULL) return;
    line->space = NULL;
    LIST_REMOVE(line, next);
    space->line_count--;
    if (line->trunk != NULL) {
        line->trunk->line = NULL;
        line->trunk->lost_ms = uv_now(&line->server->loop);
    }
    uv_close((uv_handle_t *) &line->tcp, on_handle_closed);
    uv_close((uv_handle_t *) &line->greeting, on_handle_closed);
}

static void free_trunk(struct store_trunk *t) {
    if (t->line != NULL) close_line(t->line);
    LIST_REMOVE(t, next);
    t->space->keys.memory -= t->charged;
    store_gate_free(t->gate);
    free(t);
}

/* Call this when a gateway has violated the protocol or memory is short. The function logs `why`,
 * closes the trunk's connection and frees the trunk. When the gateway connects again, it is
 * refused, and closes the connections of its workers. */
static void end_trunk(struct store_trunk *t, const char *why) {
    cr_log_limited(&t->space->server->client_lines, CR_LOG_WARN,
                   "the store ends the trunk of a gateway: %s", why);
    free_trunk(t);
}

void store_gates_drop(struct store_space *space) {
    while (!LIST_EMPTY(&space->trunks)) free_trunk(LIST_FIRST(&space->trunks));
    while (!LIST_EMPTY(&space->lines)) close_line(LIST_FIRST(&space->lines));
    space->has_round = false;
}

/* ---- sending ---- */

static void flush_line(struct gate_line *line);

static void on_written(uv_write_t *write, int status) {
    struct gate_line *line = write->data;
    line->is_writing = false;
    cr_buffer_clear(&line->writing);
    if (line->space == NULL) return;
    if (status < 0) close_line(line);
    else flush_line(line);
}

/* Sends line->out: as much as the kernel takes at once, the rest by uv_write(). Closes the
 * connection on error. */
static void flush_line(struct gate_line *line) {
    uv_stream_t *tcp = (uv_stream_t *) &line->tcp;
    if (line->is_writing || line->out.len == 0) return;
    uv_buf_t all = uv_buf_init(line->out.data, (unsigned) line->out.len);
    int sent = uv_try_write(tcp, &all, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        close_line(line);
        return;
    }
    if (sent > 0) line->space->bytes_out += (uint64_t) sent;
    cr_buffer_consume(&line->out, sent > 0 ? (size_t) sent : 0);
    if (line->out.len == 0) return;
    struct cr_buffer spare = line->writing;
    line->writing = line->out;
    line->out = spare;
    uv_buf_t rest = uv_buf_init(line->writing.data, (unsigned) line->writing.len);
    line->is_writing = uv_write(&line->write, tcp, &rest, 1, on_written) == 0;
    if (!line->is_writing) close_line(line);
}

/* Appends bytes to line->out, through the space's codec if it has one. Returns 0 or -ENOMEM. */
static int send_bytes(struct gate_line *line, const void *data, size_t len) {
    if (line->codec == NULL) return cr_buffer_append(&line->out, data, len);
    return line->functions.send(line->codec, data, len, &line->out);
}

static void charge(struct store_trunk *t) {
    size_t held = store_gate_held(t->gate);
    t->space->keys.memory += held - t->charged;
    t->charged = held;
}

/* Sends the bytes that the gate has for the gateway, if the trunk has a connection. Ends the trunk
 * if memory is short. */
static void flush_trunk(struct store_trunk *t) {
    struct gate_line *line = t->line;
    if (line == NULL) {
        charge(t);
        return;
    }
    struct cr_buffer *out = store_gate_out(t->gate);
    if (out == NULL || send_bytes(line, out->data, out->len) < 0) {
        end_trunk(t, "out of memory");
        return;
    }
    cr_buffer_clear(out);
    charge(t);
    flush_line(line);
}

void store_gates_flush(struct store_space *space, struct store_session *session) {
    struct store_trunk *t;
    LIST_FOREACH (t, &space->trunks, next) {
        if (t->gate == session->gate) break;
    }
    if (t == NULL) return;
    if (store_gate_wake(session) < 0) end_trunk(t, "out of memory");
    else flush_trunk(t);
}

/* ---- greeting ---- */

static struct store_trunk *find_trunk(struct store_space *space, const uint8_t *id) {
    struct store_trunk *t;
    LIST_FOREACH (t, &space->trunks, next) {
        if (memcmp(t->id, id, STORE_GATEWAY_ID) == 0) return t;
    }
    return NULL;
}

/* Frees the trunks that have had no connection for LINGER_MS. */
static void drop_old_trunks(struct store_space *space) {
    struct store_trunk *t, *next;
    uint64_t now = uv_now(&space->server->loop);
    for (t = LIST_FIRST(&space->trunks); t != NULL; t = next) {
        next = LIST_NEXT(t, next);
        if (t->line == NULL && now - t->lost_ms >= LINGER_MS) free_trunk(t);
    }
}

static struct store_trunk *new_trunk(struct store_space *space, const uint8_t *id) {
    struct store_trunk *t = calloc(1, sizeof(*t));
    if (t == NULL) return NULL;
    t->gate = store_gate_new(&space->keys, &space->server->limits, &space->operations);
    if (t->gate == NULL) {
        free(t);
        return NULL;
    }
    t->space = space;
    memcpy(t->id, id, STORE_GATEWAY_ID);
    LIST_INSERT_HEAD(&space->trunks, t, next);
    return t;
}

/* Finds or creates the trunk that HELLO names, and gives it this connection. Returns the answer to
 * HELLO; if it is not OK, the connection has no trunk. */
static enum store_gateway_answer attach(struct gate_line *line,
                                        const struct store_gateway_hello *hello) {
    struct store_space *space = line->space;
    if (hello->incarnation != space->incarnation || hello->round != space->round) {
        return STORE_GATEWAY_ROUND;
    }
    struct store_trunk *t = find_trunk(space, hello->id);
    if (t == NULL && hello->received == 0) t = new_trunk(space, hello->id);
    if (t == NULL || store_gate_connected(t->gate, hello->received) < 0) return STORE_GATEWAY_LOST;
    if (t->line != NULL) close_line(t->line);
    t->line = line;
    line->trunk = t;
    return STORE_GATEWAY_OK;
}

/* If HELLO has come completely, handles it and sends the answer. Returns 0, also if more bytes are
 * needed. After a negative errno, the caller must close the connection. */
static int greet(struct gate_line *line) {
    struct store_gateway_hello hello;
    uint8_t welcome[STORE_GATEWAY_WELCOME];
    if (line->in.len < STORE_GATEWAY_HELLO) return 0;
    int rc = store_gateway_read_hello((const uint8_t *) line->in.data, &hello);
    if (rc < 0) return rc;
    drop_old_trunks(line->space);
    enum store_gateway_answer answer = attach(line, &hello);
    welcome[0] = (uint8_t) answer;
    store_put_u64(welcome + 1, line->trunk != NULL ? store_gate_received(line->trunk->gate) : 0);
    cr_buffer_consume(&line->in, STORE_GATEWAY_HELLO);
    rc = send_bytes(line, welcome, sizeof(welcome));
    if (rc == 0) flush_line(line);
    /* A gateway that is refused closes the connection. If it does not, on_greeting() closes it when
     * the timer expires. */
    if (answer == STORE_GATEWAY_OK) (void) uv_timer_stop(&line->greeting);
    return rc;
}

static void on_greeting(uv_timer_t *timer) { close_line(timer->data); }

/* ---- receiving ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    const struct gate_line *line = handle->data;
    (void) suggested;
    *buf = uv_buf_init((char *) line->server->rx, READ_SIZE);
}

/* Handles the bytes in line->in: first HELLO, after it the bytes of the trunk. */
static void take_plain(struct gate_line *line) {
    if (line->trunk == NULL && greet(line) < 0) {
        close_line(line);
        return;
    }
    struct store_trunk *t = line->trunk;
    if (line->space == NULL || t == NULL) return;
    struct store_space *space = line->space;
    int64_t now = (int64_t) uv_now(&line->server->loop);
    int rc = store_gate_receive(t->gate, line->in.data, line->in.len, now);
    cr_buffer_clear(&line->in);
    store_count_rate(space);
    if (rc == 0) flush_trunk(t);
    else end_trunk(t, rc == -ENOMEM ? "out of memory" : "it does not follow the protocol");
    store_turn_flush_woken(space);
}

static void begin_work(struct gate_line *line);

/* Sends and handles what the codec's receive() or worked(), which has returned `rc`, has appended
 * to line->out and line->in. */
static void take_decoded(struct gate_line *line, int rc) {
    flush_line(line);
    if (line->space == NULL) return;
    if (rc < 0) close_line(line);
    else if (line->functions.needs_work(line->codec)) begin_work(line);
    else if (line->in.len > 0) take_plain(line);
}

static void do_work(uv_work_t *work) {
    struct gate_line *line = work->data;
    line->functions.work(line->codec);
}

static void on_worked(uv_work_t *work, int status) {
    struct gate_line *line = work->data;
    (void) status; /* nobody cancels the work */
    line->is_working = false;
    if (line->space != NULL) {
        take_decoded(line, line->functions.worked(line->codec, &line->in, &line->out));
    }
    drop_handle(line);
}

static void begin_work(struct gate_line *line) {
    if (line->is_working) return;
    line->is_working = true;
    line->handles++;
    (void) uv_queue_work(&line->server->loop, &line->work, do_work, on_worked);
}

/* Appends received bytes to line->in, through the codec if there is one, and handles them. */
static void take_bytes(struct gate_line *line, const void *data, size_t len) {
    struct cr_buffer *in = &line->in;
    line->space->bytes_in += len;
    if (line->codec != NULL) {
        take_decoded(line, line->functions.receive(line->codec, data, len, in, &line->out));
    } else if (cr_buffer_append(in, data, len) < 0) {
        close_line(line);
    } else {
        take_plain(line);
    }
}

static void on_read(uv_stream_t *tcp, ssize_t n, const uv_buf_t *buf) {
    struct gate_line *line = tcp->data;
    if (line->space == NULL) return;
    if (n > 0) take_bytes(line, buf->base, (size_t) n);
    else if (n < 0) close_line(line);
}

/* ---- beginning ---- */

static void init_handles(struct gate_line *line) {
    (void) uv_tcp_init(&line->server->loop, &line->tcp);
    (void) uv_timer_init(&line->server->loop, &line->greeting);
    line->tcp.data = line->greeting.data = line->write.data = line->work.data = line;
    line->handles = 2;
}

/* Callback of the magic number of gateways: takes over the connection. */
static void on_handoff(void *arg, const struct store_handoff *handoff) {
    struct store_server *server = arg;
    struct store_space *space = handoff->space;
    struct gate_line *line = space->has_round ? calloc(1, sizeof(*line)) : NULL;
    if (line == NULL) { /* no round has begun, or memory is short; the gateway tries again soon */
        store_close_softly(handoff->fd);
        store_server_given_back(server);
        return;
    }
    line->server = server;
    line->space = space;
    LIST_INSERT_HEAD(&space->lines, line, next);
    space->line_count++;
    init_handles(line);
    int rc = uv_tcp_open(&line->tcp, handoff->fd);
    if (rc < 0) (void) close(handoff->fd);
    if (rc == 0) rc = uv_read_start((uv_stream_t *) &line->tcp, on_alloc, on_read);
    if (rc == 0) rc = uv_timer_start(&line->greeting, on_greeting, GREETING_MS, 0);
    line->functions = space->codec;
    if (rc == 0 && space->codec.open != NULL) {
        line->codec = space->codec.open(space->codec.arg);
        if (line->codec == NULL) rc = -ENOMEM;
    }
    if (rc < 0) close_line(line);
    else take_bytes(line, handoff->data, handoff->len);
}

int store_server_serve_gateways(struct store_server *server, const void *magic) {
    return store_server_register_magic(server, magic, on_handoff, server);
}
