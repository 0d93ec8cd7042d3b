/* A growable run of bytes. Zero-initialise it, append to it, done with it.
 * A failed append changes nothing and returns -ENOMEM. */
#ifndef CR_BUFFER_H
#define CR_BUFFER_H

#include <stdarg.h>
#include <stddef.h>

struct cr_buffer {
    char *data; /* NULL while nothing was ever appended */
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

void cr_buffer_done(struct cr_buffer *b);
void cr_buffer_clear(struct cr_buffer *b); /* len = 0, memory kept */

/* Makes room for `extra` more bytes behind len. 0 or -ENOMEM. */
int cr_buffer_reserve(struct cr_buffer *b, size_t extra);
int cr_buffer_append(struct cr_buffer *b, const void *data, size_t len);
/* Appends formatted text and keeps a NUL behind it (not counted in len). 0 or -ENOMEM. */
int cr_buffer_printf(struct cr_buffer *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Drops the first n bytes (n <= len), moving the rest to the front. */
void cr_buffer_consume(struct cr_buffer *b, size_t n);

/* malloc'ed formatted text, or NULL when memory is short. */
char *cr_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
