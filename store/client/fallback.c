#include "store/client/fallback.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static int grow(void **block, size_t *cap, size_t need, size_t unit) {
    if (need <= *cap) return 0;
    size_t n = *cap == 0 ? 64 : *cap;
    while (n < need) n *= 2;
    void *more = realloc(*block, n * unit);
    if (more == NULL) return -ENOMEM;
    *block = more;
    *cap = n;
    return 0;
}

int store_list_add(struct store_list_builder *b, const void *data, size_t len) {
    void *block = b->block, *items = b->list.items;
    int rc = grow(&block, &b->block_cap, b->block_len + len + 1, 1);
    b->block = block;
    if (rc == 0) rc = grow(&items, &b->item_cap, b->list.count + 1, sizeof(*b->list.items));
    b->list.items = items;
    if (rc < 0) return rc;
    if (len > 0) memcpy(b->block + b->block_len, data, len);
    b->block[b->block_len + len] = '\0';
    b->list.items[b->list.count++] = (struct store_bytes){(const void *) b->block_len, len};
    b->block_len += len + 1;
    return 0;
}

struct store_list store_list_build(struct store_list_builder *b) {
    struct store_list list = b->list;
    for (size_t i = 0; i < list.count; i++)
        list.items[i].data = b->block + (size_t) list.items[i].data;
    list.block = b->block;
    *b = (struct store_list_builder){0};
    return list;
}

void store_list_drop(struct store_list_builder *b) {
    free(b->block);
    free(b->list.items);
    *b = (struct store_list_builder){0};
}

/* ---- operations ---- */

static int joined(struct cr_buffer *out, struct store_bytes a, struct store_bytes b) {
    cr_buffer_clear(out);
    int rc = cr_buffer_append(out, a.data, a.len);
    return rc < 0 ? rc : cr_buffer_append(out, b.data, b.len);
}

static int same(const void *a, size_t a_len, const void *b, size_t b_len) {
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

/* Replaces what it believes to be there; the store answers with what is there. Believing "absent"
 * first costs one round when it is right. An `expected` that equals the outcome cannot happen: the
 * outcome is longer, unless nothing is appended. */
static int append_loop(struct store *s, struct store_bytes key, struct store_bytes value,
                       int64_t deadline_ms, struct cr_buffer *next, struct cr_error *err) {
    CR_AUTO_FREE void *seen = NULL;
    size_t seen_len = 0;
    for (;;) {
        if (joined(next, (struct store_bytes){seen, seen_len}, value) < 0)
            return cr_fail(err, -ENOMEM, "append: out of memory");
        void *held = NULL;
        size_t held_len = 0;
        int rc = store_compare_set(s, key, (struct store_bytes){seen, seen_len},
                                   (struct store_bytes){next->data, next->len},
                                   cr_time_left_ms(deadline_ms), &held, &held_len, err);
        if (rc < 0) return rc;
        int done = same(held, held_len, next->data, next->len);
        int vanished = !done && same(held, held_len, seen, seen_len); /* our own words came back */
        free(seen);
        seen = held;
        seen_len = vanished ? 0 : held_len;
        if (done) return 0;
        if (cr_time_left_ms(deadline_ms) == 0)
            return cr_fail(err, -ETIMEDOUT, "append: timed out: others keep changing the key");
    }
}

int store_fallback_append(struct store *s, struct store_bytes key, struct store_bytes value,
                          int64_t timeout_ms, struct cr_error *err) {
    struct cr_buffer next = {0};
    int rc = append_loop(s, key, value, cr_deadline_ms(timeout_ms), &next, err);
    cr_buffer_done(&next);
    return rc;
}

int store_fallback_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                             int64_t timeout_ms, struct store_list *values, struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms);
    struct store_list_builder b = {0};
    for (size_t i = 0; i < key_count; i++) {
        void *value = NULL;
        size_t len = 0;
        int rc = store_get(s, keys[i], cr_time_left_ms(deadline), &value, &len, err);
        if (rc == 0 && store_list_add(&b, value, len) < 0)
            rc = cr_fail(err, -ENOMEM, "multi_get: out of memory");
        free(value);
        if (rc < 0) {
            store_list_drop(&b);
            return rc;
        }
    }
    *values = store_list_build(&b);
    return 0;
}

int store_fallback_multi_set(struct store *s, const struct store_bytes *keys,
                             const struct store_bytes *values, size_t pair_count,
                             int64_t timeout_ms, struct cr_error *err) {
    int64_t deadline = cr_deadline_ms(timeout_ms);
    for (size_t i = 0; i < pair_count; i++) {
        int rc = store_set(s, keys[i], values[i], cr_time_left_ms(deadline), err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int barrier_key(struct cr_buffer *out, struct store_bytes key, const char *name) {
    return joined(out, key, STORE_BYTES(name));
}

static int barrier(struct store *s, struct store_bytes key, int64_t world_size, int64_t deadline_ms,
                   struct cr_buffer *name, struct cr_error *err) {
    int64_t arrived = 0;
    if (barrier_key(name, key, "/num_members") < 0)
        return cr_fail(err, -ENOMEM, "barrier: out of memory");
    int rc = store_add(s, (struct store_bytes){name->data, name->len}, 1,
                       cr_time_left_ms(deadline_ms), &arrived, err);
    if (rc < 0) return rc;
    if (barrier_key(name, key, "/last_member") < 0)
        return cr_fail(err, -ENOMEM, "barrier: out of memory");
    struct store_bytes last = {name->data, name->len};
    if (arrived == world_size)
        return store_set(s, last, STORE_BYTES("1"), cr_time_left_ms(deadline_ms), err);
    return store_wait(s, &last, 1, cr_time_left_ms(deadline_ms), err);
}

int store_fallback_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                           int64_t timeout_ms, struct cr_error *err) {
    struct cr_buffer name = {0};
    int rc = barrier(s, key, world_size, cr_deadline_ms(timeout_ms), &name, err);
    cr_buffer_done(&name);
    return rc;
}
