/* Functions for lists of hosts in the forms in which schedulers write them: they find the first
 * host, the number of hosts, and the position of a host. */
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <string.h>

#define SEPARATORS ", \t\r\n"

/* Appends the first name within brackets to `out`, for example "001" if `at` is "001-004,7]". Adds
 * its length to *len. Returns the text after the closing bracket, or NULL if there is no closing
 * bracket or the host's name is too long. */
static const char *take_first_of_range(const char *at, char *out, size_t *len) {
    const char *end = strchr(at, ']');
    if (end == NULL) return NULL;
    while (at < end && *at != '-' && *at != ',') {
        if (*len + 1 >= CR_HOST_MAX) return NULL;
        out[(*len)++] = *at++;
    }
    return end + 1;
}

int host_list_first(const char *list, char out[CR_HOST_MAX]) {
    size_t len = 0;
    const char *at = list + strspn(list, SEPARATORS);
    while (*at != '\0' && strchr(SEPARATORS, *at) == NULL) {
        if (*at == '[') {
            at = take_first_of_range(at + 1, out, &len);
            if (at == NULL) return -EINVAL;
            continue;
        }
        if (len + 1 >= CR_HOST_MAX || *at == ']') return -EINVAL;
        out[len++] = *at++;
    }
    out[len] = '\0';
    return len == 0 ? -EINVAL : 0;
}

uint32_t host_list_count(const char *list) {
    uint32_t n = 0;
    for (const char *at = list + strspn(list, SEPARATORS); *at != '\0'; n++) {
        at += strcspn(at, SEPARATORS);
        at += strspn(at, SEPARATORS);
    }
    return n;
}

static size_t short_length(const char *name, size_t len) {
    const char *dot = memchr(name, '.', len);
    return dot == NULL ? len : (size_t) (dot - name);
}

int64_t host_list_find(const char *list, const char *host) {
    size_t want = short_length(host, strlen(host));
    int64_t position = 0;
    for (const char *at = list + strspn(list, SEPARATORS); *at != '\0'; position++) {
        size_t len = strcspn(at, SEPARATORS), is = short_length(at, len);
        if (is == want && strncmp(at, host, want) == 0) return position;
        at += len;
        at += strspn(at, SEPARATORS);
    }
    return -1;
}
