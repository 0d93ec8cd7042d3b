/* A growable array of bytes, and a loop that splits received bytes into frames.
 *
 * Zero-initialise a buffer, append to it, and free its memory with cr_buffer_done(). A function
 * that appends returns 0; or -ENOMEM, and leaves the buffer's contents as they were. */
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

/* Allocates memory if necessary, so that `extra` more bytes fit: afterwards cap - len >= extra.
 * Does not change len. Returns 0 or -ENOMEM. */
int cr_buffer_reserve(struct cr_buffer *b, size_t extra);
int cr_buffer_append(struct cr_buffer *b, const void *data, size_t len);
/* Appends formatted text, and after it a NUL that is not counted in len, so that `data` is also a
 * C string. Returns 0 or -ENOMEM. */
int cr_buffer_printf(struct cr_buffer *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int cr_buffer_vprintf(struct cr_buffer *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

/* Removes the first n bytes (n <= len) and moves the remaining bytes to the front. */
void cr_buffer_consume(struct cr_buffer *b, size_t n);

/* A callback that handles the frame at the start of data[0..len). It returns the size in bytes of
 * the frame that it has handled (1 to len), 0 if the frame is not complete yet, or a negative errno
 * if no further frame shall be handled. */
typedef int64_t (*cr_frame_fn)(void *arg, const char *data, size_t len);

/* Calls `take` for each complete frame at the front of `b` and removes the frames that `take` has
 * handled. An incomplete frame at the end stays in `b`, so that the caller can append the bytes
 * that arrive later.
 *
 * While `take` runs, `b` is empty, because this function has moved the bytes to a local variable.
 * So `take` may free the object that contains `b`, or reuse `b` for a new connection. If `take`
 * does one of these, it must return a negative value: this function then frees the remaining bytes
 * and does not touch `b`.
 *
 * Returns 0, or the negative value that `take` returned. */
int cr_buffer_take_frames(struct cr_buffer *b, cr_frame_fn take, void *arg);

/* Returns formatted text that the caller frees, or NULL if memory is short. */
char *cr_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
