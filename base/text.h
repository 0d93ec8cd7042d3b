/* UTF-8, and text from outside made safe to show.
 *
 * Keys, file names, error messages and worker output may hold any bytes. Before crun shows such
 * bytes on a terminal or in a log, everything that is not a printable character of valid UTF-8 is
 * written as \xNN: a newline cannot forge a log line, an escape sequence cannot change a
 * terminal, and a byte that is not UTF-8 stays readable. All programs and libraries of the
 * project use these functions for it.
 *
 * Pure: no I/O, no locale. Only cr_text_append() allocates. */
#ifndef CR_TEXT_H
#define CR_TEXT_H

#include "base/buffer.h"

#include <stddef.h>

/* Returns how many bytes (1 to 4) the UTF-8 character at the start of `data` has, or 0 if no valid
 * character starts there: a continuation byte, a character that `len` cuts off, an overlong form, a
 * surrogate, or a number above U+10FFFF (Unicode 15, table 3-7). 0 if len is 0. */
size_t cr_utf8_len(const void *data, size_t len);

/* The same, but also 0 for the control characters U+0000 to U+001F and U+007F to U+009F. Some
 * terminals obey the upper range (C1) just as they obey the lower one. */
size_t cr_text_printable_len(const void *data, size_t len);

/* Converts the next piece of `data` (len > 0): a printable character is copied, any other byte
 * becomes "\xNN" with lower-case digits. Writes 1 to CR_TEXT_PIECE_MAX bytes to `out`, without a
 * NUL, and their number to *out_len. Returns how many bytes of `data` were converted (1 to 4). */
#define CR_TEXT_PIECE_MAX ((size_t) 4)
size_t cr_text_piece(const void *data, size_t len, char out[CR_TEXT_PIECE_MAX], size_t *out_len);

/* Converts `data` into `out`, which has room for `cap` bytes (at least 1), and ends it with a
 * NUL. Text that does not fit is cut between two pieces. Returns the length of the result without
 * the NUL. */
size_t cr_text_copy(char *out, size_t cap, const void *data, size_t len);

/* Appends the converted `data` to `out`; bytes that occur in the string `keep` are appended as
 * they are ("\t" keeps tabs, "" keeps nothing). Returns 0 or -ENOMEM, then with a part of the
 * text appended. */
int cr_text_append(struct cr_buffer *out, const void *data, size_t len, const char *keep);

#endif
