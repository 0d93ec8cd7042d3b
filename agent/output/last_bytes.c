/* Keeps the last bytes of a stream in a ring buffer: implements last_bytes.h. */
#include "agent/output/last_bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void last_bytes_add(struct last_bytes *l, const char *data, size_t len) {
    if (len == 0 || l->lost) return;
    if (l->data == NULL) l->data = malloc(LAST_BYTES_MAX);
    l->lost = l->data == NULL;
    if (l->lost) return;
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
    if (l->lost) return -ENOMEM;
    if (l->data == NULL) return 0;
    if (l->total < LAST_BYTES_MAX) return cr_buffer_append(out, l->data, l->total);
    size_t at = l->total % LAST_BYTES_MAX;
    int rc = cr_buffer_append(out, l->data + at, LAST_BYTES_MAX - at);
    return rc < 0 ? rc : cr_buffer_append(out, l->data, at);
}

void last_bytes_done(struct last_bytes *l) {
    free(l->data);
    *l = (struct last_bytes){0};
}
