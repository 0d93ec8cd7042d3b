/* Errors: a negative errno (libuv's UV_E… are the same numbers on Linux) and one line of text.
 *
 * The text lives in a caller-owned fixed struct, so that reporting works when memory is short and
 * between fork and exec. The first failure writes it; each caller may put in front what only it
 * knows. NULL is accepted everywhere for a caller who does not want the text.
 *
 * Text: lower case, verb first, objects in single quotes, reason last, then the remedy after '; '.
 * No full stop. */
#ifndef CR_ERROR_H
#define CR_ERROR_H

#include <stdarg.h>

#define CR_ERROR_TEXT_MAX 1024 /* bytes, NUL included; longer text is cut */

struct cr_error {
    int code;                     /* 0, or a negative errno */
    char text[CR_ERROR_TEXT_MAX]; /* "" when code is 0 */
};

void cr_error_clear(struct cr_error *err);

/* Records `code` (negative) and the text; returns `code`. */
int cr_fail(struct cr_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for the current errno: ": <strerror>" is appended; returns -errno. */
int cr_fail_errno(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<context>: " in front of a recorded text; returns err->code (or -EIO if err is NULL). */
int cr_wrap(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
