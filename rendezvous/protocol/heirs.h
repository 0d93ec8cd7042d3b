/* The heirs that ROUND names, in the order in which they are tried when the coordinator is lost.
 * ROUND has them in one text, such as "1 10.0.0.2 4711;2 10.0.0.3 4712": group rank, address and
 * port of each heir. */
#ifndef RENDEZVOUS_HEIRS_H
#define RENDEZVOUS_HEIRS_H

#include "rendezvous/types.h"

#include <stddef.h>
#include <stdint.h>

/* Largest number of heirs in a ROUND. The limit keeps the size of ROUND independent of the number
 * of nodes. More heirs would help only if all eight heirs were lost at once. */
#define RDZV_HEIRS_MAX      8
/* bytes of the text with RDZV_HEIRS_MAX heirs, NUL included */
#define RDZV_HEIRS_TEXT_MAX ((size_t) RDZV_HEIRS_MAX * (RDZV_ADDR_MAX + 20))

struct rdzv_heir {
    uint32_t rank;            /* group rank in the round */
    char addr[RDZV_ADDR_MAX]; /* numeric address */
    uint16_t port;
};

struct rdzv_heirs {
    uint32_t count;
    struct rdzv_heir heir[RDZV_HEIRS_MAX];
};

/* Appends an heir. Does nothing if there are RDZV_HEIRS_MAX heirs already. */
void rdzv_heirs_add(struct rdzv_heirs *h, uint32_t rank, const char *addr, uint16_t port);
void rdzv_heirs_write(const struct rdzv_heirs *h, char text[RDZV_HEIRS_TEXT_MAX]);
/* Reads the text of a received ROUND. Heirs that are malformed, and heirs beyond RDZV_HEIRS_MAX,
 * are left out. `text` may be NULL. */
void rdzv_heirs_read(const char *text, struct rdzv_heirs *out);

#endif
