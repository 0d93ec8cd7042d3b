/* Counters. The server stores the number of an ADD or BARRIER as decimal text, as torch's servers
 * do, so that a GET of the counter returns the same bytes as at a server of torch. */
#include "store/keyspace/keyspace_internal.h"

#include <string.h>

/* Longest value of a counter in bytes; ADD to a longer value fails. As in torch, white space may
 * stand before the number; without this limit, skipping megabytes of white space would delay other
 * clients. */
#define COUNTER_TEXT_MAX ((size_t) 64 << 10)
#define DIGITS_MAX       19 /* digits of the largest int64_t */

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int fail(const char **reason, const char *text) {
    *reason = text;
    return -EPROTO;
}

int store_counter_read(const struct store_value *v, int64_t *out, const char **reason) {
    char text[DIGITS_MAX + 2];
    const uint8_t *data = v->data;
    size_t len = v->len, at = 0, n = 0, digits = 0;
    if (len > COUNTER_TEXT_MAX)
        return fail(reason, "add to a value that is too long for a number");
    while (at < len && is_space(data[at])) at++;
    if (at < len && data[at] == '-') text[n++] = '-';
    if (at < len && (data[at] == '-' || data[at] == '+')) at++;
    while (at + digits < len && is_digit(data[at + digits])) digits++;
    if (digits == 0) return fail(reason, "add to a value that is not a number");
    while (digits > 1 && data[at] == '0') at++, digits--;
    if (digits > DIGITS_MAX) return fail(reason, "add to a number out of range");
    memcpy(text + n, data + at, digits);
    text[n + digits] = '\0';
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno == ERANGE) return fail(reason, "add to a number out of range");
    *out = number;
    return 0;
}

struct store_bytes store_counter_text(int64_t number, char text[STORE_NUMBER_TEXT_MAX]) {
    uint64_t rest = number < 0 ? 0 - (uint64_t) number : (uint64_t) number;
    size_t at = STORE_NUMBER_TEXT_MAX;
    do {
        text[--at] = (char) ('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) text[--at] = '-';
    return (struct store_bytes){text + at, STORE_NUMBER_TEXT_MAX - at};
}
