/* Fallbacks: append is made of compare_set; multi_get and multi_set of one get or set per key; a
 * barrier of add and wait. The barrier uses the keys "KEY/num_members" and "KEY/last_member", as
 * torch's base class does. */
#include "store/client/fallback.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "store/bytes/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int joined(struct cr_buffer *out, struct store_bytes a, struct store_bytes b) {
    cr_buffer_clear(out);
    int rc = cr_buffer_append(out, a.data, a.len);
    return rc < 0 ? rc : cr_buffer_append(out, b.data, b.len);
}

static bool same(const void *a, size_t a_len, const void *b, size_t b_len) {
    return a_len == b_len && (a_len == 0 || memcmp(a, b, a_len) == 0);
}

/* Appends by compare_set. The first attempt expects an empty value, which a missing key matches,
 * too. compare_set sets the key to the desired value and returns that value, if the key has the
 * expected value; otherwise it returns the value that the key has, which the next attempt expects.
 *
 * A reply that equals the desired value counts as success. It does not prove success: compare_set
 * also returns the desired value if it sets nothing because the key has that value already. That
 * happens when the key held just the bytes of `value` before the first attempt, or when another
 * client has appended the same bytes since the last reply. In these cases this function returns 0
 * although it has appended nothing. */
static int append_loop(struct store *s, struct store_bytes key, struct store_bytes value,
                       int64_t deadline_ms, struct cr_buffer *next, struct cr_error *err) {
    CR_AUTO_FREE void *seen = NULL;
    size_t seen_len = 0;
    for (;;) {
        if (joined(next, (struct store_bytes){seen, seen_len}, value) < 0)
            return cr_fail(err, -ENOMEM, "append: out of memory");
        void *held = NULL;
        size_t held_len = 0;
        struct store_swap swap = {key, {seen, seen_len}, {next->data, next->len}};
        int rc = store_compare_set(s, &swap, cr_time_left_ms(deadline_ms), &held, &held_len, err);
        if (rc < 0) return rc;
        bool done = same(held, held_len, next->data, next->len);
        /* If the key does not exist and the expected value is not empty, compare_set sets nothing
         * and returns the expected value. An existing key with the expected value would have been
         * set, and the reply would be the desired value. So if the reply is the expected value and
         * not the desired one, the key does not exist: the next attempt expects an empty value. */
        bool vanished = !done && same(held, held_len, seen, seen_len);
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
