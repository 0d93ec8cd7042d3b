/* Reads and writes the order of succession: see heirs.h. */
#include "rendezvous/protocol/heirs.h"

#include "base/text/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void rdzv_heirs_add(struct rdzv_heirs *h, uint32_t rank, const char *addr, uint16_t port) {
    if (h->count == RDZV_HEIRS_MAX) return;
    struct rdzv_heir *heir = &h->heir[h->count++];
    heir->rank = rank;
    heir->port = port;
    (void) snprintf(heir->addr, sizeof(heir->addr), "%s", addr);
}

void rdzv_heirs_write(const struct rdzv_heirs *h, char text[RDZV_HEIRS_TEXT_MAX]) {
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < h->count; i++) {
        int add = snprintf(text + len, RDZV_HEIRS_TEXT_MAX - len, "%s%" PRIu32 " %s %u",
                           i > 0 ? ";" : "", h->heir[i].rank, h->heir[i].addr, h->heir[i].port);
        if (add > 0) len += (size_t) add;
    }
}

/* Copies the part of `text` before the first `end` to `out`, which has `room` bytes, and returns
 * what follows that character. Returns NULL if there is no such character, or `out` is too
 * small. */
static const char *take_part(const char *text, char end, char *out, size_t room) {
    const char *at = strchr(text, end);
    if (at == NULL || (size_t) (at - text) >= room) return NULL;
    memcpy(out, text, (size_t) (at - text));
    out[at - text] = '\0';
    return at + 1;
}

static void read_heir(const char *text, struct rdzv_heirs *out) {
    char rank[12] = "", addr[RDZV_ADDR_MAX] = "";
    int64_t rank_number = 0, port = 0;
    const char *rest = take_part(text, ' ', rank, sizeof(rank));
    if (rest != NULL) rest = take_part(rest, ' ', addr, sizeof(addr));
    if (rest == NULL || addr[0] == '\0') return;
    if (cr_parse_i64(rank, 0, (int64_t) RDZV_NODES_MAX - 1, &rank_number) < 0) return;
    if (cr_parse_i64(rest, 1, UINT16_MAX, &port) < 0) return;
    rdzv_heirs_add(out, (uint32_t) rank_number, addr, (uint16_t) port);
}

void rdzv_heirs_read(const char *text, struct rdzv_heirs *out) {
    char heir[RDZV_ADDR_MAX + 20];
    *out = (struct rdzv_heirs){.count = 0};
    if (text == NULL) return;
    for (const char *end; (end = strchr(text, ';')) != NULL; text = end + 1) {
        if (take_part(text, ';', heir, sizeof(heir)) != NULL) read_heir(heir, out);
    }
    read_heir(text, out);
}
