/* The file of a file store: a log that processes append to under flock(2), byte for byte as torch's
 * FileStore writes it, so that both can share one file.
 *
 *   record:  u32 key length, key, u32 value length, value         little-endian, nothing around it
 *   keys:    "/k" a key of the user    "-/k" its deletion    "cleanup/", "refcount/" counters
 *
 * The last record of a key wins. An access opens and locks the file and replays into memory what
 * others appended since the last access; then the keys can be read and records appended. */
#ifndef STORE_CLIENT_FILE_LOG_H
#define STORE_CLIENT_FILE_LOG_H

#include "store/client/file_keys.h"

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

/* Zero-initialise and set the path. */
struct store_file_log {
    char *path;
    dev_t device; /* of the file that was replayed, */
    ino_t inode;  /* to notice when it is replaced */
    off_t replayed; /* bytes of it */
    struct store_file_keys keys;
    struct cr_buffer record; /* bytes that are read or about to be appended */
};

void store_file_log_done(struct store_file_log *log);

/* One access to the locked file. */
struct store_file_access {
    struct store_file_log *log;
    int fd;
    int64_t deadline_ms;
    struct cr_error *err;
};

/* Begins an access with `open_flags` for open(2): a shared lock with O_RDONLY, else an exclusive
 * one. Returns 0, or -ENOENT and other errors of open(2), -ETIMEDOUT (another process holds the
 * lock), -EBADMSG (the last record is cut off), -EFBIG, -ENOMEM. */
int store_file_begin(struct store_file_access *a, struct store_file_log *log, int open_flags,
                     int64_t deadline_ms, struct cr_error *err);

/* The same for reading, where a file that does not exist is an empty store. */
int store_file_begin_read(struct store_file_access *a, struct store_file_log *log,
                          int64_t deadline_ms, struct cr_error *err);

/* Appends one record. `raw` is the key as it stands in the file, `mark` what goes in front of it:
 * "-" for a deletion, else "". */
int store_file_append(struct store_file_access *a, struct store_bytes mark, struct store_bytes raw,
                      struct store_bytes value);

/* Ends the access; the lock ends with the descriptor. */
void store_file_end(struct store_file_access *a);

#endif
