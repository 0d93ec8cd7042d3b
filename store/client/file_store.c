/* A file store: a log that processes append to under flock(2), as torch's FileStore does, so that
 * both can share one file.
 *
 *   record:  u32 key length, key, u32 value length, value         little-endian, nothing around it
 *   keys:    "/k" a user's key    "-/k" its deletion    "cleanup/", "refcount/" counters of stores
 *
 * Every operation locks the file (shared to read, exclusive to write), replays what others appended
 * since into a table, and appends its own record. The last record of a key wins.
 *
 * The counters decide who removes the file: each store adds 1 to "refcount/" when it opens and takes
 * it back when it closes, adding 1 to "cleanup/"; who finds world_size clean-ups and no reference
 * left removes the file. torch 1.13 knows only "cleanup/", and that suffices for it.
 *
 * A change is waited for with inotify; since a network file system does not report the changes of
 * other hosts, the file is looked at now and then besides. */
#include "store/wire/call_text.h"
#include "store/client/fallback.h"
#include "store/keyspace/key_table.h"
#include "store/wire/wire.h"

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>

#define LOOK_AGAIN_MS 200 /* for changes that inotify does not see */
#define LOCK_AGAIN_MS 2   /* flock(2) has no deadline: ask again */
#define FILE_MAX      ((off_t) 4 << 30)

struct file_store {
    struct store store;
    char *path;
    int64_t world_size;
    int watch;      /* inotify descriptor, or -1 */
    dev_t device;   /* the file that was replayed, */
    ino_t inode;    /* in case somebody replaces it */
    off_t replayed; /* bytes of it */
    struct store_key_table table;
    struct cr_buffer record; /* what is read or about to be appended */
};

/* One operation on the file: open, locked, replayed. */
struct session {
    struct file_store *f;
    int fd;
    int64_t deadline_ms;
    struct cr_error *err;
};

static struct file_store *self(struct store *s) { return (struct file_store *) (void *) s; }

static int fail_memory(struct cr_error *err, const char *what) {
    return cr_fail(err, -ENOMEM, "%s in the file store: out of memory", what);
}

/* ---- the table ---- */

static void forget_all(struct file_store *f) {
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < f->table.sizes[half]; i++) {
            struct store_entry *next;
            for (struct store_entry *e = f->table.buckets[half][i]; e != NULL; e = next) {
                next = e->next;
                store_value_unref(e->value);
                free(e);
            }
        }
    }
    store_key_table_done(&f->table);
    f->replayed = 0;
}

static const struct store_value *find(struct file_store *f, struct store_bytes key) {
    const struct store_entry *e = store_key_table_find(&f->table, key.data, key.len);
    return e == NULL ? NULL : e->value;
}

static void drop(struct file_store *f, struct store_bytes key) {
    struct store_entry *e = store_key_table_find(&f->table, key.data, key.len);
    if (e == NULL) return;
    store_value_unref(e->value);
    store_key_table_remove(&f->table, e);
}

static int keep(struct file_store *f, struct store_bytes key, struct store_bytes value) {
    struct store_value *v = store_value_new(value.len);
    struct store_entry *e = v == NULL ? NULL : store_key_table_obtain(&f->table, key.data, key.len);
    if (e == NULL) {
        store_value_unref(v);
        return -ENOMEM;
    }
    if (value.len > 0) memcpy(v->data, value.data, value.len);
    v->len = (uint32_t) value.len;
    store_value_unref(e->value);
    e->value = v;
    return 0;
}

/* ---- replaying ---- */

static int take_field(const uint8_t *data, size_t len, size_t *pos, struct store_bytes *out) {
    if (len - *pos < 4) return 0;
    size_t n = store_load_u32(data + *pos);
    if (len - *pos - 4 < n) return 0;
    *out = (struct store_bytes){data + *pos + 4, n};
    *pos += 4 + n;
    return 1;
}

/* Applies whole records; returns the bytes that they took, or -ENOMEM. */
static int64_t replay(struct file_store *f, const uint8_t *data, size_t len) {
    size_t done = 0;
    for (;;) {
        size_t pos = done;
        struct store_bytes key, value;
        if (!take_field(data, len, &pos, &key) || !take_field(data, len, &pos, &value))
            return (int64_t) done;
        const char *name = key.data;
        if (key.len > 1 && name[0] == '-' && name[1] == '/') {
            drop(f, (struct store_bytes){name + 1, key.len - 1});
        } else if (keep(f, key, value) < 0) {
            return -ENOMEM;
        }
        done = pos;
    }
}

static int fail_cut(const struct session *o) {
    return cr_fail(o->err, -EBADMSG,
                   "use the store file '%s': the record at byte %lld is cut off; it is no store "
                   "file, or a writer died in it; remove it and start again",
                   o->f->path, (long long) o->f->replayed);
}

static int read_new(struct session *o, size_t len) {
    struct file_store *f = o->f;
    cr_buffer_clear(&f->record);
    if (cr_buffer_reserve(&f->record, len) < 0) return fail_memory(o->err, "read");
    while (f->record.len < len) {
        ssize_t n = pread(o->fd, f->record.data + f->record.len, len - f->record.len,
                          f->replayed + (off_t) f->record.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cr_fail_errno(o->err, "read the store file '%s'", f->path);
        if (n == 0) break; /* somebody made it shorter: fstat sees that next time */
        f->record.len += (size_t) n;
    }
    return 0;
}

/* Reads and replays what came since. Nobody writes meanwhile, so a record that is not whole never
 * will be. */
static int catch_up(struct session *o) {
    struct file_store *f = o->f;
    struct stat st;
    if (fstat(o->fd, &st) < 0) return cr_fail_errno(o->err, "look at the store file '%s'", f->path);
    if (st.st_ino != f->inode || st.st_dev != f->device || st.st_size < f->replayed) forget_all(f);
    f->inode = st.st_ino;
    f->device = st.st_dev;
    if (st.st_size == f->replayed) return 0;
    if (st.st_size > FILE_MAX)
        return cr_fail(o->err, -EFBIG, "use the store file '%s': larger than %lld bytes", f->path,
                       (long long) FILE_MAX);
    int rc = read_new(o, (size_t) (st.st_size - f->replayed));
    if (rc < 0) return rc;
    int64_t n = replay(f, (const uint8_t *) f->record.data, f->record.len);
    if (n < 0) return fail_memory(o->err, "replay a record");
    f->replayed += (off_t) n;
    return (size_t) n < f->record.len ? fail_cut(o) : 0;
}

/* ---- a session ---- */

static int time_is_up(const struct session *o) { return cr_time_left_ms(o->deadline_ms) == 0; }

static void pause_until(int64_t deadline_ms, int64_t ms) {
    int64_t until = cr_deadline_ms(ms);
    if (until > deadline_ms) until = deadline_ms;
    (void) poll(NULL, 0, cr_poll_timeout(until));
}

static int lock(struct session *o, int how) {
    for (;;) {
        if (flock(o->fd, how | LOCK_NB) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK)
            return cr_fail_errno(o->err, "lock the store file '%s'", o->f->path);
        if (time_is_up(o))
            return cr_fail(o->err, -ETIMEDOUT,
                           "lock the store file '%s': timed out: another "
                           "process holds it",
                           o->f->path);
        pause_until(o->deadline_ms, LOCK_AGAIN_MS);
    }
}

/* Ends a session; the lock goes with the descriptor. */
static void leave(struct session *o) { cr_close_fd(&o->fd); }

static int enter(struct session *o, struct file_store *f, int flags, int64_t deadline_ms,
                 struct cr_error *err) {
    *o = (struct session){f, -1, deadline_ms, err};
    o->fd = open(f->path, flags | O_CLOEXEC, 0644);
    if (o->fd < 0) return cr_fail_errno(err, "open the store file '%s'", f->path);
    int rc = lock(o, (flags & O_ACCMODE) == O_RDONLY ? LOCK_SH : LOCK_EX);
    if (rc == 0) rc = catch_up(o);
    if (rc < 0) leave(o);
    return rc;
}

static int enter_to_write(struct session *o, struct file_store *f, int64_t timeout_ms,
                          struct cr_error *err) {
    return enter(o, f, O_RDWR | O_CREAT, cr_deadline_ms(timeout_ms), err);
}

static int put_field(struct cr_buffer *b, struct store_bytes prefix, struct store_bytes data) {
    uint8_t len[4];
    store_put_u32(len, (uint32_t) (prefix.len + data.len));
    int rc = cr_buffer_append(b, len, sizeof(len));
    if (rc == 0) rc = cr_buffer_append(b, prefix.data, prefix.len);
    return rc < 0 ? rc : cr_buffer_append(b, data.data, data.len);
}

/* Writes f->record at the end; a record that did not fit is taken back, since half of one would
 * spoil the file for everybody. */
static int append(struct session *o) {
    const struct cr_buffer *b = &o->f->record;
    size_t done = 0;
    while (done < b->len) {
        ssize_t n = pwrite(o->fd, b->data + done, b->len - done, o->f->replayed + (off_t) done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int rc = cr_fail_errno(o->err, "write the store file '%s'", o->f->path);
            (void) ftruncate(o->fd, o->f->replayed);
            return rc;
        }
        done += (size_t) n;
    }
    return 0;
}

/* Appends one record and replays it. `raw` is the key as it stands in the file. */
static int append_record(struct session *o, struct store_bytes mark, struct store_bytes raw,
                         struct store_bytes value) {
    struct file_store *f = o->f;
    cr_buffer_clear(&f->record);
    if (mark.len + raw.len > UINT32_MAX || value.len > STORE_VALUE_MAX)
        return cr_fail(o->err, -EMSGSIZE,
                       "write the store file '%s': the value is longer than %zu "
                       "bytes",
                       f->path, STORE_VALUE_MAX);
    if (put_field(&f->record, mark, raw) < 0 || put_field(&f->record, STORE_BYTES(""), value) < 0)
        return fail_memory(o->err, "write");
    int rc = append(o);
    if (rc < 0) return rc;
    int64_t n = replay(f, (const uint8_t *) f->record.data, f->record.len);
    if (n < 0) return fail_memory(o->err, "write");
    f->replayed += (off_t) n;
    return 0;
}

/* ---- keys ---- */

/* "/key" in a new block, or NULL. */
static void *raw_key(struct store_bytes key, struct store_bytes *raw) {
    char *block = malloc(key.len + 1);
    if (block == NULL) return NULL;
    block[0] = '/';
    if (key.len > 0) memcpy(block + 1, key.data, key.len);
    *raw = (struct store_bytes){block, key.len + 1};
    return block;
}

static int copy_value(const struct store_value *v, void **value, size_t *len,
                      struct cr_error *err) {
    char *copy = malloc((size_t) v->len + 1);
    if (copy == NULL) return fail_memory(err, "read a value");
    memcpy(copy, v->data, v->len);
    copy[v->len] = '\0';
    *value = copy;
    *len = v->len;
    return 0;
}

/* ---- writing ---- */

static int file_set(struct store *s, struct store_bytes key, struct store_bytes value,
                    int64_t timeout_ms, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "set");
    struct session o;
    int rc = enter_to_write(&o, self(s), timeout_ms, err);
    if (rc < 0) return rc;
    rc = append_record(&o, STORE_BYTES(""), raw, value);
    leave(&o);
    return rc;
}

/* As torch reads a counter: leading space, sign, digits; what follows does not matter. */
static int read_counter(const struct session *o, const struct store_value *v, int64_t *out) {
    char text[32] = "", *end = text;
    if (v == NULL) {
        *out = 0;
        return 0;
    }
    memcpy(text, v->data, v->len < sizeof(text) - 1 ? v->len : sizeof(text) - 1);
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && errno == 0) return 0;
    return cr_fail(o->err, -EINVAL, "add in the store file '%s': the value '%s' is not a number",
                   o->f->path, text);
}

static int add_raw(struct session *o, struct store_bytes raw, int64_t delta, int64_t *total) {
    int64_t now = 0;
    int rc = read_counter(o, find(o->f, raw), &now);
    if (rc < 0) return rc;
    int64_t sum = (int64_t) ((uint64_t) now + (uint64_t) delta);
    char text[24];
    (void) snprintf(text, sizeof(text), "%lld", (long long) sum);
    rc = append_record(o, STORE_BYTES(""), raw, STORE_BYTES(text));
    if (rc == 0) *total = sum;
    return rc;
}

static int file_add(struct store *s, struct store_bytes key, int64_t delta, int64_t timeout_ms,
                    int64_t *total, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "add");
    struct session o;
    int rc = enter_to_write(&o, self(s), timeout_ms, err);
    if (rc < 0) return rc;
    rc = add_raw(&o, raw, delta, total);
    leave(&o);
    return rc;
}

static int is_value(const struct store_value *v, struct store_bytes b) {
    if (v == NULL) return b.len == 0;
    return v->len == b.len && (b.len == 0 || memcmp(v->data, b.data, b.len) == 0);
}

static int compare_set(struct session *o, struct store_bytes raw, struct store_bytes expected,
                       struct store_bytes desired, void **value, size_t *len) {
    const struct store_value *held = find(o->f, raw);
    if (is_value(held, expected)) {
        int rc = append_record(o, STORE_BYTES(""), raw, desired);
        if (rc < 0) return rc;
        held = find(o->f, raw);
    }
    if (held != NULL) return copy_value(held, value, len, o->err);
    void *copy = malloc(expected.len + 1); /* absent, and not expected to be: their own words */
    if (copy == NULL) return fail_memory(o->err, "compare_set");
    memcpy(copy, expected.data, expected.len);
    ((char *) copy)[expected.len] = '\0';
    *value = copy;
    *len = expected.len;
    return 0;
}

static int file_compare_set(struct store *s, struct store_bytes key, struct store_bytes expected,
                            struct store_bytes desired, int64_t timeout_ms, void **value,
                            size_t *len, struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "compare_set");
    struct session o;
    int rc = enter_to_write(&o, self(s), timeout_ms, err);
    if (rc < 0) return rc;
    rc = compare_set(&o, raw, expected, desired, value, len);
    leave(&o);
    return rc;
}

static int file_delete(struct store *s, struct store_bytes key, int64_t timeout_ms, int *deleted,
                       struct cr_error *err) {
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "delete");
    struct session o;
    int rc = enter_to_write(&o, self(s), timeout_ms, err);
    if (rc < 0) return rc;
    rc = append_record(&o, STORE_BYTES("-"), raw, STORE_BYTES(""));
    leave(&o);
    if (rc == 0) *deleted = 1;
    return rc;
}

/* ---- reading and waiting ---- */

/* A read session; a file that does not exist yet is an empty store: *o has no descriptor then. */
static int enter_to_read(struct session *o, struct file_store *f, int64_t deadline_ms,
                         struct cr_error *err) {
    struct cr_error why = {0};
    int rc = enter(o, f, O_RDONLY, deadline_ms, &why);
    if (rc == -ENOENT) {
        forget_all(f);
        return 0;
    }
    if (rc < 0 && err != NULL) *err = why;
    return rc;
}

/* Sleeps until the file or its folder changes, at most LOOK_AGAIN_MS. */
static void await_change(struct file_store *f, int64_t deadline_ms) {
    int64_t until = cr_deadline_ms(LOOK_AGAIN_MS);
    if (until > deadline_ms) until = deadline_ms;
    struct pollfd p = {.fd = f->watch, .events = POLLIN};
    if (poll(&p, 1, cr_poll_timeout(until)) <= 0) return;
    char events[4096];
    while (read(f->watch, events, sizeof(events)) > 0) {
    } /* what changed, the replay will tell */
}

static int exist(struct file_store *f, const struct store_bytes *raws, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (find(f, raws[i]) == NULL) return 0;
    }
    return 1;
}

/* Looks, then waits for a change and looks again: 1 when all exist, 0 when the time is up. */
static int await_keys(struct file_store *f, const struct store_bytes *raws, size_t count,
                      int64_t deadline_ms, struct cr_error *err) {
    for (;;) {
        struct session o;
        int last = cr_time_left_ms(deadline_ms) == 0;
        int rc = enter_to_read(&o, f, deadline_ms, err);
        if (rc < 0) return rc;
        leave(&o);
        if (exist(f, raws, count)) return 1;
        if (last) return 0;
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
    struct file_store *f = self(s);
    struct store_bytes *raws = new_raws(keys, key_count);
    if (raws == NULL) return fail_memory(err, "check");
    struct session o;
    int rc = enter_to_read(&o, f, cr_deadline_ms(timeout_ms), err);
    if (rc == 0) {
        leave(&o);
        *present = exist(f, raws, key_count);
    }
    free_raws(raws, key_count);
    return rc;
}

static int fail_absent(const struct file_store *f, const struct store_bytes *keys, size_t count,
                       int64_t timeout_ms, struct cr_error *err) {
    char what[STORE_CALL_TEXT_MAX];
    store_call_text(STORE_OP_WAIT, keys, count, what);
    return cr_fail(err, -ETIMEDOUT, "%s in the store file '%s': timed out after %lld ms", what,
                   f->path, (long long) timeout_ms);
}

static int file_wait(struct store *s, const struct store_bytes *keys, size_t key_count,
                     int64_t timeout_ms, struct cr_error *err) {
    struct file_store *f = self(s);
    struct store_bytes *raws = new_raws(keys, key_count);
    if (raws == NULL) return fail_memory(err, "wait");
    int rc = await_keys(f, raws, key_count, cr_deadline_ms(timeout_ms), err);
    if (rc == 0) rc = fail_absent(f, keys, key_count, timeout_ms, err);
    free_raws(raws, key_count);
    return rc < 0 ? rc : 0;
}

static int file_get(struct store *s, struct store_bytes key, int64_t timeout_ms, void **value,
                    size_t *len, struct cr_error *err) {
    struct file_store *f = self(s);
    struct store_bytes raw;
    CR_AUTO_FREE void *block = raw_key(key, &raw);
    if (block == NULL) return fail_memory(err, "get");
    int rc = await_keys(f, &raw, 1, cr_deadline_ms(timeout_ms), err);
    if (rc == 0) return fail_absent(f, &key, 1, timeout_ms, err);
    return rc < 0 ? rc : copy_value(find(f, raw), value, len, err);
}

static int file_num_keys(struct store *s, int64_t timeout_ms, int64_t *count,
                         struct cr_error *err) {
    struct session o;
    int rc = enter_to_read(&o, self(s), cr_deadline_ms(timeout_ms), err);
    if (rc < 0) return rc;
    leave(&o);
    *count = (int64_t) self(s)->table.count;
    return 0;
}

struct listing {
    struct store_list_builder builder;
    int rc;
};

static void list_one(void *arg, struct store_entry *e) {
    struct listing *l = arg;
    if (l->rc == 0 && e->key_len > 0 && e->key[0] == '/')
        l->rc = store_list_add(&l->builder, e->key + 1, e->key_len - 1);
}

static int file_list_keys(struct store *s, int64_t timeout_ms, struct store_list *keys,
                          struct cr_error *err) {
    struct session o;
    int rc = enter_to_read(&o, self(s), cr_deadline_ms(timeout_ms), err);
    if (rc < 0) return rc;
    leave(&o);
    struct listing l = {.rc = 0};
    store_key_table_each(&self(s)->table, list_one, &l);
    if (l.rc < 0) {
        store_list_drop(&l.builder);
        return fail_memory(err, "list the keys");
    }
    *keys = store_list_build(&l.builder);
    return 0;
}

/* ---- what torch's file store does not have either ---- */

static int fail_queue(struct cr_error *err) {
    return cr_fail(err, -ENOTSUP, "use a queue: a file store has none");
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

#define CLOSE_MS 5000 /* a lock that somebody holds must not keep us for ever */

static int is_removable(struct session *o) {
    int64_t clean_ups = 0, references = 0;
    struct file_store *f = o->f;
    (void) read_counter(o, find(f, STORE_BYTES("cleanup/")), &clean_ups);
    (void) read_counter(o, find(f, STORE_BYTES("refcount/")), &references);
    return f->world_size >= 0 && clean_ups >= f->world_size && references <= 0;
}

/* Best effort, as torch's: a file that is gone or broken is left as it is. */
static void sign_off(struct file_store *f) {
    struct session o;
    int64_t total;
    if (enter(&o, f, O_RDWR, cr_deadline_ms(CLOSE_MS), NULL) < 0) return;
    if (add_raw(&o, STORE_BYTES("cleanup/"), 1, &total) == 0 &&
        add_raw(&o, STORE_BYTES("refcount/"), -1, &total) == 0 && is_removable(&o)) {
        (void) unlink(f->path);
    }
    leave(&o);
}

static void free_file_store(struct file_store *f) {
    forget_all(f);
    cr_buffer_done(&f->record);
    cr_close_fd(&f->watch);
    free(f->path);
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
    .append = store_fallback_append,
    .multi_get = store_fallback_multi_get,
    .multi_set = store_fallback_multi_set,
    .queue_push = file_queue_push,
    .queue_pop = file_queue_pop,
    .queue_len = file_queue_len,
    .list_keys = file_list_keys,
    .barrier = store_fallback_barrier,
    .close = file_close,
};

/* Watches the file, which sign_on() has made. Without inotify there is still LOOK_AGAIN_MS. */
static int watch_file(const char *path) {
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0) (void) inotify_add_watch(fd, path, IN_MODIFY);
    return fd;
}

static int sign_on(struct file_store *f, struct cr_error *err) {
    struct session o;
    int64_t references;
    int rc = enter_to_write(&o, f, CLOSE_MS, err);
    if (rc < 0) return rc;
    rc = add_raw(&o, STORE_BYTES("refcount/"), 1, &references);
    leave(&o);
    return rc;
}

int store_file_open(const char *path, int64_t world_size, struct store **out,
                    struct cr_error *err) {
    struct file_store *f = calloc(1, sizeof(*f));
    if (f == NULL) return fail_memory(err, "open");
    uint64_t seed[2] = {0};
    (void) getrandom(seed, sizeof(seed), GRND_NONBLOCK); /* zeros serve as well, less guarded */
    store_key_table_init(&f->table, seed);
    f->store.ops = &file_ops;
    f->world_size = world_size;
    f->watch = -1;
    f->path = strdup(path);
    int rc = f->path == NULL ? fail_memory(err, "open") : sign_on(f, err);
    if (rc < 0) {
        free_file_store(f);
        return rc;
    }
    f->watch = watch_file(path);
    *out = &f->store;
    return 0;
}
