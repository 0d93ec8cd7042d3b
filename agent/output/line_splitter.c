/* The splitter that cuts bytes into lines. */
#include "agent/output/line_splitter.h"

#include <errno.h>
#include <string.h>

/* Returns the offset of the next "\n" or "\r", or len if there is none. */
static size_t find_end(const char *data, size_t len) {
    const char *lf = memchr(data, '\n', len);
    size_t before = lf != NULL ? (size_t) (lf - data) : len;
    const char *cr = memchr(data, '\r', before);
    return cr != NULL ? (size_t) (cr - data) : before;
}

static void take(struct line_splitter *s, const char **data, size_t *len, size_t n) {
    *data += n;
    *len -= n;
    s->at += n;
}

/* Takes the "\n" of a "\r\n" whose "\r" was taken by an earlier call. */
static void take_rest_of_end(struct line_splitter *s, const char **data, size_t *len) {
    if (*len == 0 || !s->after_cr) return;
    s->after_cr = false;
    if (**data != '\n') return;
    s->was_pair = true;
    take(s, data, len, 1);
    s->from = s->at;
}

static void begin_line(struct line_splitter *s) {
    if (s->was_given) cr_buffer_clear(&s->partial);
    s->was_given = false;
}

/* Drops the kept beginning of the current line. The line counts as longer than LINE_MAX_LEN from
 * now on, so its other bytes are not kept, either. */
static void give_up_line(struct line_splitter *s) {
    cr_buffer_done(&s->partial);
    s->is_long = true;
}

/* Takes the next n bytes, which contain no line end, and keeps them unless the line is too long.
 * Returns 0. If memory is short and skips_long is false, the bytes are lost, and it returns
 * -ENOMEM. If memory is short and skips_long is true, it drops the line, which the owner can read
 * from a file, and returns 0. */
static int keep(struct line_splitter *s, const char **data, size_t *len, size_t n) {
    int rc = s->is_long ? 0 : cr_buffer_append(&s->partial, *data, n);
    if (rc < 0 && s->skips_long) give_up_line(s);
    take(s, data, len, n);
    return rc < 0 && !s->skips_long ? rc : 0;
}

/* Fills in *line with the current line, whose last n bytes are at *data, and takes those bytes.
 * Always returns 1. */
static int give(struct line_splitter *s, const char **data, size_t *len, size_t n,
                struct line *line) {
    *line = (struct line){.data = *data, .len = n, .from = s->from, .to = s->at + n};
    if (s->is_long) {
        line->data = NULL;
        line->len = 0;
        line->is_long = true;
    } else if (s->partial.len > 0) {
        int rc = cr_buffer_append(&s->partial, *data, n);
        line->data = s->partial.data;
        line->len = s->partial.len;
        s->was_given = true;
        if (rc < 0 && s->skips_long) *line = (struct line){.is_long = true, .from = s->from};
        line->to = s->at + n;
    }
    s->is_long = false;
    take(s, data, len, n);
    s->from = s->at;
    return 1;
}

/* Takes the line end at *data: "\n", "\r\n" or "\r". */
static void take_end(struct line_splitter *s, const char **data, size_t *len, struct line *line) {
    bool is_cr = **data == '\r';
    bool is_pair = is_cr && *len > 1 && (*data)[1] == '\n';
    line->is_update = is_cr && !is_pair;
    s->after_cr = is_cr && *len == 1;
    take(s, data, len, is_pair ? 2 : 1);
    s->from = s->at;
}

int line_splitter_next(struct line_splitter *s, const char **data, size_t *len, struct line *line) {
    begin_line(s);
    take_rest_of_end(s, data, len);
    if (*len == 0) return 0;
    size_t n = find_end(*data, *len), room = LINE_MAX_LEN - s->partial.len;
    if (n > room && !s->is_long) {
        if (!s->skips_long) return give(s, data, len, room, line);
        give_up_line(s);
    }
    if (n == *len) return keep(s, data, len, n);
    (void) give(s, data, len, n, line);
    take_end(s, data, len, line);
    return 1;
}

size_t line_splitter_take_whole(struct line_splitter *s, const char *data, size_t len) {
    begin_line(s);
    if (len == 0 || s->after_cr || s->is_long || s->partial.len > 0) return 0;
    const char *end = memrchr(data, '\n', len < LINE_MAX_LEN ? len : LINE_MAX_LEN);
    size_t n = end != NULL ? (size_t) (end + 1 - data) : 0;
    if (memchr(data, '\r', n) != NULL) return 0;
    s->at += n;
    s->from = s->at;
    return n;
}

int line_splitter_end(struct line_splitter *s, struct line *line) {
    const char *data = "";
    size_t len = 0;
    begin_line(s);
    s->after_cr = false;
    if (s->partial.len == 0 && !s->is_long) return 0;
    return give(s, &data, &len, 0, line);
}

void line_splitter_done(struct line_splitter *s) { cr_buffer_done(&s->partial); }
