/* Implements the growable buffer of base/buffer.h. */
#include "base/buffer.h"

#include "base/assert.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cr_buffer_done(struct cr_buffer *b) {
    free(b->data);
    *b = (struct cr_buffer){0};
}

void cr_buffer_clear(struct cr_buffer *b) { b->len = 0; }

int cr_buffer_reserve(struct cr_buffer *b, size_t extra) {
    if (extra <= b->cap - b->len) return 0;
    if (extra > (size_t) -1 / 2 - b->len) return -ENOMEM;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap - b->len < extra) cap *= 2;
    char *data = realloc(b->data, cap);
    if (data == NULL) return -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

int cr_buffer_append(struct cr_buffer *b, const void *data, size_t len) {
    if (len == 0) return 0;
    int rc = cr_buffer_reserve(b, len);
    if (rc < 0) return rc;
    memcpy(b->data + b->len, data, len);
    b->len += len;
    return 0;
}

int cr_buffer_vprintf(struct cr_buffer *b, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0) return -ENOMEM;
    int rc = cr_buffer_reserve(b, (size_t) n + 1);
    if (rc < 0) return rc;
    (void) vsnprintf(b->data + b->len, (size_t) n + 1, fmt, ap);
    b->len += (size_t) n;
    return 0;
}

int cr_buffer_printf(struct cr_buffer *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int rc = cr_buffer_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void cr_buffer_consume(struct cr_buffer *b, size_t n) {
    CR_ASSERT(n <= b->len);
    b->len -= n;
    if (b->len > 0) memmove(b->data, b->data + n, b->len);
}

int cr_buffer_take_frames(struct cr_buffer *b, cr_frame_fn take, void *arg) {
    struct cr_buffer in = *b;
    *b = (struct cr_buffer){0};
    size_t at = 0;
    int64_t n = 1;
    while (n > 0 && at < in.len) {
        n = take(arg, in.data + at, in.len - at);
        if (n < 0) {
            cr_buffer_done(&in);
            return (int) n;
        }
        CR_ASSERT((size_t) n <= in.len - at);
        at += (size_t) n;
    }
    /* If `take` had freed or reused `b`, it would have returned a negative value, and this function
     * would have returned above. So `b` is still empty, and the bytes that are left are moved
     * back. */
    CR_ASSERT(b->data == NULL);
    cr_buffer_consume(&in, at);
    *b = in;
    return 0;
}

char *cr_asprintf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}
