/* Checks UTF-8, makes text from outside safe to show on terminals and in logs, and writes JSON
 * strings.
 *
 * Keys, file names, error messages and worker output may contain any bytes. Before crun shows such
 * text, it writes every byte that does not belong to a printable UTF-8 character as \xNN. So a
 * newline cannot forge a log line, an escape sequence cannot change the terminal, and a byte that
 * is not UTF-8 can still be read.
 *
 * The functions are pure and do not depend on the locale. Only the functions that
 * append to a buffer allocate. */
#ifndef CR_TEXT_H
#define CR_TEXT_H

#include "base/buffer.h"

#include <stddef.h>

/* Returns how many bytes (1 to 4) the UTF-8 character at the start of `data` has. Returns 0 if
 * `len` is 0 or no valid character starts there. Invalid are a continuation byte, a character that
 * `len` cuts off, an overlong form, a surrogate, and a number above U+10FFFF (Unicode 15, table
 * 3-7). */
size_t cr_utf8_len(const void *data, size_t len);

/* Returns how many bytes (1 to 4) the printable UTF-8 character at the start of `data` has, or 0 if
 * no printable character starts there. U+0000 to U+001F and U+007F to U+009F are not printable:
 * they are control characters, which a terminal may execute. */
size_t cr_text_printable_len(const void *data, size_t len);

/* Escapes the first character or byte of `data` (len > 0): a printable character is copied; if none
 * starts there, the first byte is written as "\xNN" with lower-case digits. Writes 1 to
 * CR_TEXT_PIECE_MAX bytes to `out`, without a NUL, and stores their number in *out_len. Returns how
 * many bytes of `data` are escaped (1 to 4). */
#define CR_TEXT_PIECE_MAX ((size_t) 4)
size_t cr_text_piece(const void *data, size_t len, char out[CR_TEXT_PIECE_MAX], size_t *out_len);

/* Writes `data`, escaped as by cr_text_piece(), and a NUL to `out`, which has room for `cap` bytes
 * (at least 1). If the result does not fit, it is cut, but never within a character or a \xNN.
 * Returns the length of the result in bytes, without the NUL. */
size_t cr_text_copy(char *out, size_t cap, const void *data, size_t len);

/* Appends `data` to `out`, escaped as by cr_text_piece(). Bytes that occur in the string `keep` are
 * not escaped: "\t" keeps tabs, "" keeps no byte. Returns 0; or -ENOMEM, in which case a part of
 * the text may have been appended. */
int cr_text_append(struct cr_buffer *out, const void *data, size_t len, const char *keep);

/* Appends `word` for a POSIX shell, in single quotes if it is empty or has characters that the
 * shell would change. Returns 0; or -ENOMEM, in which case a part of it may have been appended. */
int cr_shell_word_append(struct cr_buffer *out, const char *word);

/* longest text in bytes that becomes a JSON string; a longer one is cut */
#define CR_JSON_STRING_MAX ((size_t) 64 * 1024)

/* Appends `text` as a JSON string with its quotes, at most CR_JSON_STRING_MAX bytes of it. A byte
 * that is not part of a valid UTF-8 character becomes U+FFFD. Returns 0 or -ENOMEM. */
int cr_json_string_append(struct cr_buffer *out, const char *text);

/* Does what cr_json_string_append() does, with `len` bytes, which may contain NULs. Returns 0 or
 * -ENOMEM. */
int cr_json_bytes_append(struct cr_buffer *out, const char *text, size_t len);

#endif
