/* The value of a signpost's key, and the requests by which it is read and written: see
 * signpost_value_internal.h. The requests follow the protocol of torch's TCPStore, in the form of
 * torch 2.1 and later or in that of torch 2.0 and earlier. */
#include "rendezvous/way/signpost_value_internal.h"

#include "rendezvous/protocol/protocol.h"
#include "store/wire/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES 8 /* bytes of the length before a value */

void signpost_format(const struct signpost_value *v, char out[SIGNPOST_VALUE_MAX]) {
    (void) snprintf(out, SIGNPOST_VALUE_MAX,
                    "crun-rendezvous 1 %" PRIu64 " %" PRIu64 " %u %s %" PRIx64, v->epoch, v->turn,
                    v->port, v->addr, v->nonce);
}

bool signpost_parse(const char *text, size_t len, struct signpost_value *out) {
    char line[SIGNPOST_VALUE_MAX], addr[RDZV_ADDR_MAX];
    unsigned port = 0;
    if (len >= sizeof(line)) return false;
    memcpy(line, text, len);
    line[len] = '\0';
    *out = (struct signpost_value){0};
    int n = sscanf(line, "crun-rendezvous 1 %" SCNu64 " %" SCNu64 " %u %63s %" SCNx64, &out->epoch,
                   &out->turn, &port, addr, &out->nonce);
    if (n != 5 || out->epoch == 0 || port == 0 || port > UINT16_MAX) return false;
    out->port = (uint16_t) port;
    memcpy(out->addr, addr, sizeof(addr));
    return true;
}

bool signpost_is_newer(const struct signpost_value *a, const struct signpost_value *b) {
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->turn > b->turn;
}

/* ---- the protocol of the store ---- */

/* The client of torch puts a slash before every key, so the key begins with one; torch's programs
 * can then read it, too. */
int signpost_ask(struct cr_buffer *out, bool is_old, const char *run_id, const char *expected,
                 const char *desired) {
    const struct store_encoder encoder = {
        .out = out, .dialect = is_old ? STORE_DIALECT_LEGACY : STORE_DIALECT_MODERN,
        .prefix = STORE_BYTES("/")};
    char key[RDZV_TEXT_MAX + 32];
    (void) snprintf(key, sizeof(key), "crun/rendezvous/%s", run_id);
    int rc = is_old ? 0 : store_encode_validate(out);
    if (rc < 0) return rc;
    return store_encode_compare_set(&encoder, STORE_BYTES(key), STORE_BYTES(expected),
                                    STORE_BYTES(desired));
}

enum signpost_answer signpost_read(const char *data, size_t len, char value[SIGNPOST_VALUE_MAX]) {
    if (len < LENGTH_BYTES) return SIGNPOST_INCOMPLETE;
    uint64_t size = store_load_u64(data);
    if (size >= SIGNPOST_VALUE_MAX) return SIGNPOST_STRANGE;
    if (len < LENGTH_BYTES + size) return SIGNPOST_INCOMPLETE;
    memcpy(value, data + LENGTH_BYTES, size);
    value[size] = '\0';
    return SIGNPOST_ANSWERED;
}
