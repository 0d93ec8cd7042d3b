/* The server's parser of requests. A request may arrive in pieces of any size: the parser keeps its
 * state between two calls. */
#ifndef STORE_WIRE_PARSER_H
#define STORE_WIRE_PARSER_H

#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

struct store_limits {
    size_t key_max; /* longest key on the wire in bytes, its leading '/' included */
    size_t value_max, list_max;
    size_t request_max; /* longest request in bytes; below 4 GiB */
};

/* A key or value as an offset and a length in the request. The offset replaces a pointer, because
 * the buffer may move while the rest of the request arrives. */
struct store_span {
    uint32_t offset, len;
};

struct store_value;

/* A complete request. Its pointers point into the parsed bytes and into the parser's `items`. While
 * the request is in use, neither of them may change. */
struct store_request {
    enum store_op op;
    struct store_bytes key; /* empty if the operation has no key */
    /* value of SET, APPEND and QUEUE_PUSH; desired value of COMPARE_SET */
    struct store_bytes value;
    struct store_bytes expected; /* expected value of COMPARE_SET */
    /* memory into which the caller has received the value (store_parser_block()), or NULL if the
     * value is in the received bytes */
    struct store_value *block;
    int64_t number;              /* argument of ADD and BARRIER; nonce of PING */
    const uint8_t *base; /* first byte of the request, from which the offsets in `items` count */
    /* keys of a request with a list (K); key, value, key, value… of MULTI_SET (P) */
    const struct store_span *items;
    size_t item_count;              /* number of items; for MULTI_SET two per pair */
    size_t size;                    /* length of the request in bytes */
};

static inline struct store_bytes store_request_item(const struct store_request *r, size_t i) {
    return (struct store_bytes){r->base + r->items[i].offset, r->items[i].len};
}

/* The state of the parser of one connection. Zero-initialise it, then set `dialect` and `limits`.
 * What `limits` points to must live as long as the parser. End it with store_parser_done(). */
struct store_parser {
    const struct store_limits *limits;
    enum store_dialect dialect;
    size_t pos;        /* number of parsed bytes of the current request; 0 if no request has
                        * begun */
    int op;            /* operation of the current request, an enum store_op */
    const char *field; /* the next field of the request, as a letter in store_op_fields(op) */
    size_t field_len;  /* length in bytes of the key or value that is being parsed */
    bool in_field;     /* true if field_len is parsed and the bytes of the key or value are not */
    /* 1 plus the number of elements of the list that are not parsed yet; 0 before the number of
     * elements is parsed */
    size_t items_left;
    int64_t number;
    struct store_span spans[3]; /* key, value, second value */
    size_t span_count;
    struct store_span *items;
    size_t item_count, item_cap;
    const char *reason; /* static text that says why parsing failed; set on error */
};

/* Parses the current request further. data[0] is always the first byte of the request; the bytes
 * that earlier calls have parsed are not parsed again. Returns
 *
 *   1           the request is complete and in *out. The caller drops out->size bytes, and calls
 *               store_parser_next() when it has finished with *out.
 *   0           more bytes are needed
 *   -EPROTO     unknown opcode
 *   -EMSGSIZE   a limit is exceeded
 *   -ENOMEM     memory is short
 *
 * After an error p->reason holds the reason, and the caller must close the connection. */
int store_parse(struct store_parser *p, const void *data, size_t len, struct store_request *out);
void store_parser_next(struct store_parser *p);
void store_parser_done(struct store_parser *p);

/* Call this when store_parse() has returned 0. If the request is complete up to the bytes of its
 * last field, and this field is a value of at least STORE_BLOCK_MIN bytes, the function returns the
 * length of the whole value, and sets *head to the number of bytes before the value. The caller may
 * then receive the value into memory of its own. Otherwise the function returns 0. */
#define STORE_BLOCK_MIN ((size_t) 32 << 10)
size_t store_parser_block(const struct store_parser *p, size_t *head);

/* Call this when store_parser_block() has returned the length of a value and the caller has
 * received the whole value into its own memory. `value` is this memory, and `data` the *head bytes
 * of the request before the value. The function sets *out to the complete request. */
void store_parser_complete(struct store_parser *p, const void *data, struct store_bytes value,
                           struct store_request *out);

#endif
