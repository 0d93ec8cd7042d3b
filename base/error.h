/* Errors: a negative errno and one line of text. libuv's UV_E… can be used as codes, because on
 * Linux they are negative errnos.
 *
 * The caller provides the struct, which has a fixed size, so reporting an error allocates nothing:
 * it works when memory is short, and between fork and exec. The function that fails writes the code
 * and the text; each of its callers may prepend context with cr_wrap(). All functions accept NULL
 * for `err`.
 *
 * The form of a text: lower case, the verb first, names in single quotes, then the reason, and
 * after "; " the remedy. No full stop. Example:
 *     cannot listen on 'localhost:80': Permission denied; give --master-port another port */
#ifndef CR_ERROR_H
#define CR_ERROR_H

#include <stdarg.h>

#define CR_ERROR_TEXT_MAX 1024 /* bytes of a text with its NUL; a longer text is cut */

struct cr_error {
    int code;                     /* 0, or a negative errno */
    char text[CR_ERROR_TEXT_MAX]; /* "" when code is 0 */
};

void cr_error_clear(struct cr_error *err);

/* Sets *err to `code`, which is negative, and the formatted text. Returns `code`. */
int cr_fail(struct cr_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets *err to the code -errno and the formatted text, followed by ": " and strerror(errno).
 * Returns -errno, or -EIO if errno is 0. */
int cr_fail_errno(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prepends the formatted text and ": " to the text of an error that *err already holds. Returns
 * err->code, or -EIO if err is NULL. */
int cr_wrap(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
