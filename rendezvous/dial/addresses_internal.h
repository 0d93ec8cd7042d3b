/* Finds out whether a host is this machine, and at which address other machines reach it. */
#ifndef RENDEZVOUS_ADDRESSES_INTERNAL_H
#define RENDEZVOUS_ADDRESSES_INTERNAL_H

#include "base/error.h"
#include "rendezvous/types.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The addresses of a host, from the resolver, compared with those of this machine's interfaces. */
struct host_addresses {
    char first[RDZV_ADDR_MAX];  /* the host's first address; IPv4 is preferred to IPv6 */
    /* an address of the host that this machine has; "" if it has none */
    char local[RDZV_ADDR_MAX];
    bool is_loopback;           /* true: `first` is a loopback address */
    /* true if the user wrote "localhost" or a loopback address. If false, a loopback address comes
     * from a name, such as "127.0.1.1 head" in Debian's /etc/hosts on the machine `head`. Other
     * machines know another address of that name, so this machine must not listen on loopback
     * only. */
    bool is_written_loopback;
    bool is_any;                /* true: the host is 0.0.0.0 or ::, all interfaces */
    bool is_numeric;            /* true: the user wrote an address, not a name */
    bool has_others;            /* true: the host has addresses of other machines, too */
    uint32_t before_local; /* how many of the host's addresses race_compare() puts before `local` */
    /* address at which other machines reach this one: that of the default route, or else of the
     * first interface; a loopback address if there is no other */
    char machine[RDZV_ADDR_MAX];
    /* the addresses of the host and of this machine, for error texts, such as "'n0' resolves to
     * 10.0.0.1; this node has 10.0.0.2, 127.0.0.1" */
    char text[512];
};

/* Resolves `host`, and blocks until the resolver has answered. Returns 0, or -ENOENT and a text in
 * err. */
int addr_look_up(const char *host, struct host_addresses *out, struct cr_error *err);

/* Stores in `bind` the address at which a daemon has to listen if its user has given `host`. "" in
 * `bind` means all interfaces, which is the result for "" and "::". "0.0.0.0", any other numeric
 * address and "localhost" are used as they are. Another name stands for its first address; but if
 * that is a loopback address, such as 127.0.1.1 for a machine's own name in Debian's /etc/hosts,
 * the daemon listens on all interfaces, because other machines know the name by another address.
 * Blocks until the resolver has answered. Returns 0, or -ENOENT and a text in err. */
int addr_choose_listen(const char *host, char bind[RDZV_ADDR_MAX], struct cr_error *err);

/* Writes the numeric addresses of this machine's interfaces, separated by blanks, without loopback
 * addresses; at most `room` - 1 bytes. Workers of this node may connect from any of them. */
void addr_list_own(char *out, size_t room);

/* Returns whether a numeric address is a loopback address: 127.0.0.0/8 or ::1. */
bool addr_is_loopback(const char *addr);
/* Returns whether a host means all interfaces: 0.0.0.0 or ::. */
bool addr_is_any(const char *host);

/* Stores the address at which other machines reach this one; see host_addresses.machine. */
void addr_of_machine(char out[RDZV_ADDR_MAX]);

#endif
