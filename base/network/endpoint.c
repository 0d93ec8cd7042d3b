/* Parses HOST:PORT; base/network/endpoint.h describes the grammar. */
#include "base/network/endpoint.h"

#include "base/text/parse.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A part of the endpoint's text. The text goes on after the part, so `len` and not a NUL marks its
 * end. */
struct part {
    const char *at;
    size_t len;
};

/* ---- the host ---- */

static bool has_only_host_characters(struct part host) {
    for (size_t i = 0; i < host.len; i++) {
        unsigned char c = (unsigned char) host.at[i];
        if (!isalnum(c) && c != '_' && c != '.' && c != ':' && c != '-' && c != '%') return false;
    }
    return true;
}

/* Returns whether a host, whose brackets have been removed, is valid. A host that contains a colon
 * must be an IPv6 address, which may have a scope ("fe80::1%eth0"). Without this rule, "::1" would
 * be read as host ":" and port 1. */
static bool host_is_valid(struct part host) {
    char text[CR_HOST_MAX];
    struct in6_addr address;
    if (host.len == 0 || host.len >= sizeof(text) || !has_only_host_characters(host)) return false;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    if (strchr(text, ':') == NULL) return true;
    text[strcspn(text, "%")] = '\0';
    return inet_pton(AF_INET6, text, &address) == 1;
}

static struct part without_brackets(struct part host) {
    if (host.len < 2 || host.at[0] != '[' || host.at[host.len - 1] != ']') return host;
    return (struct part){host.at + 1, host.len - 2};
}

/* ---- the port ---- */

static int parse_port(struct part digits, int64_t *out) {
    char text[6];
    if (digits.len == 0 || digits.len >= sizeof(text)) return -EINVAL;
    if (!isdigit((unsigned char) digits.at[0])) return -EINVAL; /* strtoll() would accept "+80" */
    memcpy(text, digits.at, digits.len);
    text[digits.len] = '\0';
    return cr_parse_i64(text, 0, UINT16_MAX, out);
}

static int fail_port(const char *text, struct part host, struct cr_error *err) {
    bool has_colon = memchr(host.at, ':', host.len) != NULL;
    return cr_fail(err, -EINVAL, "the port of endpoint '%s' must be a number from 0 to 65535%s",
                   text, has_colon ? "; IPv6 stands in brackets: [ADDRESS]:PORT" : "");
}

/* ---- cr_endpoint_parse(): host and port ---- */

static struct part trim(const char *text) {
    struct part p = {text, strlen(text)};
    for (; p.len > 0 && isspace((unsigned char) p.at[0]); p.at++) p.len--;
    while (p.len > 0 && isspace((unsigned char) p.at[p.len - 1])) p.len--;
    return p;
}

/* Returns the ':' in front of the port, which is the last ':', or NULL if there is no port. In
 * "[::1]", which has no port, every ':' belongs to the address. */
static const char *find_port_colon(struct part all) {
    if (all.at[0] == '[' && all.at[all.len - 1] == ']') return NULL;
    return memrchr(all.at, ':', all.len);
}

int cr_endpoint_parse(const char *text, uint16_t default_port, struct cr_endpoint *out,
                      struct cr_error *err) {
    struct part all = trim(text);
    if (all.len == 0) all = (struct part){"localhost", 9};
    struct part host = all;
    int64_t port = default_port;
    const char *colon = find_port_colon(all);
    if (colon != NULL) {
        host.len = (size_t) (colon - all.at);
        struct part digits = {colon + 1, all.len - host.len - 1};
        if (parse_port(digits, &port) < 0) return fail_port(all.at, host, err);
    }
    host = without_brackets(host);
    if (!host_is_valid(host)) {
        return cr_fail(err, -EINVAL,
                       "the host of endpoint '%s' is not a host name or address; write HOST:PORT, "
                       "and IPv6 as [ADDRESS]:PORT",
                       all.at);
    }
    memcpy(out->host, host.at, host.len);
    out->host[host.len] = '\0';
    out->port = (uint16_t) port;
    return 0;
}
