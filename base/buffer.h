/* A growable array of bytes, and the loop that takes whole frames off its front.
 *
 * Zero-initialise a buffer, append to it, and free its memory with cr_buffer_done(). An append that
 * fails changes nothing and returns -ENOMEM. */
#ifndef CR_BUFFER_H
#define CR_BUFFER_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct cr_buffer {
    char *data; /* NULL until something is appended */
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

void cr_buffer_done(struct cr_buffer *b);
void cr_buffer_clear(struct cr_buffer *b); /* sets len to 0 and keeps the memory */

/* Makes room for `extra` more bytes behind len. Returns 0 or -ENOMEM. */
int cr_buffer_reserve(struct cr_buffer *b, size_t extra);
int cr_buffer_append(struct cr_buffer *b, const void *data, size_t len);
/* Appends formatted text and a NUL behind it that len does not count. Returns 0 or -ENOMEM. */
int cr_buffer_printf(struct cr_buffer *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int cr_buffer_vprintf(struct cr_buffer *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

/* Drops the first n bytes (n <= len) and moves the rest to the front. */
void cr_buffer_consume(struct cr_buffer *b, size_t n);

/* Handles the frame at the start of data[0..len). Returns the frame's size (1 to len) when it has
 * handled one, 0 when the frame is not complete yet, or a negative errno to stop. */
typedef int64_t (*cr_frame_fn)(void *arg, const char *data, size_t len);

/* Calls `take` for each whole frame at the front of `b`, drops the frames that it handled, and
 * keeps the rest for the bytes that will follow.
 *
 * `take` may do anything with `b` and its owner: meanwhile `b` is empty and the bytes are held
 * here. It must return a negative value if it freed `b`, or used it for something new such as
 * another connection: from then on `b` is not touched, and the bytes that are left are freed.
 *
 * Returns 0, or the negative value that stopped it. */
int cr_buffer_take_frames(struct cr_buffer *b, cr_frame_fn take, void *arg);

/* Returns formatted text that the caller frees, or NULL when memory is short. */
char *cr_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
