/* Parses --store-allow; see rendezvous/store_guard.h. */
#include "rendezvous/store_guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int add_network(struct rendezvous_store_guard *g, const char *at, size_t len,
                       struct cr_error *err) {
    char text[CR_NETWORK_TEXT_MAX + 8];
    if (g->network_count == RENDEZVOUS_NETWORKS_MAX) {
        return cr_fail(err, -EINVAL, "more than %d networks", RENDEZVOUS_NETWORKS_MAX);
    }
    (void) snprintf(text, sizeof(text), "%.*s", (int) len, at);
    return cr_network_parse(text, &g->networks[g->network_count++], err);
}

int rendezvous_store_guard_parse(const char *text, struct rendezvous_store_guard *out,
                                 struct cr_error *err) {
    struct rendezvous_store_guard g = {.access = RENDEZVOUS_STORE_NODES};
    int rc = 0;
    if (strcmp(text, "any") == 0) g.access = RENDEZVOUS_STORE_ANY;
    bool is_word = g.access == RENDEZVOUS_STORE_ANY || strcmp(text, "nodes") == 0;
    for (const char *at = text; !is_word && rc == 0;) {
        size_t len = strcspn(at, ",");
        rc = add_network(&g, at, len, err);
        if (at[len] == '\0') break;
        at += len + 1;
    }
    if (rc == 0) *out = g;
    return rc;
}
