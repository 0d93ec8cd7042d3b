/* LIST_KEYS, the only operation whose time grows with the number of all keys.
 *
 * A list of up to list_at_once keys is made at once. A longer list is made in pieces, and the
 * server serves other clients between two pieces: while a million keys are listed, the longest GET
 * of another client takes 9 to 11 ms (docs/benchmarks.md, "What one client notices of another"). */
#include "store/keyspace/keyspace_internal.h"

#include <string.h>

/* Approximately the largest number of pieces of one list: each piece visits at least 1/PIECES_MAX
 * of the buckets, and at least list_step buckets. If pieces had a fixed size, a client that adds
 * keys fast enough could prevent the list from ever being complete. */
#define PIECES_MAX 1024

/* ---- LIST_KEYS in one piece ---- */

static void put_key(void *arg, struct store_entry *e) {
    struct store_output *out = arg;
    if (e->value == NULL) return;
    /* these two calls cannot fail, because list_at_once() has reserved the memory */
    (void) store_output_u64(out, e->key_len);
    (void) store_output_bytes(out, e->key, e->key_len);
}

static int list_at_once(struct store_operation *op, size_t size) {
    struct store_output *out = &op->session->out;
    if (cr_buffer_reserve(&out->bytes, size) < 0) return store_fail_memory(op);
    (void) store_output_u64(out, op->ks->key_count);
    store_key_table_each(&op->ks->table, put_key, out);
    return 0;
}

/* ---- LIST_KEYS in several pieces ---- */

static int begin(struct store_operation *op) {
    struct store_listing *l = calloc(1, sizeof(*l));
    if (l == NULL || cr_buffer_reserve(&l->bytes, 8) < 0) {
        free(l);
        return store_fail_memory(op);
    }
    l->bytes.len = 8; /* room for the number of keys, which is known after the last piece */
    op->session->listing = l;
    return 0;
}

static void add_key(void *arg, struct store_entry *e) {
    struct store_listing *l = arg;
    if (e->value == NULL) return;
    if (cr_buffer_reserve(&l->bytes, 8 + e->key_len) < 0) {
        l->short_of_memory = true;
        return;
    }
    store_put_u64(l->bytes.data + l->bytes.len, e->key_len);
    memcpy(l->bytes.data + l->bytes.len + 8, e->key, e->key_len);
    l->bytes.len += 8 + e->key_len;
    l->count++;
}

void store_listing_drop(struct store_session *s) {
    if (s->listing == NULL) return;
    cr_buffer_done(&s->listing->bytes);
    free(s->listing);
    s->listing = NULL;
}

/* Appends the complete list to the session's output. If the output is empty, which is usual, the
 * output takes over the list's memory, so that the list is not copied. Returns 0 or -ENOMEM. */
static int reply(struct store_session *s) {
    struct store_listing *l = s->listing;
    struct store_output *out = &s->out;
    int rc = 0;
    store_put_u64(l->bytes.data, l->count);
    if (out->pending > 0) {
        rc = store_output_bytes(out, l->bytes.data, l->bytes.len);
    } else {
        store_output_done(out);
        out->bytes = l->bytes;
        out->pending = l->bytes.len;
        l->bytes = (struct cr_buffer){0};
    }
    store_listing_drop(s);
    return rc;
}

int store_keyspace_list_on(struct store_keyspace *ks, struct store_session *s,
                           const char **reason) {
    struct store_listing *l = s->listing;
    size_t steps = ks->table.sizes[0] / PIECES_MAX;
    if (steps < ks->pieces.list_step) steps = ks->pieces.list_step;
    for (size_t i = 0; i < steps && l->cursor < STORE_SCAN_END; i++) {
        l->cursor = store_key_table_scan(&ks->table, l->cursor, add_key, l);
    }
    if (l->bytes.len > ks->reply_max) {
        *reason = "reply too long";
        return -EMSGSIZE;
    }
    *reason = "out of memory";
    if (l->short_of_memory) return -ENOMEM;
    return l->cursor < STORE_SCAN_END ? 1 : reply(s);
}

int store_listing_apply(struct store_operation *op) {
    const struct store_keyspace *ks = op->ks;
    size_t size = 8 + 8 * ks->key_count + ks->key_bytes;
    if (size > ks->reply_max) return store_fail(op, -EMSGSIZE, "reply too long");
    bool is_long = ks->table.count > ks->pieces.list_at_once;
    return is_long && op->session->lists_in_pieces ? begin(op) : list_at_once(op, size);
}
