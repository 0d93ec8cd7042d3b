/* Parses a range of TCP ports; see base/network/port_range.h. */
#include "base/network/port_range.h"

#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Parses the decimal digits text[0..len) as a port from `min` to 65535. Returns 0 or a negative
 * errno. */
static int parse_port(const char *text, size_t len, int64_t min, int64_t *out) {
    char digits[6];
    if (len == 0 || len >= sizeof(digits)) return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char) text[i])) return -EINVAL;
    }
    memcpy(digits, text, len);
    digits[len] = '\0';
    return cr_parse_i64(digits, min, UINT16_MAX, out);
}

int cr_port_range_parse(const char *text, struct cr_port_range *out, struct cr_error *err) {
    const char *dash = strchr(text, '-');
    int64_t first = 0, last = 0;
    int rc = dash == NULL ? -EINVAL : parse_port(text, (size_t) (dash - text), 1, &first);
    if (rc == 0) rc = parse_port(dash + 1, strlen(dash + 1), first, &last);
    if (rc < 0) {
        return cr_fail(err, -EINVAL,
                       "'%.100s' is not a range of ports; write LO-HI with 1 <= LO <= HI <= 65535, "
                       "such as 29500-29600", text);
    }
    *out = (struct cr_port_range){(uint16_t) first, (uint16_t) last};
    return 0;
}
