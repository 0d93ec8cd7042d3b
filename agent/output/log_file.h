/* The log file that the launcher writes for a stream. Bytes of the stream are appended to it; a
 * tail whose console is slow reads them from it later. A byte is addressed by its offset in the
 * stream.
 *
 * If the log file has a size limit, it keeps the beginning and the end of the stream, in up to
 * three files, which are called the parts of the log. The first bytes go to NAME, until it has half
 * of the limit. The bytes after that go to NAME.last. When NAME.last has reached a quarter of the
 * limit, it is renamed to NAME.last.1, and a new NAME.last begins. From then on NAME.last and
 * NAME.last.1 together have between a quarter and a half of the limit. Each of these two begins
 * with a line that says which bytes of the stream follow. */
#ifndef AGENT_LOG_FILE_H
#define AGENT_LOG_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOG_FILE_NAME_MAX 64

/* One file on disk, with the bytes [from, to) of the stream. */
struct log_part {
    bool is_mid_line; /* true if the last byte of the part is not a newline */
    int fd; /* -1 if this part does not exist */
    uint64_t from, to;
    uint64_t head; /* length in bytes of the line that says which bytes of the stream follow in the
                    * file; 0 in `first`, which has no such line */
};

struct log_file {
    struct log_part first, older, last; /* the parts NAME, NAME.last.1 and NAME.last; without a size
                                         * limit only `first` is used */
    uint64_t end;                       /* number of bytes appended so far */
    uint64_t max;                       /* the size limit in bytes; 0 if there is no limit */
    int folder_fd;                      /* descriptor of the worker's log folder; -1 if there is no
                                         * size limit */
    char name[LOG_FILE_NAME_MAX];
};

/* Makes a log file from `fd`, an empty file that is open for appending and reading. The log file
 * owns fd from now on. `max` is the size limit in bytes; 0 if there is no limit. If max > 0,
 * `folder_fd` is the folder that contains the file `name`; the log file keeps a duplicate of
 * folder_fd. Returns 0 and stores the log file in *out; or returns -ENOMEM or the error of dup(2),
 * and closes fd. */
int log_file_new(int fd, uint64_t max, int folder_fd, const char *name, struct log_file **out);
void log_file_free(struct log_file *f);

/* Appends bytes. Returns 0; or a negative errno if not all bytes could be written. In both cases
 * adds the number of bytes that were written to f->end. */
int log_file_append(struct log_file *f, const char *data, size_t len);

/* Reads at most `len` bytes of the stream from the offset *at on. If the size limit has removed the
 * byte at *at, first moves *at to the next byte that still exists. Returns the number of bytes
 * read; the caller adds it to *at. Returns 0 if *at is the end of the stream, if another program
 * has made the file shorter, or if the file cannot be read. */
size_t log_file_read(const struct log_file *f, uint64_t *at, char *out, size_t len);

#endif
