/* Finds, creates and drops entries of the key table, and counts the memory that they use. */
#include "store/keyspace/keyspace_internal.h"

/* ---- memory ---- */

bool store_keyspace_affords(struct store_keyspace *ks, size_t more) {
    if (ks->memory_max == 0) return true;
    while (ks->memory + more > ks->memory_max && store_keyspace_free_some(ks)) {
    }
    return ks->memory + more <= ks->memory_max;
}

int store_afford(struct store_operation *op, size_t more) {
    if (store_keyspace_affords(op->ks, more)) return 0;
    return store_fail(op, -ENOSPC, STORE_MEMORY_LIMIT_REACHED);
}

static void count_freed(struct store_keyspace *ks) {
    if (++ks->freed % STORE_MERGE_AFTER == 0) store_heap_merge();
}

void store_keyspace_release(struct store_keyspace *ks, struct store_value *v) {
    store_value_release(v, &ks->memory);
    if (v != NULL) count_freed(ks);
}

/* ---- entries ---- */

static struct store_entry *create(struct store_operation *op, uint32_t hash, struct store_bytes key,
                                  int *rc) {
    *rc = store_afford(op, store_entry_cost(key.len));
    if (*rc < 0) return NULL;
    struct store_entry *e = store_key_table_insert(&op->ks->table, hash, key.data, key.len);
    if (e == NULL) {
        *rc = store_fail_memory(op);
        return NULL;
    }
    op->ks->memory += store_entry_cost(key.len);
    return e;
}

struct store_entry *store_entry_obtain_hashed(struct store_operation *op, uint32_t hash,
                                              struct store_bytes key, int *rc) {
    struct store_key_table *t = &op->ks->table;
    struct store_entry *e = store_key_table_find_hashed(t, hash, key.data, key.len);
    *rc = 0;
    return e != NULL ? e : create(op, hash, key, rc);
}

struct store_entry *store_entry_obtain(struct store_operation *op, struct store_bytes key,
                                       int *rc) {
    uint32_t hash = store_key_table_hash(&op->ks->table, key.data, key.len);
    return store_entry_obtain_hashed(op, hash, key, rc);
}

struct store_extra *store_entry_obtain_extra(struct store_keyspace *ks, struct store_entry *e) {
    if (e->extra != NULL) return e->extra;
    struct store_extra *x = calloc(1, sizeof(*x));
    if (x == NULL) return NULL;
    TAILQ_INIT(&x->waiters);
    STAILQ_INIT(&x->queue);
    e->extra = x;
    ks->memory += STORE_EXTRA_COST;
    return x;
}

static bool is_empty(const struct store_extra *x) {
    return TAILQ_EMPTY(&x->waiters) && LIST_EMPTY(&x->watches) && STAILQ_EMPTY(&x->queue);
}

void store_entry_drop_if_empty(struct store_keyspace *ks, struct store_entry *e) {
    if (e->extra != NULL && is_empty(e->extra)) {
        ks->memory -= STORE_EXTRA_COST;
        free(e->extra);
        e->extra = NULL;
    }
    if (e->value != NULL || e->extra != NULL) return;
    ks->memory -= store_entry_cost(e->key_len);
    store_key_table_remove(&ks->table, e);
    count_freed(ks);
}
