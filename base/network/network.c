/* Networks and lists of networks; see base/network/network.h. */
#include "base/network/network.h"

#include "base/text/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAPPED_BITS 96 /* bits before the IPv4 address in an IPv4-mapped address */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* ---- addresses ---- */

bool cr_ip_is_v4(const struct cr_ip *ip) {
    return memcmp(ip->bytes, mapped, sizeof(mapped)) == 0;
}

int cr_ip_parse(const char *text, struct cr_ip *out) {
    struct cr_ip ip;
    memcpy(ip.bytes, mapped, sizeof(mapped));
    if (inet_pton(AF_INET, text, ip.bytes + sizeof(mapped)) != 1 &&
        inet_pton(AF_INET6, text, ip.bytes) != 1) return -EINVAL;
    *out = ip;
    return 0;
}

void cr_ip_format(const struct cr_ip *ip, char out[CR_NETWORK_TEXT_MAX]) {
    int family = cr_ip_is_v4(ip) ? AF_INET : AF_INET6;
    const uint8_t *from = ip->bytes + (cr_ip_is_v4(ip) ? sizeof(mapped) : 0);
    if (inet_ntop(family, from, out, CR_NETWORK_TEXT_MAX) == NULL) out[0] = '\0';
}

bool cr_ip_is_loopback(const struct cr_ip *ip) {
    static const uint8_t one[CR_ADDRESS_BYTES] = {[15] = 1};
    if (cr_ip_is_v4(ip)) return ip->bytes[sizeof(mapped)] == 127;
    return memcmp(ip->bytes, one, sizeof(one)) == 0;
}

/* ---- networks ---- */

/* Sets the bits after the first `bits` bits to 0. */
static void clear_rest(struct cr_ip *ip, unsigned bits) {
    for (unsigned i = 0; i < CR_ADDRESS_BYTES; i++) {
        unsigned first = 8 * i;
        if (first >= bits) ip->bytes[i] = 0;
        else if (bits - first < 8) ip->bytes[i] &= (uint8_t) (0xff << (8 - (bits - first)));
    }
}

static bool contains(const struct cr_network *n, const struct cr_ip *ip) {
    struct cr_ip start = *ip;
    clear_rest(&start, n->bits);
    return memcmp(&start, &n->ip, sizeof(start)) == 0;
}

int cr_network_parse(const char *text, struct cr_network *out, struct cr_error *err) {
    char address[CR_NETWORK_TEXT_MAX];
    size_t len = strcspn(text, "/");
    struct cr_network n = {.bits = 0};
    int64_t bits = 0;
    int rc = len < sizeof(address) ? 0 : -EINVAL;
    if (rc == 0) {
        memcpy(address, text, len);
        address[len] = '\0';
        rc = cr_ip_parse(address, &n.ip);
    }
    int64_t max = rc == 0 && strchr(address, ':') == NULL ? 32 : 128;
    bits = max;
    if (rc == 0 && text[len] == '/') rc = cr_parse_i64(text + len + 1, 0, max, &bits);
    if (rc < 0) {
        return cr_fail(err, -EINVAL,
                       "'%.100s' is not a network; write ADDRESS or ADDRESS/BITS, such as "
                       "10.0.0.0/8", text);
    }
    n.bits = (uint8_t) (max == 32 ? bits + MAPPED_BITS : bits);
    clear_rest(&n.ip, n.bits);
    *out = n;
    return 0;
}

/* ---- lists ---- */

int cr_network_list_add(struct cr_network_list *l, const struct cr_network *n) {
    if (l->count == l->cap) {
        size_t cap = l->cap == 0 ? 1 : 2 * l->cap; /* most nodes have one address */
        struct cr_network *items = reallocarray(l->items, cap, sizeof(*items));
        if (items == NULL) return -ENOMEM;
        l->items = items;
        l->cap = cap;
    }
    l->items[l->count++] = *n;
    return 0;
}

int cr_network_list_add_ip(struct cr_network_list *l, const struct cr_ip *ip) {
    struct cr_network n = {.ip = *ip, .bits = 128};
    return cr_network_list_add(l, &n);
}

int cr_network_list_add_text(struct cr_network_list *l, const char *text) {
    int rc = 0;
    while (rc == 0 && *text != '\0') {
        char word[CR_NETWORK_TEXT_MAX];
        struct cr_ip ip;
        size_t len = strcspn(text, " ");
        if (len > 0 && len < sizeof(word)) {
            memcpy(word, text, len);
            word[len] = '\0';
            if (cr_ip_parse(word, &ip) == 0) rc = cr_network_list_add_ip(l, &ip);
        }
        text += len;
        text += strspn(text, " ");
    }
    return rc;
}

/* The order of cr_network_list_sort(): first the networks of several addresses, then the single
 * addresses; within each of the two sets by address. */
static int compare(const void *a, const void *b) {
    const struct cr_network *x = a, *y = b;
    bool single_x = x->bits == 128, single_y = y->bits == 128;
    if (single_x != single_y) return single_x ? 1 : -1;
    int order = memcmp(&x->ip, &y->ip, sizeof(x->ip));
    return order != 0 ? order : (int) x->bits - (int) y->bits;
}

/* Frees the memory that the items do not need. If that fails, the memory stays. */
static void shrink(struct cr_network_list *l) {
    if (l->count == 0 || l->count == l->cap) return;
    struct cr_network *items = reallocarray(l->items, l->count, sizeof(*items));
    if (items == NULL) return;
    l->items = items;
    l->cap = l->count;
}

void cr_network_list_sort(struct cr_network_list *l) {
    size_t kept = 0;
    if (l->count > 0) qsort(l->items, l->count, sizeof(*l->items), compare);
    for (size_t i = 0; i < l->count; i++) {
        if (kept > 0 && compare(&l->items[kept - 1], &l->items[i]) == 0) continue;
        l->items[kept++] = l->items[i];
    }
    l->count = kept;
    shrink(l);
    for (l->wide = 0; l->wide < kept && l->items[l->wide].bits < 128;) l->wide++;
}

bool cr_network_list_has(const struct cr_network_list *l, const struct cr_ip *ip) {
    for (size_t i = 0; i < l->wide; i++) {
        if (contains(&l->items[i], ip)) return true;
    }
    const struct cr_network key = {.ip = *ip, .bits = 128};
    if (l->count == l->wide) return false;
    return bsearch(&key, l->items + l->wide, l->count - l->wide, sizeof(key), compare) != NULL;
}

int cr_network_list_copy(const struct cr_network_list *l, struct cr_network_list *out) {
    *out = (struct cr_network_list){.wide = l->wide};
    if (l->count == 0) return 0;
    out->items = reallocarray(NULL, l->count, sizeof(*l->items));
    if (out->items == NULL) return -ENOMEM;
    memcpy(out->items, l->items, l->count * sizeof(*l->items));
    out->count = out->cap = l->count;
    return 0;
}

void cr_network_list_done(struct cr_network_list *l) {
    free(l->items);
    *l = (struct cr_network_list){0};
}
