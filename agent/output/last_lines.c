#include "agent/output/last_lines.h"

#include <stdlib.h>
#include <string.h>

void last_bytes_add(struct last_bytes *l, const char *data, size_t len) {
    if (len == 0) return;
    if (l->data == NULL) l->data = malloc(LAST_BYTES_MAX);
    if (l->data == NULL) return;
    if (len > LAST_BYTES_MAX) {
        l->total += len - LAST_BYTES_MAX;
        data += len - LAST_BYTES_MAX;
        len = LAST_BYTES_MAX;
    }
    size_t at = l->total % LAST_BYTES_MAX, first = LAST_BYTES_MAX - at;
    if (first > len) first = len;
    memcpy(l->data + at, data, first);
    memcpy(l->data, data + first, len - first);
    l->total += len;
}

int last_bytes_copy(const struct last_bytes *l, struct cr_buffer *out) {
    if (l->data == NULL) return 0;
    size_t at = l->total % LAST_BYTES_MAX;
    if (l->total < LAST_BYTES_MAX) return cr_buffer_append(out, l->data, l->total);
    int rc = cr_buffer_append(out, l->data + at, LAST_BYTES_MAX - at);
    return rc < 0 ? rc : cr_buffer_append(out, l->data, at);
}

void last_bytes_done(struct last_bytes *l) {
    free(l->data);
    *l = (struct last_bytes){0};
}

/* ---- writing for people ---- */

/* Bytes of the printable character at p[0…n), or 0: a control, an overlong form, a surrogate, a C1
 * control (some terminals obey those) or no UTF-8 at all. */
static size_t printable_len(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return p[0] >= 0x20 && p[0] != 0x7f;
    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
    }
    if (p[0] == 0xC2 && p[1] < 0xA0) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
    if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return len;
}

static int escape(struct cr_buffer *out, const char *data, size_t len, int keep_tabs) {
    const unsigned char *p = (const unsigned char *) data;
    int rc = 0;
    while (rc == 0 && len > 0) {
        size_t n = keep_tabs && *p == '\t' ? 1 : printable_len(p, len);
        rc = n > 0 ? cr_buffer_append(out, p, n) : cr_buffer_printf(out, "\\x%02x", *p);
        if (n == 0) n = 1;
        p += n, len -= n;
    }
    return rc;
}

int last_lines_escape(struct cr_buffer *out, const char *data, size_t len) {
    return escape(out, data, len, 0);
}

/* What is left to see of a line after its carriage returns. */
static const char *visible(const char *line, size_t *len) {
    while (*len > 0 && line[*len - 1] == '\r') (*len)--;
    const char *cr = memrchr(line, '\r', *len);
    if (cr == NULL) return line;
    *len -= (size_t) (cr + 1 - line);
    return cr + 1;
}

static int write_line(struct cr_buffer *out, const char *line, size_t len, const char *indent) {
    line = visible(line, &len);
    int cut = len > LAST_LINE_LEN;
    int rc = cr_buffer_append(out, indent, strlen(indent));
    if (rc == 0) rc = escape(out, line, cut ? LAST_LINE_LEN : len, 1);
    if (rc == 0 && cut) rc = cr_buffer_append(out, "...", 3);
    return rc < 0 ? rc : cr_buffer_append(out, "\n", 1);
}

static size_t start_of_last_lines(const char *data, size_t len) {
    size_t from = len;
    for (int i = 0; i < LAST_LINES_MAX; i++) {
        const char *lf = memrchr(data, '\n', from);
        if (lf == NULL) return 0;
        from = (size_t) (lf - data);
    }
    return from + 1;
}

int last_lines_write(struct cr_buffer *out, const char *data, size_t len, const char *indent) {
    while (len > 0 && data[len - 1] != '\0' && strchr("\r\n \t", data[len - 1]) != NULL) len--;
    if (len == 0) return 0;
    for (size_t from = start_of_last_lines(data, len); from < len;) {
        const char *lf = memchr(data + from, '\n', len - from);
        size_t end = lf == NULL ? len : (size_t) (lf - data);
        int rc = write_line(out, data + from, end - from, indent);
        if (rc < 0) return rc;
        from = end + 1;
    }
    return 0;
}
