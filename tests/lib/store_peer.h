/* One client of a key space without a socket, for tests and fuzz targets. Its functions do what the
 * server does for a connection, with buffers in place of recv() and send(). */
#ifndef TESTS_STORE_PEER_H
#define TESTS_STORE_PEER_H

#include "store/keyspace/keyspace.h"

#include <stdlib.h>
#include <string.h>

struct peer {
    struct store_keyspace *keys;
    struct store_session session;
    struct store_parser parser;
    struct cr_buffer rx;
    int error; /* negative errno with which the key space has closed the client; 0 if it is open */
    const char *reason;
};

static const struct store_limits peer_limits = {STORE_KEY_MAX + 1, STORE_VALUE_MAX, STORE_LIST_MAX,
                                                STORE_CLIENT_BUFFER_MAX};

static inline void peer_open(struct peer *p, struct store_keyspace *keys,
                             const struct store_limits *limits) {
    *p = (struct peer){.keys = keys, .parser = {.limits = limits}};
}

static inline void peer_close(struct peer *p) {
    store_keyspace_leave(p->keys, &p->session);
    store_parser_done(&p->parser);
    cr_buffer_done(&p->rx);
}

/* Executes all complete requests in rx. An incomplete request at the end of rx stays there. */
static inline void peer_serve(struct peer *p, int64_t now_ms) {
    size_t at = 0;
    if (p->parser.dialect == STORE_DIALECT_NONE) {
        if (store_detect(p->rx.data, p->rx.len, &p->parser.dialect, &at) == 0) return;
        p->session.legacy = p->parser.dialect == STORE_DIALECT_LEGACY;
    }
    while (p->error == 0 && at < p->rx.len && p->session.listing == NULL) {
        struct store_request request;
        int rc = store_parse(&p->parser, p->rx.data + at, p->rx.len - at, &request);
        if (rc == 0) break;
        p->reason = p->parser.reason;
        if (rc > 0) {
            at += request.size;
            rc = store_keyspace_apply(p->keys, &p->session, &request, now_ms, &p->reason);
            store_parser_next(&p->parser);
        }
        if (rc < 0) p->error = rc;
    }
    cr_buffer_consume(&p->rx, at);
}

static inline void peer_send(struct peer *p, const void *data, size_t len) {
    if (cr_buffer_append(&p->rx, data, len) < 0) abort();
    peer_serve(p, 0);
}

/* Makes the next piece of the list of keys that the client has requested. After the last piece,
 * executes the client's requests that have arrived during the listing. */
static inline void peer_list_on(struct peer *p) {
    int rc = store_keyspace_list_on(p->keys, &p->session, &p->reason);
    if (rc < 0) p->error = rc;
    if (rc == 0) peer_serve(p, 0);
}

/* Appends all bytes that the key space has for this client to `into`. */
static inline void peer_receive(struct peer *p, struct cr_buffer *into) {
    struct iovec iov[8];
    while (p->session.out.pending > 0) {
        int n = store_output_iov(&p->session.out, iov, 8, false);
        size_t total = 0;
        for (int i = 0; i < n; i++) {
            if (cr_buffer_append(into, iov[i].iov_base, iov[i].iov_len) < 0) abort();
            total += iov[i].iov_len;
        }
        store_output_sent(&p->session.out, total);
    }
}

#endif
