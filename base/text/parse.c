/* Parses numbers and truth values; base/text/parse.h declares the functions. strtoll() and strtod()
 * accept white space before the number, so the functions here check for it themselves and reject
 * it. */
#include "base/text/parse.h"

#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

int cr_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out) {
    if (text == NULL || *text == '\0' || isspace((unsigned char) *text)) return -EINVAL;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0') return -EINVAL;
    if (errno == ERANGE || value < min || value > max) return -ERANGE;
    *out = value;
    return 0;
}

int cr_parse_double(const char *text, double *out) {
    if (text == NULL || *text == '\0' || isspace((unsigned char) *text)) return -EINVAL;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) return -EINVAL;
    if (errno == ERANGE) return -ERANGE;
    *out = value;
    return 0;
}

int cr_parse_bool(const char *text, int *out) {
    static const char *const words[2][4] = {{"0", "false", "f", "no"}, {"1", "true", "t", "yes"}};
    if (text == NULL) return -EINVAL;
    for (int value = 0; value < 2; value++) {
        for (size_t i = 0; i < CR_ARRAY_LEN(words[value]); i++) {
            if (strcasecmp(text, words[value][i]) == 0) return *out = value, 0;
        }
        if (strcasecmp(text, value == 1 ? "y" : "n") == 0) return *out = value, 0;
    }
    return -EINVAL;
}
