#include "tests/interop/async_store.h"

#include "store/client_async.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct async_store {
    struct store store;
    uv_loop_t loop;
    struct store_async *client;
};

/* What the callback of a call said. */
struct said {
    uv_loop_t *loop;
    int times, status;
    int64_t number;
    void *value;
    size_t len;
    struct store_list list;
    struct cr_error err;
};

static const struct store_ops async_store_ops;

static struct async_store *self(struct store *s) { return (struct async_store *) (void *) s; }

static void on_done(void *arg, int status, struct store_async_result *r,
                    const struct cr_error *err) {
    struct said *s = arg;
    s->times++;
    s->status = status;
    s->number = r->number;
    s->list = r->list;
    r->list = (struct store_list){0};
    s->len = r->value.len;
    s->value = malloc(s->len + 1);
    if (s->value == NULL) abort();
    if (s->len > 0) memcpy(s->value, r->value.data, s->len);
    ((char *) s->value)[s->len] = '\0';
    if (err != NULL) s->err = *err;
    uv_stop(s->loop);
}

static void run(struct async_store *a, const struct said *s) {
    while (s->times == 0 && uv_run(&a->loop, UV_RUN_ONCE) != 0) {
    }
    if (s->times == 1) return;
    (void) fprintf(stderr, "a callback came %d times\n", s->times);
    abort();
}

/* `rc` is what making the call returned. What the callback said is freed, or goes to the outputs. */
static int finish(struct async_store *a, struct said *s, int rc, const char *op,
                  struct cr_error *err) {
    if (rc < 0) {
        const struct cr_error *lost = store_async_error(a->client);
        if (lost->code != 0)
            return cr_fail(err, rc, "%s: the connection was lost before: %s", op, lost->text);
        return cr_fail(err, rc, "%s: %s", op, strerror(-rc));
    }
    run(a, s);
    if (s->status < 0 && err != NULL) *err = s->err;
    return s->status;
}

static void drop(struct said *s) {
    free(s->value);
    store_list_done(&s->list);
}

/* A call whose callback says no more than whether it worked. */
#define PLAIN(op, ...)                                                                             \
    do {                                                                                           \
        struct said said = {.loop = &self(s)->loop};                                               \
        int rc = store_async_##op(self(s)->client, __VA_ARGS__, timeout_ms, on_done, &said);       \
        rc = finish(self(s), &said, rc, #op, err);                                                 \
        drop(&said);                                                                               \
        return rc;                                                                                 \
    } while (0)

/* One that says a number. */
#define NUMBER(op, out, call)                                                                      \
    do {                                                                                           \
        struct said said = {.loop = &self(s)->loop};                                               \
        int rc = finish(self(s), &said, call, op, err);                                            \
        if (rc == 0) *(out) = (typeof(*(out))) said.number;                                        \
        drop(&said);                                                                               \
        return rc;                                                                                 \
    } while (0)

static int take_value(struct async_store *a, struct said *s, int rc, const char *op, void **value,
                      size_t *len, struct cr_error *err) {
    rc = finish(a, s, rc, op, err);
    if (rc == 0) {
        *value = s->value;
        *len = s->len;
        s->value = NULL;
    }
    drop(s);
    return rc;
}

static int take_list(struct async_store *a, struct said *s, int rc, const char *op,
                     struct store_list *list, struct cr_error *err) {
    rc = finish(a, s, rc, op, err);
    if (rc == 0) {
        *list = s->list;
        s->list = (struct store_list){0};
    }
    drop(s);
    return rc;
}

static int do_set(struct store *s, struct store_bytes key, struct store_bytes value,
                  int64_t timeout_ms, struct cr_error *err) {
    PLAIN(set, key, value);
}

static int do_append(struct store *s, struct store_bytes key, struct store_bytes value,
                     int64_t timeout_ms, struct cr_error *err) {
    PLAIN(append, key, value);
}

static int do_queue_push(struct store *s, struct store_bytes name, struct store_bytes value,
                         int64_t timeout_ms, struct cr_error *err) {
    PLAIN(queue_push, name, value);
}

static int do_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                   int64_t timeout_ms, struct cr_error *err) {
    PLAIN(wait, keys, key_count);
}

static int do_barrier(struct store *s, struct store_bytes key, int64_t world_size,
                      int64_t timeout_ms, struct cr_error *err) {
    PLAIN(barrier, key, world_size);
}

static int do_multi_set(struct store *s, const struct store_bytes *keys,
                        const struct store_bytes *values, size_t pair_count, int64_t timeout_ms,
                        struct cr_error *err) {
    PLAIN(multi_set, keys, values, pair_count);
}

static int do_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                  size_t *len, struct cr_error *err) {
    struct said said = {.loop = &self(s)->loop};
    int rc = store_async_get(self(s)->client, key, timeout_ms, on_done, &said);
    return take_value(self(s), &said, rc, "get", value, len, err);
}

static int do_compare_set(struct store *s, struct store_bytes key, struct store_bytes expected,
                          struct store_bytes desired, int64_t timeout_ms, void **value, size_t *len,
                          struct cr_error *err) {
    struct said said = {.loop = &self(s)->loop};
    int rc = store_async_compare_set(self(s)->client, key, expected, desired, timeout_ms, on_done,
                                     &said);
    return take_value(self(s), &said, rc, "compare_set", value, len, err);
}

static int do_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms, void **value,
                        size_t *len, struct cr_error *err) {
    struct said said = {.loop = &self(s)->loop};
    int rc = store_async_queue_pop(self(s)->client, name, timeout_ms, on_done, &said);
    return take_value(self(s), &said, rc, "queue_pop", value, len, err);
}

static int do_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                  int64_t *total, struct cr_error *err) {
    NUMBER("add", total, store_async_add(self(s)->client, key, delta, timeout_ms, on_done, &said));
}

int async_store_add_raw(struct store *s, struct store_bytes raw_key, int64_t delta,
                        int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    NUMBER("add", total,
           store_async_add_raw(self(s)->client, raw_key, delta, timeout_ms, on_done, &said));
}

static int do_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                    int64_t timeout_ms, int *present, struct cr_error *err) {
    NUMBER("check", present,
           store_async_check(self(s)->client, keys, key_count, timeout_ms, on_done, &said));
}

static int do_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                     struct cr_error *err) {
    NUMBER("delete", deleted, store_async_delete(self(s)->client, key, timeout_ms, on_done, &said));
}

static int do_num_keys(struct store *s, int64_t timeout_ms, int64_t *count, struct cr_error *err) {
    NUMBER("num_keys", count, store_async_num_keys(self(s)->client, timeout_ms, on_done, &said));
}

static int do_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                        int64_t *count, struct cr_error *err) {
    NUMBER("queue_len", count,
           store_async_queue_len(self(s)->client, name, timeout_ms, on_done, &said));
}

static int do_multi_get(struct store *s, const struct store_bytes *keys, size_t key_count,
                        int64_t timeout_ms, struct store_list *values, struct cr_error *err) {
    struct said said = {.loop = &self(s)->loop};
    int rc = store_async_multi_get(self(s)->client, keys, key_count, timeout_ms, on_done, &said);
    return take_list(self(s), &said, rc, "multi_get", values, err);
}

static int do_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                        struct cr_error *err) {
    struct said said = {.loop = &self(s)->loop};
    int rc = store_async_list_keys(self(s)->client, timeout_ms, on_done, &said);
    return take_list(self(s), &said, rc, "list_keys", keys, err);
}

static void do_close(struct store *s) {
    struct async_store *a = self(s);
    store_async_close(a->client, NULL, NULL);
    if (uv_run(&a->loop, UV_RUN_DEFAULT) != 0 || uv_loop_close(&a->loop) != 0) {
        (void) fputs("closing the client left something on the loop\n", stderr);
        abort();
    }
    free(a);
}

static const struct store_ops async_store_ops = {
    .set = do_set,
    .get = do_get,
    .add = do_add,
    .compare_set = do_compare_set,
    .wait = do_wait,
    .check = do_check,
    .delete_key = do_delete,
    .num_keys = do_num_keys,
    .append = do_append,
    .multi_get = do_multi_get,
    .multi_set = do_multi_set,
    .queue_push = do_queue_push,
    .queue_pop = do_queue_pop,
    .queue_len = do_queue_len,
    .list_keys = do_list_keys,
    .barrier = do_barrier,
    .close = do_close,
};

int async_store_open(const char *host, uint16_t port, enum store_protocol protocol,
                     int64_t timeout_ms, struct store **out, const char **found,
                     struct cr_error *err) {
    struct async_store *a = calloc(1, sizeof(*a));
    if (a == NULL || uv_loop_init(&a->loop) < 0) abort();
    a->store.ops = &async_store_ops;
    struct said said = {.loop = &a->loop};
    int rc = store_async_open(&a->loop, host, port, protocol, timeout_ms, on_done, &said,
                              &a->client, err);
    if (rc == 0) {
        run(a, &said);
        rc = said.status;
        if (rc < 0 && err != NULL) *err = said.err;
    }
    drop(&said);
    if (rc < 0) {
        do_close(&a->store);
        return rc;
    }
    *found = store_async_protocol(a->client);
    *out = &a->store;
    return 0;
}
