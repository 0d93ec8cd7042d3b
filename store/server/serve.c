/* Serves received bytes. The first bytes of a connection show which dialect the client speaks.
 * After these bytes, each complete request is parsed in the buffer into which it was received, and
 * is carried out. flush.c then sends the replies to all of them together. */
#include "store/server/server_internal.h"

#include <string.h>

/* ---- carrying out one request ---- */

/* Returns whether the request names options.refused_key, which no client may use. */
static bool is_refused(const struct store_server *server, const struct store_request *request) {
    const char *key = request->key.data;
    size_t len = request->key.len;
    if (server->refused_key == NULL || len == 0) return false;
    if (key[0] == '/') {
        key++;
        len--;
    }
    return len == strlen(server->refused_key) && memcmp(key, server->refused_key, len) == 0;
}

static void apply(struct store_connection *c, const struct store_request *request) {
    struct store_space *space = c->space;
    if (is_refused(space->server, request)) {
        store_connection_close(c, space->server->refused_why);
        return;
    }
    const char *reason = NULL;
    bool is_list = request->op == STORE_OP_LIST_KEYS;
    store_turn_add(space->server, is_list ? space->keys.table.count : request->item_count);
    int64_t now = (int64_t) uv_now(&space->server->loop);
    space->operations++;
    int rc = store_keyspace_apply(&space->keys, &c->session, request, now, &reason);
    if (rc < 0) store_connection_close(c, reason);
    if (rc == 0 && c->session.listing != NULL) c->stalled = true;
}

static void serve_admin(struct store_connection *c, uint8_t request) {
    struct cr_buffer text = {0};
    struct store_output *out = &c->session.out;
    if (request != STORE_ADMIN_STAT) {
        store_connection_close(c, "unknown administration request");
        return;
    }
    store_count_rate(c->space);
    int rc = store_stat(c->space, &text);
    store_turn_add_stat(c->space->server, text.len);
    if (rc == 0) rc = store_output_u64(out, text.len);
    if (rc == 0) rc = store_output_bytes(out, text.data, text.len);
    cr_buffer_done(&text);
    if (rc < 0) store_connection_close(c, "out of memory");
}

/* ---- finding the dialect of a connection ---- */

/* Passes the connection to the callback that is registered for its first bytes, a magic number; the
 * callback takes over the descriptor. If no callback is registered for these bytes, closes the
 * connection. */
static void hand_over(struct store_connection *c, const uint8_t *data, size_t len) {
    struct store_server *server = c->space->server;
    for (size_t i = 0; i < server->magic_count; i++) {
        const struct store_magic *m = &server->magics[i];
        if (memcmp(m->magic, data, STORE_MAGIC_LEN) != 0) continue;
        struct store_handoff handoff = {.space = c->space, .fd = c->fd, .data = data, .len = len};
        store_connection_release(c);
        (void) atomic_fetch_add(&server->passed_on, 1);
        m->fn(m->arg, &handoff);
        return;
    }
    store_connection_close(c, "its first bytes belong to no known protocol");
}

/* Finds the dialect from the first bytes of a connection. Returns the length of the handshake in
 * bytes. If more bytes are needed, returns 0 and leaves the dialect at STORE_DIALECT_NONE. */
static size_t greet(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t consumed = 0;
    enum store_dialect dialect = STORE_DIALECT_NONE;
    if (store_detect(data, len, &dialect, &consumed) == 0) return 0;
    store_limit_spoke(c);
    c->parser.dialect = dialect;
    c->session.legacy = dialect == STORE_DIALECT_LEGACY;
    if (dialect == STORE_DIALECT_ADMIN) {
        c->admin = true;
        c->space->admin_count++;
    }
    if (dialect == STORE_DIALECT_FOREIGN) hand_over(c, data, len);
    if (c->stranger && !c->closing) store_connection_refuse(c);
    if (c->spare && !c->admin && !c->closing) store_connection_close(c, "too many clients");
    return consumed;
}

/* ---- requests ---- */

/* Call this when `data` holds only the beginning of a request. If only the rest of a big value is
 * missing, the function allocates c->block, into which this rest will be received directly, and
 * copies the beginning of the value there. The block grows as bytes arrive (connection.c), so that
 * a client cannot make the server reserve memory by announcing a value alone. Returns how many
 * bytes of `data` the caller must keep: with a block, the bytes before the value; otherwise all. */
static size_t begin_block(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t head;
    size_t full = store_parser_block(&c->parser, &head);
    if (full == 0) return len;
    size_t first = len - head > STORE_READ_SIZE / 2 ? 2 * (len - head) : STORE_READ_SIZE;
    c->block = store_value_new(first < full ? first : full);
    if (c->block == NULL) {
        store_connection_close(c, "out of memory");
        return 0;
    }
    c->block_len = full;
    c->sends_big = true;
    c->block->len = (uint32_t) (len - head);
    memcpy(c->block->data, data + head, len - head);
    return head;
}

void store_serve_block(struct store_connection *c) {
    struct store_request request;
    struct store_value *block = c->block;
    c->block = NULL;
    /* From now on the key space counts the memory of the block, so the connection's memory is
     * counted anew, without the block. */
    store_connection_charge(c);
    store_parser_complete(&c->parser, c->rx.data, (struct store_bytes){block->data, block->len},
                          &request);
    request.block = block;
    apply(c, &request);
    store_value_unref(block);
    store_parser_next(&c->parser);
    if (!c->closing) cr_buffer_done(&c->rx);
}

struct store_progress store_serve(struct store_connection *c, const uint8_t *data, size_t len) {
    size_t at = 0;
    if (c->parser.dialect == STORE_DIALECT_NONE) at = greet(c, data, len);
    while (at < len && !c->closing) {
        if (c->parser.dialect == STORE_DIALECT_NONE) break;
        if (!store_turn_goes_on(c) && store_turn_stall(c)) break;
        if (c->parser.dialect == STORE_DIALECT_ADMIN) {
            serve_admin(c, data[at++]);
            continue;
        }
        struct store_request request;
        int rc = store_parse(&c->parser, data + at, len - at, &request);
        if (rc == 0) return (struct store_progress){at, begin_block(c, data + at, len - at)};
        if (rc < 0) {
            store_connection_close(c, c->parser.reason);
            break;
        }
        at += request.size;
        c->sends_big = false;
        apply(c, &request);
        store_parser_next(&c->parser);
    }
    return (struct store_progress){at, len - at};
}
