/* Appends to a log file, reads back from it, and keeps it below its size limit. */
#include "agent/output/log_file.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX_LAST  ".last"
#define SUFFIX_OLDER ".last.1"

/* A part of the log may exceed its size by this number of bytes, so that its last line is whole. */
#define LINE_REST_MAX ((size_t) 4096)

int log_file_new(int fd, uint64_t max, int folder_fd, const char *name, struct log_file **out) {
    struct log_file *f = calloc(1, sizeof(*f));
    int rc = f == NULL ? -ENOMEM : 0;
    if (rc == 0) {
        *f = (struct log_file){
            .first.fd = fd, .older.fd = -1, .last.fd = -1, .max = max, .folder_fd = -1};
        (void) snprintf(f->name, sizeof(f->name), "%s", name);
    }
    if (rc == 0 && max > 0) f->folder_fd = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0);
    if (rc == 0 && max > 0 && f->folder_fd < 0) rc = -errno;
    if (rc == 0) return *out = f, 0;
    free(f);
    cr_close_fd(&fd);
    return rc;
}

void log_file_free(struct log_file *f) {
    if (f == NULL) return;
    cr_close_fd(&f->first.fd);
    cr_close_fd(&f->older.fd);
    cr_close_fd(&f->last.fd);
    cr_close_fd(&f->folder_fd);
    free(f);
}

/* ---- appending ---- */

/* Returns the part of the log (one file, struct log_part) to which bytes are appended now. */
static struct log_part *current(struct log_file *f) {
    return f->last.fd >= 0 ? &f->last : &f->first;
}

static int append_to(struct log_file *f, struct log_part *p, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(p->fd, data, len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        data += n;
        len -= (size_t) n;
        p->to += (uint64_t) n;
        p->is_mid_line = data[-1] != '\n';
        f->end += (uint64_t) n;
    }
    return 0;
}

static uint64_t part_max(const struct log_file *f, const struct log_part *p) {
    return p == &f->first ? f->max / 2 : f->max / 4;
}

/* Call this if a part of the log (one file) has `used` bytes and ends within a line. Returns how
 * many of the next bytes belong to that line: those up to the newline, or all `len` bytes if they
 * contain no newline. Returns 0 if the file would exceed its size `max` by more than LINE_REST_MAX
 * with these bytes. */
static size_t rest_of_line(const char *data, size_t len, uint64_t used, uint64_t max) {
    const char *lf = memchr(data, '\n', len);
    size_t rest = lf != NULL ? (size_t) (lf - data) + 1 : len;
    return used + rest <= max + LINE_REST_MAX ? rest : 0;
}

/* Returns how many of the `len` bytes have to be appended to the current part of the log (one
 * file): as many as the limit of its size allows, and whole lines if possible. Returns 0 if a new
 * file has to be begun first. */
static size_t fitting(struct log_file *f, const char *data, size_t len) {
    const struct log_part *p = current(f);
    uint64_t used = p->to - p->from, max = part_max(f, p);
    size_t room = used >= max ? 0 : (size_t) (max - used);
    if (f->max == 0 || room >= len) return len;
    const char *lf = memrchr(data, '\n', room);
    if (lf != NULL) return (size_t) (lf - data) + 1;
    if (p->is_mid_line && used > 0) return rest_of_line(data, len, used, max);
    /* No whole line fits, so the line goes to the next file. But if the current file is empty, it
     * gets as much of the line as fits, at least one byte. */
    return used > 0 ? 0 : room > 0 ? room : 1;
}

static int write_head(const struct log_file *f, struct log_part *p) {
    char line[160];
    uint64_t missing = p->from - f->first.to;
    int n = snprintf(line, sizeof(line),
                     "[crun: here the output goes on at byte %" PRIu64 "; its first %" PRIu64
                     " bytes are in %s%s]\n",
                     p->from, f->first.to, f->name,
                     missing > 0 ? ", and bytes between may be gone" : "");
    ssize_t written = write(p->fd, line, (size_t) n);
    if (written != n) return written < 0 ? -errno : -ENOSPC;
    p->head = (uint64_t) n;
    return 0;
}

/* Renames NAME.last, if there is one, to NAME.last.1, and begins a new NAME.last. Returns 0 or a
 * negative errno. */
static int begin_part(struct log_file *f) {
    char last[LOG_FILE_NAME_MAX + 16], older[LOG_FILE_NAME_MAX + 16];
    (void) snprintf(last, sizeof(last), "%s" SUFFIX_LAST, f->name);
    (void) snprintf(older, sizeof(older), "%s" SUFFIX_OLDER, f->name);
    if (f->last.fd >= 0) {
        if (renameat(f->folder_fd, last, f->folder_fd, older) < 0) return -errno;
        cr_close_fd(&f->older.fd);
        f->older = f->last;
    }
    int fd = openat(f->folder_fd, last, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    f->last = (struct log_part){.fd = fd, .from = f->end, .to = f->end};
    return fd < 0 ? -errno : write_head(f, &f->last);
}

int log_file_append(struct log_file *f, const char *data, size_t len) {
    int rc = 0;
    while (rc == 0 && len > 0) {
        size_t n = fitting(f, data, len);
        rc = append_to(f, current(f), data, n);
        data += n;
        len -= n;
        if (rc == 0 && len > 0) rc = begin_part(f);
    }
    return rc;
}

/* ---- reading back ---- */

static bool has(const struct log_part *p, uint64_t at) {
    return p->fd >= 0 && p->from <= at && at < p->to;
}

size_t log_file_read(const struct log_file *f, uint64_t *at, char *out, size_t len) {
    const struct log_part *p = &f->first;
    if (*at >= f->end) return 0;
    if (!has(p, *at)) p = has(&f->older, *at) || *at < f->older.from ? &f->older : &f->last;
    if (p->fd < 0) p = &f->last;
    if (*at < p->from) *at = p->from;
    if (!has(p, *at)) return 0;
    if (len > p->to - *at) len = (size_t) (p->to - *at);
    ssize_t n = pread(p->fd, out, len, (off_t) (p->head + *at - p->from));
    return n > 0 ? (size_t) n : 0;
}
