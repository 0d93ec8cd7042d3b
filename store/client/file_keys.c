/* The keys of a file store in memory: a tsearch(3) tree for finding a key, and a list of all keys
 * for listing and freeing them. */
#include "store/client/file_keys.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* Compares keys by length, then by bytes. The tree needs a total order of the keys, but no
 * particular one. */
static int compare(const void *a, const void *b) {
    const struct store_bytes *x = a, *y = b;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->len == 0 ? 0 : memcmp(x->data, y->data, x->len);
}

static struct store_file_key *find(const struct store_file_keys *keys, struct store_bytes key) {
    void *node = tfind(&key, &keys->tree, compare);
    return node == NULL ? NULL : *(struct store_file_key **) node;
}

const struct store_bytes *store_file_keys_find(const struct store_file_keys *keys,
                                               struct store_bytes key) {
    const struct store_file_key *k = find(keys, key);
    return k == NULL ? NULL : &k->value;
}

/* Returns a malloc'ed copy of the bytes, or NULL if memory is short. The copy of an empty byte
 * string is not NULL. */
static void *copy_of(struct store_bytes bytes) {
    void *copy = malloc(bytes.len + 1);
    if (copy != NULL && bytes.len > 0) memcpy(copy, bytes.data, bytes.len);
    return copy;
}

static void free_bytes(struct store_bytes bytes) { free((void *) (uintptr_t) bytes.data); }

static void free_key(struct store_file_key *k) {
    free_bytes(k->key);
    free_bytes(k->value);
    free(k);
}

static int insert(struct store_file_keys *keys, struct store_bytes key, struct store_bytes value) {
    struct store_file_key *k = calloc(1, sizeof(*k));
    if (k == NULL) return -ENOMEM;
    k->value = value;
    k->key = (struct store_bytes){copy_of(key), key.len};
    if (k->key.data == NULL || tsearch(k, &keys->tree, compare) == NULL) {
        free_bytes(k->key);
        free(k);
        return -ENOMEM;
    }
    LIST_INSERT_HEAD(&keys->all, k, next);
    keys->count++;
    return 0;
}

int store_file_keys_put(struct store_file_keys *keys, struct store_bytes key,
                        struct store_bytes value) {
    struct store_bytes copy = {copy_of(value), value.len};
    if (copy.data == NULL) return -ENOMEM;
    struct store_file_key *k = find(keys, key);
    if (k != NULL) {
        free_bytes(k->value);
        k->value = copy;
        return 0;
    }
    int rc = insert(keys, key, copy);
    if (rc < 0) free_bytes(copy);
    return rc;
}

void store_file_keys_remove(struct store_file_keys *keys, struct store_bytes key) {
    struct store_file_key *k = find(keys, key);
    if (k == NULL) return;
    (void) tdelete(&key, &keys->tree, compare);
    LIST_REMOVE(k, next);
    keys->count--;
    free_key(k);
}

/* Callback of tdestroy(), which calls it for each item. It frees nothing, because
 * store_file_keys_clear() frees all items itself. */
static void keep_item(void *item) { (void) item; }

void store_file_keys_clear(struct store_file_keys *keys) {
    tdestroy(keys->tree, keep_item);
    while (!LIST_EMPTY(&keys->all)) {
        struct store_file_key *k = LIST_FIRST(&keys->all);
        LIST_REMOVE(k, next);
        free_key(k);
    }
    *keys = (struct store_file_keys){0};
}
