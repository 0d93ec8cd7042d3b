/* The file of a file store: a log of records. Processes append to it while they hold a lock
 * (flock(2)). The format is exactly that of torch's FileStore, so that crun and torch can share a
 * file.
 *
 *   record:  u32 key length, key, u32 value length, value         little-endian, no file header
 *   keys:    "/k" a key of the user    "-/k" its deletion    "cleanup/", "refcount/" counters
 *
 * The last record of a key gives its value. An access opens and locks the file, and replays into
 * memory the records that were appended since the last access. During the access keys can be read
 * and records appended. */
#ifndef STORE_CLIENT_FILE_LOG_H
#define STORE_CLIENT_FILE_LOG_H

#include "store/client/file_keys.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* The file and its content in memory. Zero-initialise, then set `path` to a malloc'ed copy of the
 * path. */
struct store_file_log {
    char *path;
    /* device and inode number of the replayed file; other numbers at the next access mean that
     * another file has replaced it */
    dev_t device;
    ino_t inode;
    off_t replayed; /* number of bytes of the file that have been replayed */
    struct store_file_keys keys;
    struct cr_buffer record; /* the record that is being appended, or the bytes that are being
                              * replayed */
};

void store_file_log_done(struct store_file_log *log);

/* One access: the file is open and locked until store_file_end(). */
struct store_file_access {
    struct store_file_log *log;
    int fd;
    int64_t deadline_ms;
    struct cr_error *err;
};

/* Opens the file with `open_flags` for open(2), locks it and replays new records. The lock is
 * shared if the flags are O_RDONLY, else exclusive. Returns 0, -ENOENT and other errors of open(2),
 * -ETIMEDOUT (another process holds the lock), -EBADMSG (the last record is cut off), -EFBIG or
 * -ENOMEM. */
int store_file_begin(struct store_file_access *a, struct store_file_log *log, int open_flags,
                     int64_t deadline_ms, struct cr_error *err);

/* Begins an access for reading only. A file that does not exist counts as an empty store: returns 0
 * with no keys. */
int store_file_begin_read(struct store_file_access *a, struct store_file_log *log,
                          int64_t deadline_ms, struct cr_error *err);

/* Appends one record. `raw` is the key as it stands in the file; `mark` is put in front of it: "-"
 * for a deletion, else "". */
int store_file_append(struct store_file_access *a, struct store_bytes mark, struct store_bytes raw,
                      struct store_bytes value);

/* Ends the access: closes the file, which also releases the lock. */
void store_file_end(struct store_file_access *a);

#endif
