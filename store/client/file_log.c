/* Locks, reads and appends to the file of a file store. file_log.h describes the format. */
#include "store/client/file_log.h"

#include "base/cleanup.h"
#include "base/files/private_file.h"
#include "base/time/clock.h"
#include "store/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Pause in ms between two attempts to lock the file. flock(2) has no timeout, so lock() calls
 * flock() with LOCK_NB until it succeeds or the deadline has passed. */
#define LOCK_AGAIN_MS 2
#define FILE_MAX      ((off_t) 4 << 30) /* largest file size in bytes; a larger file is refused with
                                         * -EFBIG */

static int fail_memory(struct cr_error *err, const char *what) {
    return cr_fail(err, -ENOMEM, "%s in the file store: out of memory", what);
}

static void forget_all(struct store_file_log *log) {
    store_file_keys_clear(&log->keys);
    log->replayed = 0;
}

void store_file_log_done(struct store_file_log *log) {
    forget_all(log);
    cr_buffer_done(&log->record);
    free(log->path);
}

/* ---- replaying ---- */

static bool take_field(const uint8_t *data, size_t len, size_t *pos, struct store_bytes *out) {
    if (len - *pos < 4) return false;
    size_t n = store_load_u32(data + *pos);
    if (len - *pos - 4 < n) return false;
    *out = (struct store_bytes){data + *pos + 4, n};
    *pos += 4 + n;
    return true;
}

static int apply_record(struct store_file_log *log, struct store_bytes key,
                        struct store_bytes value) {
    const char *name = key.data;
    if (key.len < 2 || name[0] != '-' || name[1] != '/')
        return store_file_keys_put(&log->keys, key, value);
    store_file_keys_remove(&log->keys, (struct store_bytes){name + 1, key.len - 1});
    return 0;
}

/* Applies all complete records in `data` to log->keys. Returns how many bytes these records take,
 * or -ENOMEM. */
static int64_t replay(struct store_file_log *log, const uint8_t *data, size_t len) {
    size_t done = 0;
    for (;;) {
        size_t pos = done;
        struct store_bytes key, value;
        if (!take_field(data, len, &pos, &key) || !take_field(data, len, &pos, &value))
            return (int64_t) done;
        if (apply_record(log, key, value) < 0) return -ENOMEM;
        done = pos;
    }
}

static int fail_cut(const struct store_file_access *a) {
    return cr_fail(a->err, -EBADMSG,
                   "use the store file '%s': the record at byte %lld is cut off; it is no store "
                   "file, or a writer died in it; remove it and start again",
                   a->log->path, (long long) a->log->replayed);
}

static int read_new(struct store_file_access *a, size_t len) {
    struct store_file_log *log = a->log;
    cr_buffer_clear(&log->record);
    if (cr_buffer_reserve(&log->record, len) < 0) return fail_memory(a->err, "read");
    while (log->record.len < len) {
        ssize_t n = pread(a->fd, log->record.data + log->record.len, len - log->record.len,
                          log->replayed + (off_t) log->record.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cr_fail_errno(a->err, "read the store file '%s'", log->path);
        /* End of file: the file has become shorter since fstat(). If it is now shorter than
         * log->replayed, the next access begins with no keys and reads the whole file. */
        if (n == 0) break;
        log->record.len += (size_t) n;
    }
    return 0;
}

/* Reads the records that were appended since this store's previous access, and applies them to
 * log->keys. Returns 0 or a negative errno; -EBADMSG if the last record is incomplete. Such a
 * record is damaged: this process holds the lock, so no other process is writing the record now. */
static int catch_up(struct store_file_access *a) {
    struct store_file_log *log = a->log;
    struct stat st;
    if (fstat(a->fd, &st) < 0)
        return cr_fail_errno(a->err, "read the size of the store file '%s'", log->path);
    if (st.st_ino != log->inode || st.st_dev != log->device || st.st_size < log->replayed)
        forget_all(log);
    log->inode = st.st_ino;
    log->device = st.st_dev;
    if (st.st_size == log->replayed) return 0;
    if (st.st_size > FILE_MAX)
        return cr_fail(a->err, -EFBIG, "use the store file '%s': larger than %lld bytes", log->path,
                       (long long) FILE_MAX);
    int rc = read_new(a, (size_t) (st.st_size - log->replayed));
    if (rc < 0) return rc;
    int64_t n = replay(log, (const uint8_t *) log->record.data, log->record.len);
    if (n < 0) return fail_memory(a->err, "replay a record");
    log->replayed += (off_t) n;
    return (size_t) n < log->record.len ? fail_cut(a) : 0;
}

/* ---- an access ---- */

static void pause_until(int64_t deadline_ms, int64_t ms) {
    int64_t until = cr_deadline_ms(ms);
    if (until > deadline_ms) until = deadline_ms;
    (void) poll(NULL, 0, cr_poll_timeout(until));
}

static int lock(struct store_file_access *a, int how) {
    for (;;) {
        if (flock(a->fd, how | LOCK_NB) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK)
            return cr_fail_errno(a->err, "lock the store file '%s'", a->log->path);
        if (cr_time_left_ms(a->deadline_ms) == 0)
            return cr_fail(a->err, -ETIMEDOUT,
                           "lock the store file '%s': timed out: another process holds it",
                           a->log->path);
        pause_until(a->deadline_ms, LOCK_AGAIN_MS);
    }
}

void store_file_end(struct store_file_access *a) { cr_close_fd(&a->fd); }

int store_file_begin(struct store_file_access *a, struct store_file_log *log, int open_flags,
                     int64_t deadline_ms, struct cr_error *err) {
    *a = (struct store_file_access){log, -1, deadline_ms, err};
    int rc = a->fd = cr_private_open(log->path, open_flags);
    if (rc < 0) return cr_fail(err, rc, "open the store file '%s': %s", log->path, strerror(-rc));
    rc = lock(a, (open_flags & O_ACCMODE) == O_RDONLY ? LOCK_SH : LOCK_EX);
    if (rc == 0) rc = catch_up(a);
    if (rc < 0) store_file_end(a);
    return rc;
}

int store_file_begin_read(struct store_file_access *a, struct store_file_log *log,
                          int64_t deadline_ms, struct cr_error *err) {
    struct cr_error why = {0};
    int rc = store_file_begin(a, log, O_RDONLY, deadline_ms, &why);
    if (rc == -ENOENT) {
        forget_all(log);
        return 0;
    }
    if (rc < 0 && err != NULL) *err = why;
    return rc;
}

/* ---- appending ---- */

static int put_field(struct cr_buffer *b, struct store_bytes prefix, struct store_bytes data) {
    uint8_t len[4];
    store_put_u32(len, (uint32_t) (prefix.len + data.len));
    int rc = cr_buffer_append(b, len, sizeof(len));
    if (rc == 0) rc = cr_buffer_append(b, prefix.data, prefix.len);
    return rc < 0 ? rc : cr_buffer_append(b, data.data, data.len);
}

/* Writes log->record at the end of the file. Returns 0 or a negative errno. If a write fails, the
 * function truncates the file to its old length: an incomplete record at the end would make the
 * file unusable for all processes. */
static int write_record(struct store_file_access *a) {
    const struct cr_buffer *b = &a->log->record;
    size_t done = 0;
    while (done < b->len) {
        ssize_t n = pwrite(a->fd, b->data + done, b->len - done, a->log->replayed + (off_t) done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int rc = cr_fail_errno(a->err, "write the store file '%s'", a->log->path);
            (void) ftruncate(a->fd, a->log->replayed);
            return rc;
        }
        done += (size_t) n;
    }
    return 0;
}

int store_file_append(struct store_file_access *a, struct store_bytes mark, struct store_bytes raw,
                      struct store_bytes value) {
    struct store_file_log *log = a->log;
    cr_buffer_clear(&log->record);
    if (mark.len + raw.len > UINT32_MAX || value.len > STORE_VALUE_MAX)
        return cr_fail(a->err, -EMSGSIZE,
                       "write the store file '%s': the value is longer than %zu bytes", log->path,
                       STORE_VALUE_MAX);
    if (put_field(&log->record, mark, raw) < 0 ||
        put_field(&log->record, STORE_BYTES(""), value) < 0)
        return fail_memory(a->err, "write");
    int rc = write_record(a);
    if (rc < 0) return rc;
    int64_t n = replay(log, (const uint8_t *) log->record.data, log->record.len);
    if (n < 0) return fail_memory(a->err, "write");
    log->replayed += (off_t) n;
    return 0;
}
