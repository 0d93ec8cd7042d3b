/* What stands on a signpost, and the requests by which it is read and written: see
 * signpost_value_internal.h. The bytes are those of the protocol of torch's TCPStore since 2.1, or
 * of the one before. */
#include "rendezvous/way/signpost_value_internal.h"

#include "rendezvous/protocol/protocol.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES 8

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

/* ---- the protocol of the store: lengths have 8 bytes, the least significant one first ---- */

static int append_text(struct cr_buffer *out, const char *text, size_t len) {
    char bytes[LENGTH_BYTES];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (char) ((uint64_t) len >> 8 * i & 0xff);
    int rc = cr_buffer_append(out, bytes, sizeof(bytes));
    return rc == 0 ? cr_buffer_append(out, text, len) : rc;
}

/* The client of torch puts a slash before every key, so the key begins with one; torch's programs
 * can then read it, too. */
int signpost_ask(struct cr_buffer *out, bool is_old, const char *run_id, const char *expected,
                 const char *desired) {
    static const char head[] = "\x00\xce\xf7\x85\x3c\x02"; /* VALIDATE, and COMPARE_SET */
    static const char old_head[] = "\x01";                     /* COMPARE_SET */
    char key[RDZV_TEXT_MAX + 32];
    int len = snprintf(key, sizeof(key), "/crun/rendezvous/%s", run_id);
    int rc = is_old ? cr_buffer_append(out, old_head, sizeof(old_head) - 1)
                    : cr_buffer_append(out, head, sizeof(head) - 1);
    if (rc == 0) rc = append_text(out, key, (size_t) len);
    if (rc == 0) rc = append_text(out, expected, strlen(expected));
    return rc == 0 ? append_text(out, desired, strlen(desired)) : rc;
}

enum signpost_answer signpost_read(const char *data, size_t len, char value[SIGNPOST_VALUE_MAX]) {
    uint64_t size = 0;
    if (len < LENGTH_BYTES) return SIGNPOST_INCOMPLETE;
    for (int i = LENGTH_BYTES; i-- > 0;) size = size << 8 | (unsigned char) data[i];
    if (size >= SIGNPOST_VALUE_MAX) return SIGNPOST_STRANGE;
    if (len < LENGTH_BYTES + size) return SIGNPOST_INCOMPLETE;
    memcpy(value, data + LENGTH_BYTES, size);
    value[size] = '\0';
    return SIGNPOST_ANSWERED;
}
