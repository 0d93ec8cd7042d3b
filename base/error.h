/* Errors: a negative errno and one line of text. On Linux libuv's UV_E… are negative errnos, too.
 *
 * The text is in a struct of fixed size that the caller owns, so that errors can be reported when
 * memory is short and between fork and exec. The function that fails first writes it; each of its
 * callers may put in front what only it knows. All functions accept NULL for `err`.
 *
 * The form of a text: lower case, the verb first, names in single quotes, then the reason, and
 * behind "; " the remedy. No full stop. Example:
 *     cannot listen on 'localhost:80': Permission denied; give --master-port another port */
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

/* The same for the current errno: appends ": " and its text to the error, and returns -errno. */
int cr_fail_errno(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<context>: " in front of a recorded text. Returns err->code, or -EIO if err is NULL. */
int cr_wrap(struct cr_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
