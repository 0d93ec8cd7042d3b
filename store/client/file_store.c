/* The file store: a store without a server, for processes that share a file system. crun and
 * torch's FileStore can share the file; file_log.h describes the format.
 *
 * Two counters in the file decide which store removes the file. A store adds 1 to "refcount/" when
 * it is opened. When it is closed, it adds 1 to "cleanup/" and subtracts 1 from "refcount/". If
 * "cleanup/" has then reached world_size and "refcount/" is 0, this store removes the file. A store
 * of torch 1.13 counts only "cleanup/", which suffices if all stores of the file are of that
 * release.
 *
 * inotify wakes a waiting store when the file changes. A network file system does not report
 * changes that other hosts make, so a waiting store also reads the file every LOOK_AGAIN_MS. */
#include "store/client/client.h"
#include "store/client/fallback.h"
#include "store/client/file_log.h"
#include "store/bytes/bytes.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/time/clock.h"
#include "store/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#define LOOK_AGAIN_MS 200

struct file_store {
    struct store store;
    int64_t world_size;
    int watch; /* inotify descriptor; -1 if inotify is not available */
    struct store_file_log log;
};

static struct file_store *self(struct store *s) { return (struct file_store *) (void *) s; }

static int fail_memory(struct cr_error *err, const char *what) {
    return cr_fail(err, -ENOMEM, "%s in the file store: out of memory", what);
}

static int begin_write(struct store_file_access *a, struct store *s, int64_t timeout_ms,
                       struct cr_error *err) {
    return store_file_begin(a, &self(s)->log, O_RDWR | O_CREAT, cr_deadline_ms(timeout_ms), err);
}

static const struct store_bytes *find(const struct file_store *f, struct store_bytes raw) {
    return store_file_keys_find(&f->log.keys, raw);
}

/* ---- keys and values ---- */

/* Returns a malloc'ed block that contains "/" and then the key, and sets *raw to the bytes of the
 * block. Returns NULL if memory is short. */
static void *raw_key(struct store_bytes key, struct store_bytes *raw) {
    char *block = malloc(key.len + 1);
    if (block == NULL) return NULL;
    block[0] = '/';
    if (key.len > 0) memcpy(block + 1, key.data, key.len);
    *raw = (struct store_bytes){block, key.len + 1};
    return block;
}

static int copy_value(struct store_bytes bytes, void **value, size_t *len, struct cr_error *err) {
    char *copy = malloc(bytes.len + 1);
    if (copy == NULL) return fail_memory(err, "read a value");
    if (bytes.len > 0) memcpy(copy, bytes.data, bytes.len);
    copy[bytes.len] = '\0';
    *value = copy;
    *len = bytes.len;
    return 0;
}

/* ---- writing ---- */

static int file_set(struct store *s, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "set");
    struct store_file_access a;
    int rc = begin_write(&a, s, timeout_ms, err);
    if (rc < 0) return rc;
    rc = store_file_append(&a, STORE_BYTES(""), raw, value);
    store_file_end(&a);
    return rc;
}

/* Sets *out to the number in the value of a counter. Reads the number as torch does: white space, a
 * sign, and digits; bytes after the digits are ignored. If the counter does not exist, `value` is
 * NULL, and *out is set to 0. Returns 0, or -EINVAL if the value does not begin with a number. */
static int read_counter(const struct store_file_access *a, const struct store_bytes *value,
                        int64_t *out) {
    char text[32] = "", *end = text;
    if (value == NULL) {
        *out = 0;
        return 0;
    }
    size_t len = value->len < sizeof(text) - 1 ? value->len : sizeof(text) - 1;
    memcpy(text, value->data, len);
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && errno == 0) return 0;
    return cr_fail(a->err, -EINVAL, "add in the store file '%s': the value '%s' is not a number",
                   a->log->path, text);
}

static int add_raw(struct store_file_access *a, struct store_bytes raw, int64_t delta,
                   int64_t *total) {
    int64_t now = 0;
    int rc = read_counter(a, store_file_keys_find(&a->log->keys, raw), &now);
    if (rc < 0) return rc;
    int64_t sum = (int64_t) ((uint64_t) now + (uint64_t) delta);
    char text[24];
    (void) snprintf(text, sizeof(text), "%lld", (long long) sum);
    rc = store_file_append(a, STORE_BYTES(""), raw, STORE_BYTES(text));
    if (rc == 0) *total = sum;
    return rc;
}

static int file_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                    int64_t *total, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "add");
    struct store_file_access a;
    int rc = begin_write(&a, s, timeout_ms, err);
    if (rc < 0) return rc;
    rc = add_raw(&a, raw, delta, total);
    store_file_end(&a);
    return rc;
}

/* Appends `value` to the value of the key. The access `a` holds the exclusive lock of the file, so
 * no other process can change the key between the reading of its old value and the writing of its
 * new one. */
static int append_raw(struct store_file_access *a, struct store_bytes raw,
                      struct store_bytes value) {
    const struct store_bytes *held = store_file_keys_find(&a->log->keys, raw);
    struct cr_buffer joined = {0};
    int rc = held == NULL ? 0 : cr_buffer_append(&joined, held->data, held->len);
    if (rc == 0) rc = cr_buffer_append(&joined, value.data, value.len);
    if (rc < 0) {
        rc = fail_memory(a->err, "append");
    } else {
        struct store_bytes whole = {joined.data, joined.len};
        rc = store_file_append(a, STORE_BYTES(""), raw, whole);
    }
    cr_buffer_done(&joined);
    return rc;
}

static int file_append(struct store *s, struct store_bytes key, struct store_bytes value,
                       int64_t timeout_ms, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "append");
    struct store_file_access a;
    int rc = begin_write(&a, s, timeout_ms, err);
    if (rc < 0) return rc;
    rc = append_raw(&a, raw, value);
    store_file_end(&a);
    return rc;
}

static bool holds(const struct store_bytes *value, struct store_bytes b) {
    if (value == NULL) return b.len == 0;
    return value->len == b.len && (b.len == 0 || memcmp(value->data, b.data, b.len) == 0);
}

static int compare_set(struct store_file_access *a, struct store_bytes raw,
                       const struct store_swap *swap, void **value, size_t *len) {
    const struct store_bytes *held = store_file_keys_find(&a->log->keys, raw);
    if (holds(held, swap->expected)) {
        int rc = store_file_append(a, STORE_BYTES(""), raw, swap->desired);
        if (rc < 0) return rc;
        held = store_file_keys_find(&a->log->keys, raw);
    }
    /* If the key does not exist and the expected value is not empty, compare_set sets nothing and
     * returns the expected value, as torch's stores do. */
    return copy_value(held != NULL ? *held : swap->expected, value, len, a->err);
}

static int file_compare_set(struct store *s, const struct store_swap *swap, int64_t timeout_ms,
                            void **value, size_t *len, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(swap->key, &raw);
    if (block == NULL) return fail_memory(err, "compare_set");
    struct store_file_access a;
    int rc = begin_write(&a, s, timeout_ms, err);
    if (rc < 0) return rc;
    rc = compare_set(&a, raw, swap, value, len);
    store_file_end(&a);
    return rc;
}

static int file_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                       struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "delete");
    struct store_file_access a;
    int rc = begin_write(&a, s, timeout_ms, err);
    if (rc < 0) return rc;
    rc = store_file_append(&a, STORE_BYTES("-"), raw, STORE_BYTES(""));
    store_file_end(&a);
    if (rc == 0) *deleted = 1;
    return rc;
}

/* ---- reading and waiting ---- */

/* Reads into memory the records that other processes have appended. Returns 0 or a negative
 * errno. */
static int refresh(struct file_store *f, int64_t deadline_ms, struct cr_error *err) {
    struct store_file_access a;
    int rc = store_file_begin_read(&a, &f->log, deadline_ms, err);
    if (rc == 0) store_file_end(&a);
    return rc;
}

/* Waits until inotify reports a change of the file, until LOOK_AGAIN_MS have passed, or until the
 * deadline. */
static void await_change(struct file_store *f, int64_t deadline_ms) {
    int64_t until = cr_deadline_ms(LOOK_AGAIN_MS);
    if (until > deadline_ms) until = deadline_ms;
    struct pollfd p = {.fd = f->watch, .events = POLLIN};
    if (poll(&p, 1, cr_poll_timeout(until)) <= 0) return;
    char events[4096];
    while (read(f->watch, events, sizeof(events)) > 0) {
    } /* the events are only discarded: the next access finds out what has changed */
}

static bool exist(const struct file_store *f, const struct store_bytes *raws, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (find(f, raws[i]) == NULL) return false;
    }
    return true;
}

/* Waits until all keys exist; reads the file at least once. Returns 1 if all keys exist, 0 if the
 * time is up, or a negative errno. */
static int await_keys(struct file_store *f, const struct store_bytes *raws, size_t count,
                      int64_t deadline_ms, struct cr_error *err) {
    for (;;) {
        bool is_last = cr_time_left_ms(deadline_ms) == 0;
        int rc = refresh(f, deadline_ms, err);
        if (rc < 0) return rc;
        if (exist(f, raws, count)) return 1;
        if (is_last) return 0;
        await_change(f, deadline_ms);
    }
}

static void free_raws(struct store_bytes *raws, size_t count) {
    for (size_t i = 0; i < count; i++) free((void *) (uintptr_t) raws[i].data);
    free(raws);
}

static struct store_bytes *new_raws(const struct store_bytes *keys, size_t count) {
    struct store_bytes *raws = calloc(count + 1, sizeof(*raws));
    if (raws == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        if (raw_key(keys[i], &raws[i]) != NULL) continue;
        free_raws(raws, i);
        return NULL;
    }
    return raws;
}

static int file_check(struct store *s, const struct store_bytes *keys, size_t key_count,
                      int64_t timeout_ms, int *present, struct cr_error *err) {
    struct store_bytes *raws = new_raws(keys, key_count);
    if (raws == NULL) return fail_memory(err, "check");
    int rc = refresh(self(s), cr_deadline_ms(timeout_ms), err);
    if (rc == 0) *present = exist(self(s), raws, key_count);
    free_raws(raws, key_count);
    return rc;
}

static int fail_absent(const struct file_store *f, const struct store_bytes *keys, size_t count,
                       int64_t timeout_ms, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(STORE_OP_WAIT, keys, count, what);
    return cr_fail(err, -ETIMEDOUT, "%s in the store file '%s': timed out after %lld ms", what,
                   f->log.path, (long long) timeout_ms);
}

static int file_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, struct cr_error *err) {
    struct store_bytes *raws = new_raws(keys, key_count);
    if (raws == NULL) return fail_memory(err, "wait");
    int rc = await_keys(self(s), raws, key_count, cr_deadline_ms(timeout_ms), err);
    if (rc == 0) rc = fail_absent(self(s), keys, key_count, timeout_ms, err);
    free_raws(raws, key_count);
    return rc < 0 ? rc : 0;
}

static int file_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                    size_t *len, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "get");
    int rc = await_keys(self(s), &raw, 1, cr_deadline_ms(timeout_ms), err);
    if (rc == 0) return fail_absent(self(s), &key, 1, timeout_ms, err);
    return rc < 0 ? rc : copy_value(*find(self(s), raw), value, len, err);
}

static int file_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                         struct cr_error *err) {
    int rc = refresh(self(s), cr_deadline_ms(timeout_ms), err);
    if (rc == 0) *count = (int64_t) self(s)->log.keys.count;
    return rc;
}

static int list_user_keys(const struct file_store *f, struct store_list_builder *b) {
    const struct store_file_key *k;
    int rc = 0;
    LIST_FOREACH (k, &f->log.keys.all, next) {
        const char *raw = k->key.data;
        if (rc < 0 || k->key.len == 0 || raw[0] != '/') continue;
        rc = store_list_add(b, raw + 1, k->key.len - 1);
    }
    return rc;
}

static int file_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                          struct cr_error *err) {
    int rc = refresh(self(s), cr_deadline_ms(timeout_ms), err);
    if (rc < 0) return rc;
    struct store_list_builder b = {0};
    if (list_user_keys(self(s), &b) < 0) {
        store_list_drop(&b);
        return fail_memory(err, "list the keys");
    }
    *keys = store_list_build(&b);
    return 0;
}

/* ---- queues: not supported, as in torch's FileStore ---- */

static int fail_queue(struct cr_error *err) {
    return cr_fail(err, -ENOTSUP, "use a queue: a file store does not support queues");
}

static int file_queue_push(struct store *s, struct store_bytes name, struct store_bytes value,
                           int64_t timeout_ms, struct cr_error *err) {
    (void) s, (void) name, (void) value, (void) timeout_ms;
    return fail_queue(err);
}

static int file_queue_pop(struct store *s, struct store_bytes name, int64_t timeout_ms,
                          void **value, size_t *len, struct cr_error *err) {
    (void) s, (void) name, (void) value, (void) len, (void) timeout_ms;
    return fail_queue(err);
}

static int file_queue_len(struct store *s, struct store_bytes name, int64_t timeout_ms,
                          int64_t *count, struct cr_error *err) {
    (void) s, (void) name, (void) count, (void) timeout_ms;
    return fail_queue(err);
}

/* ---- opening and closing ---- */

/* longest time in ms that opening and closing wait for the lock of the file */
#define CLOSE_MS 5000

static bool is_removable(const struct file_store *f, struct store_file_access *a) {
    int64_t clean_ups = 0, references = 0;
    (void) read_counter(a, find(f, STORE_BYTES("cleanup/")), &clean_ups);
    (void) read_counter(a, find(f, STORE_BYTES("refcount/")), &references);
    return f->world_size >= 0 && clean_ups >= f->world_size && references <= 0;
}

/* Call this when the store is closed. It updates the counters, and removes the file if no other
 * store needs the file. Errors are ignored, as in torch: a file that is missing or damaged is left
 * as it is. */
static void sign_off(struct file_store *f) {
    struct store_file_access a;
    int64_t total;
    if (store_file_begin(&a, &f->log, O_RDWR, cr_deadline_ms(CLOSE_MS), NULL) < 0) return;
    if (add_raw(&a, STORE_BYTES("cleanup/"), 1, &total) == 0 &&
        add_raw(&a, STORE_BYTES("refcount/"), -1, &total) == 0 && is_removable(f, &a)) {
        (void) unlink(f->log.path);
    }
    store_file_end(&a);
}

static void free_file_store(struct file_store *f) {
    store_file_log_done(&f->log);
    cr_close_fd(&f->watch);
    free(f);
}

static void file_close(struct store *s) {
    sign_off(self(s));
    free_file_store(self(s));
}

static const struct store_ops file_ops = {
    .set = file_set,
    .get = file_get,
    .add = file_add,
    .compare_set = file_compare_set,
    .wait = file_wait,
    .check = file_check,
    .delete_key = file_delete,
    .num_keys = file_num_keys,
    .append = file_append,
    .multi_get = store_fallback_multi_get,
    .multi_set = store_fallback_multi_set,
    .queue_push = file_queue_push,
    .queue_pop = file_queue_pop,
    .queue_len = file_queue_len,
    .list_keys = file_list_keys,
    .barrier = store_fallback_barrier,
    .close = file_close,
};

static int sign_on(struct file_store *f, struct cr_error *err) {
    struct store_file_access a;
    int64_t references;
    int rc = begin_write(&a, &f->store, CLOSE_MS, err);
    if (rc < 0) return rc;
    rc = add_raw(&a, STORE_BYTES("refcount/"), 1, &references);
    store_file_end(&a);
    return rc;
}

/* Returns an inotify descriptor that reports changes of the file, which must exist; or -1 if
 * inotify is not available. Without inotify, a waiting store still reads the file every
 * LOOK_AGAIN_MS. */
static int watch_file(const char *path) {
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0) (void) inotify_add_watch(fd, path, IN_MODIFY);
    return fd;
}

int store_file_open(const char *path, int64_t world_size, struct store **out,
                    struct cr_error *err) {
    struct file_store *f = calloc(1, sizeof(*f));
    if (f == NULL) return fail_memory(err, "open");
    f->store.ops = &file_ops;
    f->world_size = world_size;
    f->watch = -1;
    f->log.path = strdup(path);
    int rc = f->log.path == NULL ? fail_memory(err, "open") : sign_on(f, err);
    if (rc < 0) {
        free_file_store(f);
        return rc;
    }
    f->watch = watch_file(path);
    *out = &f->store;
    return 0;
}
