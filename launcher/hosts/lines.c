/* Writes host names in front of lines: see lines_internal.h. */
#include "launcher/hosts/lines_internal.h"

#include <string.h>

/* Prepares `out` for text of `host`. If the last line that was written is an unfinished line of
 * this host, the text continues it. Otherwise the function ends an unfinished line of another host,
 * and writes the host's prefix. */
static int begin_line(struct hosts_lines *l, uint32_t host, struct cr_buffer *out) {
    if (l->open == (int64_t) host) return 0;
    int rc = l->open >= 0 ? cr_buffer_append(out, "\n", 1) : 0;
    l->open = host;
    const char *prefix = l->prefixes[host];
    return rc == 0 ? cr_buffer_append(out, prefix, strlen(prefix)) : rc;
}

/* Writes the bytes of the host that were kept, and then data[0..len). `ends` is true if
 * data[0..len) ends with a newline. */
static int write_line(struct hosts_lines *l, uint32_t host, const char *data, size_t len, bool ends,
                      struct cr_buffer *out) {
    struct cr_buffer *kept = &l->streams[host].kept;
    int rc = begin_line(l, host, out);
    if (rc == 0 && kept->len > 0) rc = cr_buffer_append(out, kept->data, kept->len);
    if (rc == 0) rc = cr_buffer_append(out, data, len);
    cr_buffer_clear(kept);
    if (ends) l->open = -1;
    return rc;
}

int hosts_lines_add(struct hosts_lines *l, uint32_t host, const char *data, size_t len,
                    struct cr_buffer *out) {
    int rc = 0;
    while (len > 0 && rc == 0) {
        const char *newline = memchr(data, '\n', len);
        if (newline == NULL) break;
        size_t n = (size_t) (newline - data) + 1;
        rc = write_line(l, host, data, n, true, out);
        data += n;
        len -= n;
    }
    if (rc == 0 && len > 0) rc = cr_buffer_append(&l->streams[host].kept, data, len);
    return rc == 0 && l->streams[host].kept.len >= HOSTS_LINE_MAX
               ? hosts_lines_flush(l, host, out)
               : rc;
}

int hosts_lines_flush(struct hosts_lines *l, uint32_t host, struct cr_buffer *out) {
    return l->streams[host].kept.len > 0 ? write_line(l, host, "", 0, false, out) : 0;
}

int hosts_lines_end(struct hosts_lines *l, struct cr_buffer *out) {
    bool is_open = l->open >= 0;
    l->open = -1;
    return is_open ? cr_buffer_append(out, "\n", 1) : 0;
}
