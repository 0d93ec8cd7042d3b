/* Fills struct cr_error; base/error.h declares the functions. No function here allocates memory. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void cr_error_clear(struct cr_error *err) {
    if (err == NULL) return;
    err->code = 0;
    err->text[0] = '\0';
}

int cr_fail(struct cr_error *err, int code, const char *fmt, ...) {
    if (err == NULL) return code;
    err->code = code;
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return code;
}

int cr_fail_errno(struct cr_error *err, const char *fmt, ...) {
    int code = errno != 0 ? -errno : -EIO;
    if (err == NULL) return code;
    err->code = code;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t) n >= sizeof(err->text)) return code;
    char reason[128];
    /* The GNU version of strerror_r() returns a pointer to the text. The text may lie outside of
     * `reason`, so the pointer is used. */
    const char *why = strerror_r(-code, reason, sizeof(reason));
    (void) snprintf(err->text + n, sizeof(err->text) - (size_t) n, ": %s", why);
    return code;
}

int cr_wrap(struct cr_error *err, const char *fmt, ...) {
    if (err == NULL) return -EIO;
    char inner[CR_ERROR_TEXT_MAX];
    memcpy(inner, err->text, sizeof(inner));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t) n < sizeof(err->text)) {
        size_t room = sizeof(err->text) - (size_t) n;
        (void) snprintf(err->text + n, room, ": %.*s", (int) room, inner);
    }
    return err->code;
}
