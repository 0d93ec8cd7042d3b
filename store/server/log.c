/* Writes log lines about clients. A broken or hostile client can cause very many lines, so their
 * rate is limited (base/log/log_limit.h). */
#include "store/server/server_internal.h"

#include "base/network/address.h"

void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason) {
    char text[CR_ADDRESS_MAX] = "";
    if (peer == NULL) {
        cr_log_limited(&server->client_lines, CR_LOG_WARN, "store: %s", reason);
        return;
    }
    cr_address_format(&peer->sa, text);
    cr_log_limited(&server->client_lines, CR_LOG_WARN, "store: closed the connection of '%s': %s",
                   text, reason);
}
