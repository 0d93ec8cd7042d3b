/* What the commands print: error lines on stderr, bytes as text or JSON. */
#include "store/command/command.h"

#include "base/text.h"

#include <stdarg.h>
#include <string.h>

/* ---- errors ---- */

void command_complain(const char *name, const char *fmt, ...) {
    char text[CR_ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void) fprintf(stderr, "crun-store%s%s: ", name[0] == '\0' ? "" : " ", name);
    command_put_text(stderr, STORE_BYTES(text));
    (void) fputc('\n', stderr);
}

int command_usage_error(const char *name, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    command_complain(name, "%s; try 'crun-store %s --help'", text, name);
    return COMMAND_USAGE;
}

int command_fail(const struct command_line *line, const struct cr_error *err) {
    command_complain(line->shape->name, "%s", err->text);
    return COMMAND_FAILED;
}

/* ---- bytes ---- */

void command_put_text(FILE *out, struct store_bytes bytes) {
    const char *at = bytes.data;
    for (size_t left = bytes.len, n; left > 0; at += n, left -= n) {
        char piece[CR_TEXT_PIECE_MAX];
        size_t len;
        n = cr_text_piece(at, left, piece, &len);
        (void) fwrite(piece, 1, len, out);
    }
}

void command_put_json(FILE *out, struct store_bytes bytes) {
    const unsigned char *b = bytes.data;
    (void) fputc('"', out);
    for (size_t i = 0; i < bytes.len; i++) {
        if (b[i] == '"' || b[i] == '\\') {
            (void) fprintf(out, "\\%c", b[i]);
        } else {
            (void) fprintf(out, b[i] < 0x20 || b[i] > 0x7e ? "\\u%04x" : "%c", b[i]);
        }
    }
    (void) fputc('"', out);
}
