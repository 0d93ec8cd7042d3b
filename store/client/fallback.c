/* Implements operations that a store lacks by other operations: append by compare_set, multi_get
 * and multi_set by one get or set per key, barrier by add and wait. The barrier uses the keys
 * "KEY/num_members" and "KEY/last_member", as torch's base class does. */
#include "store/client/fallback.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/time/clock.h"
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

/* One call of append: its arguments, and the key's value as last read */
struct append {
    struct store *store;
    struct store_bytes key;
    struct store_bytes value; /* bytes to append */
    int64_t deadline_ms;
    struct cr_buffer next; /* desired value of the next compare_set */
    void *seen;            /* value of the key according to the last reply, malloc'ed; seen_len is 0
                            * if the key did not exist */
    size_t seen_len;
    struct cr_error *err;
};

/* Sends a compare_set, which sets the key to a->next if the key's value is `expected`. Stores the
 * reply, malloc'ed, in *held. Returns 0 or a negative errno. */
static int swap(struct append *a, struct store_bytes expected, void **held, size_t *held_len) {
    struct store_swap request = {a->key, expected, {a->next.data, a->next.len}};
    int64_t left_ms = cr_time_left_ms(a->deadline_ms);
    return store_compare_set(a->store, &request, left_ms, held, held_len, a->err);
}

static int fail_memory(const struct append *a) {
    return cr_fail(a->err, -ENOMEM, "append: out of memory");
}

/* Sets a->seen to the key's value, and a->seen_len to its length, or to 0 if the key does not
 * exist. A get would wait for a key that does not exist. Therefore this function sends a
 * compare_set with the same bytes as expected and desired value, which changes no value. The reply
 * is the key's value, or the expected value if the key does not exist. The expected value is
 * a->value followed by "?", which the key is unlikely to have, so a reply with these bytes counts
 * as "does not exist". If the key has exactly these bytes, that is wrong, but harmless:
 * try_append() then expects an empty value, so it sets nothing and receives the key's value as its
 * reply. */
static int read_value(struct append *a) {
    if (joined(&a->next, a->value, STORE_BYTES("?")) < 0) return fail_memory(a);
    int rc = swap(a, (struct store_bytes){a->next.data, a->next.len}, &a->seen, &a->seen_len);
    if (rc == 0 && same(a->seen, a->seen_len, a->next.data, a->next.len)) a->seen_len = 0;
    return rc;
}

/* Tries once to append. Returns 1 if the bytes are appended. If the key's value was not a->seen,
 * sets a->seen to the key's present value and returns 0. On error returns a negative errno. */
static int try_append(struct append *a) {
    struct store_bytes seen = {a->seen, a->seen_len};
    void *held = NULL;
    size_t held_len = 0;
    if (joined(&a->next, seen, a->value) < 0) return fail_memory(a);
    int rc = swap(a, seen, &held, &held_len);
    if (rc < 0) return rc;
    bool done = same(held, held_len, a->next.data, a->next.len);
    /* compare_set replies with the desired value if it has set the key; with the key's value if
     * that differs from the expected value; and with the expected value if the key does not exist
     * and the expected value is not empty. So a reply that is the expected value and not the
     * desired one means that the key does not exist. The next attempt then expects an empty
     * value. */
    bool vanished = !done && same(held, held_len, seen.data, seen.len);
    free(a->seen);
    a->seen = held;
    a->seen_len = vanished ? 0 : held_len;
    return done;
}

/* Appends by compare_set: reads the value, and tries again as long as another client changes the
 * key between the read and the compare_set. This goes wrong in one case. compare_set replies with
 * the desired value if it has set the key, but also if the key has the desired value already. So if
 * two clients append equal bytes to the same old value at the same time, both receive this reply,
 * but the bytes are appended only once. A server that has the operation append does not have this
 * problem. */
static int append_loop(struct append *a) {
    int rc = read_value(a);
    while (rc == 0) {
        rc = try_append(a);
        if (rc == 0 && cr_time_left_ms(a->deadline_ms) == 0) {
            rc = cr_fail(a->err, -ETIMEDOUT, "append: timed out: others keep changing the key");
        }
    }
    return rc < 0 ? rc : 0;
}

int store_fallback_append(struct store *s, struct store_bytes key, struct store_bytes value,
                          int64_t timeout_ms, struct cr_error *err) {
    struct append a = {.store = s, .key = key, .value = value, .err = err,
                       .deadline_ms = cr_deadline_ms(timeout_ms)};
    int rc = append_loop(&a);
    free(a.seen);
    cr_buffer_done(&a.next);
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
