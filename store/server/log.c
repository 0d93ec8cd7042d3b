/* Writes log lines about clients. A broken or hostile client can cause very many lines, so at most
 * LOGS_MAX are written in LOG_WINDOW_MS. Further lines are only counted, and their number is logged
 * later. */
#include "store/server/server_internal.h"

#include "base/address.h"
#include "base/log.h"

#define LOGS_MAX      20
#define LOG_WINDOW_MS 10000

static bool is_over_the_limit(struct store_server *server) {
    uint64_t now = uv_now(&server->loop);
    if (server->log_count == 0 || now - server->log_since_ms >= LOG_WINDOW_MS) {
        if (server->log_suppressed > 0)
            cr_warn("store: %u more messages about clients were not logged",
                    server->log_suppressed);
        server->log_since_ms = now;
        server->log_count = server->log_suppressed = 0;
    }
    if (server->log_count >= LOGS_MAX) {
        server->log_suppressed++;
        return true;
    }
    server->log_count++;
    return false;
}

void store_server_log(struct store_server *server, const union store_peer *peer,
                      const char *reason) {
    if (is_over_the_limit(server)) return;
    if (peer == NULL) {
        cr_warn("store: %s", reason);
        return;
    }
    char text[CR_ADDRESS_MAX] = "";
    cr_address_format(&peer->sa, text);
    cr_warn("store: closed the connection of '%s': %s", text, reason);
}
