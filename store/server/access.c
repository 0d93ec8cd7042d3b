/* Who may use a space: everybody; or, if the space is restricted, the clients of this machine and
 * of the networks that store_space_restrict() has admitted. */
#include "store/server/server_internal.h"

#include "base/network/address.h"

#include <string.h>
#include <sys/socket.h>

#define REFUSAL "its address belongs to no node of the round and is not in --store-allow"

/* Returns whether the client's address is the one at which the connection was accepted: in that
 * case the client runs on this machine. */
static bool is_own_address(int fd, const struct cr_ip *ip) {
    union store_peer own;
    socklen_t len = sizeof(own);
    struct cr_ip own_ip;
    if (getsockname(fd, &own.sa, &len) < 0 || !cr_address_ip(&own.sa, &own_ip)) return false;
    return memcmp(&own_ip, ip, sizeof(own_ip)) == 0;
}

bool store_space_is_near(const struct store_space *space, int fd, const union store_peer *peer) {
    struct cr_ip ip;
    if (!cr_address_ip(&peer->sa, &ip)) return false;
    return cr_ip_is_loopback(&ip) || cr_network_list_has(&space->admitted, &ip) ||
           is_own_address(fd, &ip);
}

void store_connection_refuse(struct store_connection *c) { store_connection_close(c, REFUSAL); }

/* Call this when space->admitted has changed. If the space does not admit the client any more, the
 * function closes the connection. But if the connection's first bytes have not come yet, they may
 * still be a magic number, so the function only marks the connection (c->stranger). */
static void check_again(struct store_connection *c) {
    store_limit_check_again(c);
    c->stranger = c->space->restricted && !c->near;
    if (c->stranger && c->parser.dialect != STORE_DIALECT_NONE) store_connection_refuse(c);
}

void store_space_know_now(struct store_space *space, struct cr_network_list *nodes) {
    struct store_connection *c, *next;
    cr_network_list_done(&space->admitted);
    space->admitted = *nodes;
    space->knows_nodes = true;
    for (c = LIST_FIRST(&space->connections); c != NULL; c = next) {
        next = LIST_NEXT(c, next);
        check_again(c);
    }
}

void store_space_restrict_now(struct store_space *space, struct cr_network_list *admitted) {
    space->restricted = true;
    store_space_know_now(space, admitted);
    store_listener_begin(space);
}
