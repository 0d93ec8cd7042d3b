/* Cuts bytes into lines: see line_splitter.h. */
#include "agent/output/line_splitter.h"

#include <string.h>

/* Returns the offset of the next "\n" or "\r", or len if there is none. */
static size_t find_end(const char *data, size_t len) {
    const char *lf = memchr(data, '\n', len);
    size_t before = lf != NULL ? (size_t) (lf - data) : len;
    const char *cr = memchr(data, '\r', before);
    return cr != NULL ? (size_t) (cr - data) : before;
}

static int emit(struct line_splitter *s, const char *data, size_t len, line_fn on_line, void *arg) {
    if (s->partial.len == 0) return on_line(arg, data, len);
    int rc = cr_buffer_append(&s->partial, data, len);
    if (rc == 0) rc = on_line(arg, s->partial.data, s->partial.len);
    cr_buffer_clear(&s->partial);
    return rc;
}

/* Returns how many bytes the line end at data[0] has: 2 for "\r\n", else 1. */
static size_t end_len(const char *data, size_t len) {
    return data[0] == '\r' && len > 1 && data[1] == '\n' ? 2 : 1;
}

int line_splitter_feed(struct line_splitter *s, const char *data, size_t len, line_fn on_line,
                       void *arg) {
    if (len > 0 && s->after_cr && data[0] == '\n') data++, len--, s->after_cr = false;
    while (len > 0) {
        s->after_cr = false;
        size_t line = find_end(data, len), room = LINE_MAX_LEN - s->partial.len;
        bool is_whole = line < len && line <= room;
        if (line > room) line = room;
        if (!is_whole && line == len) return cr_buffer_append(&s->partial, data, line);
        int rc = emit(s, data, line, on_line, arg);
        if (rc < 0) return rc;
        data += line, len -= line;
        /* this was a piece of a long line, so no line end follows it in the input */
        if (!is_whole) continue;
        size_t end = end_len(data, len);
        s->after_cr = data[0] == '\r' && len == 1;
        data += end, len -= end;
    }
    return 0;
}

int line_splitter_end(struct line_splitter *s, line_fn on_line, void *arg) {
    s->after_cr = false;
    return s->partial.len == 0 ? 0 : emit(s, "", 0, on_line, arg);
}

void line_splitter_done(struct line_splitter *s) { cr_buffer_done(&s->partial); }
