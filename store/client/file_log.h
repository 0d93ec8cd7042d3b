/* The file of a file store: a log of records. A process appends a record while it holds a lock of
 * the file (flock(2)). The format is exactly that of torch's FileStore, so that crun and torch can
 * share a file.
 *
 *   record:  u32 key length, key, u32 value length, value         little-endian, no file header
 *   key:     "/k"         the record sets the user's key "k"
 *            "-/k"        the record deletes the user's key "k"
 *            "cleanup/", "refcount/"    counters of the stores that use the file (file_store.c)
 *
 * If several records set the same key, the last of them counts. Each operation of a store makes one
 * access: it opens and locks the file, reads into memory the records that were appended since this
 * store's previous access, then reads keys or appends records, and closes the file. */
#ifndef STORE_CLIENT_FILE_LOG_H
#define STORE_CLIENT_FILE_LOG_H

#include "store/client/file_keys.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* The file and its content in memory. Zero-initialise the struct, then set `path` to a malloc'ed
 * copy of the file's path. */
struct store_file_log {
    char *path;
    /* device and inode number of the file whose records are in `keys`. If the file at `path` has
     * other numbers, another file has replaced it, and the next access begins with no keys. */
    dev_t device;
    ino_t inode;
    off_t replayed; /* number of bytes of the file whose records are in `keys` */
    struct store_file_keys keys;
    struct cr_buffer record; /* the record that is being appended, or the records that are being
                              * read */
};

void store_file_log_done(struct store_file_log *log);

/* One access to the file, which is open and locked from store_file_begin() to store_file_end(). */
struct store_file_access {
    struct store_file_log *log;
    int fd;
    int64_t deadline_ms;
    struct cr_error *err;
};

/* Begins an access: opens the file with `open_flags` for open(2), locks it, and reads the new
 * records into log->keys. The lock is shared if `open_flags` is O_RDONLY, else exclusive. Returns 0
 * or one of these errors, and sets err:
 *
 *   -ETIMEDOUT  another process holds the lock
 *   -EBADMSG    the last record is incomplete
 *   -EFBIG      the file is too large
 *   -ENOMEM     memory is short
 *   others      the errno of a failed system call, such as -ENOENT */
int store_file_begin(struct store_file_access *a, struct store_file_log *log, int open_flags,
                     int64_t deadline_ms, struct cr_error *err);

/* Begins an access for reading only. If the file does not exist, the store is empty: the function
 * returns 0, and log->keys has no keys. */
int store_file_begin_read(struct store_file_access *a, struct store_file_log *log,
                          int64_t deadline_ms, struct cr_error *err);

/* Appends one record, whose key is `mark` followed by `raw`. `raw` is the key as it stands in the
 * file, such as "/k". `mark` is "-" if the record deletes this key, else "". Returns 0 or a
 * negative errno and sets a->err. */
int store_file_append(struct store_file_access *a, struct store_bytes mark, struct store_bytes raw,
                      struct store_bytes value);

/* Ends the access: closes the file, which also releases the lock. */
void store_file_end(struct store_file_access *a);

#endif
