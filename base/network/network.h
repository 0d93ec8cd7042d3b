/* Networks as users write them ("10.0.0.0/8", "fd00::/8", "10.1.2.3"), and lists of networks that
 * are searched quickly. This header includes no socket header, so that pure code can include it. */
#ifndef CR_NETWORK_H
#define CR_NETWORK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CR_ADDRESS_BYTES    16
#define CR_NETWORK_TEXT_MAX 64 /* bytes of a network as text, NUL included */

/* An IPv6 address, or an IPv4 address in the form ::ffff:a.b.c.d (IPv4-mapped). */
struct cr_ip {
    uint8_t bytes[CR_ADDRESS_BYTES];
};

/* A network: the addresses whose first `bits` bits are those of `ip`. The other bits of `ip` are
 * 0. */
struct cr_network {
    struct cr_ip ip;
    uint8_t bits; /* number of fixed bits, 0 to 128; 128 is a single address */
};

/* Parses a numeric IPv4 or IPv6 address. Returns 0 or -EINVAL. */
int cr_ip_parse(const char *text, struct cr_ip *out);
/* Writes the address. An IPv4-mapped address is written as IPv4. */
void cr_ip_format(const struct cr_ip *ip, char out[CR_NETWORK_TEXT_MAX]);
/* Returns whether the address is an IPv4 address. */
bool cr_ip_is_v4(const struct cr_ip *ip);
/* Returns whether the address is a loopback address: 127.0.0.0/8 or ::1. */
bool cr_ip_is_loopback(const struct cr_ip *ip);

/* Parses ADDRESS or ADDRESS/BITS. Bits of the address after the first BITS are ignored. Returns 0;
 * or -EINVAL, and sets err to a text that quotes the network. */
int cr_network_parse(const char *text, struct cr_network *out, struct cr_error *err);

/* A growable list of networks. A list whose bytes are all 0 is empty. */
struct cr_network_list {
    struct cr_network *items;
    size_t count, cap;
    size_t wide; /* number of items that are no single addresses; cr_network_list_sort() sets it,
                  * and puts these items first */
};

/* Appends a network. Returns 0 or -ENOMEM. */
int cr_network_list_add(struct cr_network_list *l, const struct cr_network *n);
int cr_network_list_add_ip(struct cr_network_list *l, const struct cr_ip *ip);
/* Appends the addresses in a text, which are separated by blanks; words that are no addresses are
 * left out. Returns 0 or -ENOMEM. */
int cr_network_list_add_text(struct cr_network_list *l, const char *text);
/* Removes duplicates, sorts the items for cr_network_list_has(), and frees the memory that is not
 * used. */
void cr_network_list_sort(struct cr_network_list *l);
/* Returns whether a network of the sorted list contains the address. */
bool cr_network_list_has(const struct cr_network_list *l, const struct cr_ip *ip);
/* Makes *out a copy of `l`. Returns 0 or -ENOMEM. */
int cr_network_list_copy(const struct cr_network_list *l, struct cr_network_list *out);
void cr_network_list_done(struct cr_network_list *l); /* frees the items and empties the list */

#endif
