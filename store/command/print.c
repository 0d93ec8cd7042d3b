/* Prints for the commands: errors on stderr, and bytes of keys and values as text or as JSON. */
#include "store/command/command_internal.h"

#include "base/text/text.h"

int command_fail(const struct command_target *target, const struct cr_error *err) {
    cr_complain(target->command->name, "%s", err->text);
    return CR_EXIT_FAILED;
}

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
