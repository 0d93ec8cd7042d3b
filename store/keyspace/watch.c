/* Watches. After a client (torch 1.13) has sent WATCH for a key, each change of the key is sent
 * ("pushed") to its session without a further request.
 *
 * One request can cause any number of pushes, and the caller adds the output of a session to
 * ks->memory only when it sends this output. Therefore this file checks the memory limits at each
 * push. A session that exceeds a limit is marked as lost and gets no more pushes; the caller closes
 * it. */
#include "store/keyspace/keyspace_internal.h"

#define WATCH_COST (sizeof(struct store_watch) + STORE_MALLOC_OVERHEAD)

int store_watch_add(struct store_operation *op) {
    struct store_keyspace *ks = op->ks;
    int rc;
    struct store_entry *e = store_entry_obtain(op, op->request->key, &rc);
    if (e == NULL) return rc;
    rc = store_afford(op, WATCH_COST + store_extra_cost(e));
    struct store_watch *w = rc < 0 ? NULL : malloc(sizeof(*w));
    struct store_extra *x = w == NULL ? NULL : store_entry_obtain_extra(ks, e);
    if (x == NULL) {
        free(w);
        store_entry_drop_if_empty(ks, e);
        return rc < 0 ? rc : store_fail_memory(op);
    }
    w->entry = e;
    w->session = op->session;
    LIST_INSERT_HEAD(&x->watches, w, next);
    SLIST_INSERT_HEAD(&op->session->watches, w, next_own);
    ks->memory += WATCH_COST;
    return 0;
}

void store_watch_drop_all(struct store_keyspace *ks, struct store_session *s) {
    while (!SLIST_EMPTY(&s->watches)) {
        struct store_watch *w = SLIST_FIRST(&s->watches);
        struct store_entry *e = w->entry;
        SLIST_REMOVE_HEAD(&s->watches, next_own);
        LIST_REMOVE(w, next);
        ks->memory -= WATCH_COST;
        free(w);
        store_entry_drop_if_empty(ks, e);
    }
}

/* ---- pushes ---- */

static bool push_fits(struct store_keyspace *ks, struct store_session *s, size_t bytes) {
    if (s->lost != NULL) return false;
    ks->pushed += bytes;
    s->pushed += bytes;
    if (s->out.pending > ks->reply_max) {
        s->lost = "it does not read its replies";
    } else if (s->pushed > STORE_PUSH_FREE && !store_keyspace_affords(ks, ks->pushed)) {
        s->lost = STORE_MEMORY_LIMIT_REACHED;
    }
    return s->lost == NULL;
}

static void push(struct store_keyspace *ks, const struct store_watch *w, uint8_t code,
                 struct store_value *old_value, struct store_value *new_value) {
    struct store_session *s = w->session;
    struct store_output *out = &s->out;
    size_t bytes = 9 + w->entry->key_len + store_output_copies(old_value) +
                   store_output_copies(new_value);
    store_session_make_ready(ks, s);
    if (!push_fits(ks, s, bytes)) return;
    int rc = store_output_u8(out, code);
    if (rc == 0) rc = store_output_u64(out, w->entry->key_len);
    if (rc == 0) rc = store_output_bytes(out, w->entry->key, w->entry->key_len);
    if (rc == 0) rc = store_output_value(out, old_value);
    if (rc == 0) rc = store_output_value(out, new_value);
    if (rc < 0) s->lost = "out of memory";
}

void store_watch_notify(struct store_keyspace *ks, struct store_entry *e, uint8_t code,
                        struct store_value *old_value, struct store_value *new_value) {
    if (!store_entry_watched(e)) return;
    const struct store_watch *w;
    LIST_FOREACH (w, &e->extra->watches, next) push(ks, w, code, old_value, new_value);
}
