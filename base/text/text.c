/* Checks and escapes text: implements base/text/text.h. */
#include "base/text/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* ---- UTF-8 ---- */

/* Returns how many bytes a UTF-8 character has whose first byte is `first`, or 0 if no character
 * begins with this byte. */
static size_t length_by_first_byte(unsigned char first) {
    if (first < 0x80) return 1;
    /* 80 to BF are continuation bytes; with C0 and C1 only overlong forms would begin, and with F5
     * to FF only characters beyond U+10FFFF. */
    if (first < 0xC2 || first > 0xF4) return 0;
    if (first < 0xE0) return 2;
    return first < 0xF0 ? 3 : 4;
}

/* Returns 1 if the continuation byte `second` may follow the first byte `first`, else 0. After the
 * four first bytes that are named below, only some continuation bytes are valid. */
static int second_byte_is_valid(unsigned char first, unsigned char second) {
    switch (first) {
    case 0xE0: return second >= 0xA0; /* smaller bytes would make an overlong form */
    case 0xED: return second <= 0x9F; /* greater bytes would make a surrogate */
    case 0xF0: return second >= 0x90; /* smaller bytes would make an overlong form */
    case 0xF4: return second <= 0x8F; /* greater bytes would exceed U+10FFFF */
    default: return 1;
    }
}

size_t cr_utf8_len(const void *data, size_t len) {
    const unsigned char *p = data;
    size_t n = len == 0 ? 0 : length_by_first_byte(p[0]);
    if (n > len) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
    }
    return n > 1 && !second_byte_is_valid(p[0], p[1]) ? 0 : n;
}

size_t cr_text_printable_len(const void *data, size_t len) {
    const unsigned char *p = data;
    size_t n = cr_utf8_len(data, len);
    if (n == 1 && (p[0] < 0x20 || p[0] == 0x7F)) return 0;
    if (n == 2 && p[0] == 0xC2 && p[1] < 0xA0) return 0; /* U+0080 to U+009F are control
                                                          * characters */
    return n;
}

/* ---- escaping ---- */

size_t cr_text_piece(const void *data, size_t len, char out[CR_TEXT_PIECE_MAX], size_t *out_len) {
    static const char digits[] = "0123456789abcdef";
    size_t n = cr_text_printable_len(data, len);
    if (n > 0) {
        memcpy(out, data, n);
        *out_len = n;
        return n;
    }
    unsigned char byte = *(const unsigned char *) data;
    out[0] = '\\';
    out[1] = 'x';
    out[2] = digits[byte >> 4];
    out[3] = digits[byte & 15];
    *out_len = 4;
    return 1;
}

size_t cr_text_copy(char *out, size_t cap, const void *data, size_t len) {
    const char *from = data, *end = from + len;
    size_t used = 0;
    while (from < end) {
        char piece[CR_TEXT_PIECE_MAX];
        size_t n;
        from += cr_text_piece(from, (size_t) (end - from), piece, &n);
        if (used + n >= cap) break;
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used] = '\0';
    return used;
}

static int is_kept(char c, const char *keep) { return c != '\0' && strchr(keep, c) != NULL; }

int cr_text_append(struct cr_buffer *out, const void *data, size_t len, const char *keep) {
    const char *from = data, *end = from + len;
    int rc = 0;
    while (from < end && rc == 0) {
        char piece[CR_TEXT_PIECE_MAX];
        size_t n = 1, step = 1;
        if (is_kept(*from, keep)) piece[0] = *from;
        else step = cr_text_piece(from, (size_t) (end - from), piece, &n);
        rc = cr_buffer_append(out, piece, n);
        from += step;
    }
    return rc;
}

/* ---- JSON strings ---- */

/* Appends the character of `len` bytes at `p`, escaped as JSON requires. If `len` is 0, the byte at
 * `p` is not valid UTF-8, and U+FFFD is appended instead. */
static int append_character(struct cr_buffer *out, const char *p, size_t len) {
    if (len == 0) return cr_buffer_append(out, "\\ufffd", 6);
    if (*p == '"' || *p == '\\') return cr_buffer_printf(out, "\\%c", *p);
    if (*p == '\n') return cr_buffer_append(out, "\\n", 2);
    if ((unsigned char) *p < 0x20 || *p == 0x7f) return cr_buffer_printf(out, "\\u%04x", *p);
    return cr_buffer_append(out, p, len);
}

int cr_json_string_append(struct cr_buffer *out, const char *text) {
    return cr_json_bytes_append(out, text, strnlen(text, CR_JSON_STRING_MAX));
}

int cr_json_bytes_append(struct cr_buffer *out, const char *text, size_t left) {
    int rc = cr_buffer_append(out, "\"", 1);
    while (rc == 0 && left > 0) {
        size_t len = cr_utf8_len(text, left);
        rc = append_character(out, text, len);
        if (len == 0) len = 1;
        text += len;
        left -= len;
    }
    return rc < 0 ? rc : cr_buffer_append(out, "\"", 1);
}

int cr_shell_word_append(struct cr_buffer *out, const char *word) {
    bool is_safe = *word != '\0';
    for (const char *at = word; *at != '\0'; at++) {
        is_safe &= isalnum((unsigned char) *at) || strchr("_@%+=:,./-", *at) != NULL;
    }
    if (is_safe) return cr_buffer_append(out, word, strlen(word));
    int rc = cr_buffer_append(out, "'", 1);
    for (const char *at = word; *at != '\0' && rc == 0; at++) {
        rc = *at == '\'' ? cr_buffer_append(out, "'\\''", 4) : cr_buffer_append(out, at, 1);
    }
    return rc == 0 ? cr_buffer_append(out, "'", 1) : rc;
}
