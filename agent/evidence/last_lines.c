/* Formats the last lines of a worker's output so that they are safe to show: implements
 * last_lines.h. */
#include "agent/evidence/last_lines.h"

#include "base/text/text.h"

#include <string.h>

/* Returns the part of a line that a terminal would show, which is the text after its last carriage
 * return. Sets *len to the length of this part. */
static const char *visible_part(const char *line, size_t *len) {
    while (*len > 0 && line[*len - 1] == '\r') (*len)--;
    const char *cr = memrchr(line, '\r', *len);
    if (cr == NULL) return line;
    *len -= (size_t) (cr + 1 - line);
    return cr + 1;
}

static int append_line(struct cr_buffer *out, const char *line, size_t len, const char *indent) {
    line = visible_part(line, &len);
    size_t shown = len > LAST_LINE_LEN ? LAST_LINE_LEN : len;
    int rc = cr_buffer_append(out, indent, strlen(indent));
    if (rc == 0) rc = cr_text_append(out, line, shown, "\t");
    if (rc == 0 && shown < len) rc = cr_buffer_append(out, "...", 3);
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

int last_lines_append(struct cr_buffer *out, const char *data, size_t len, const char *indent) {
    while (len > 0 && data[len - 1] != '\0' && strchr("\r\n \t", data[len - 1]) != NULL) len--;
    if (len == 0) return 0;
    for (size_t from = start_of_last_lines(data, len); from < len;) {
        const char *lf = memchr(data + from, '\n', len - from);
        size_t end = lf == NULL ? len : (size_t) (lf - data);
        int rc = append_line(out, data + from, end - from, indent);
        if (rc < 0) return rc;
        from = end + 1;
    }
    return 0;
}
