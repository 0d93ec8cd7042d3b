/* Requests in, for the server: a parser that takes a request in whatever pieces it arrives. */
#ifndef STORE_WIRE_PARSER_H
#define STORE_WIRE_PARSER_H

#include "store/bytes/bytes.h"
#include "store/wire/operation.h"

struct store_limits {
    size_t key_max; /* bytes on the wire, torch's leading '/' included */
    size_t value_max, list_max;
    size_t request_max; /* bytes of one request, below 4 GiB */
};

/* Bytes by their place in the request, because the buffer may move while the request grows. */
struct store_span {
    uint32_t offset, len;
};

struct store_value;

/* A whole request. Pointers are into the parsed bytes and live as long as those do. */
struct store_request {
    enum store_op op;
    struct store_bytes key;
    struct store_bytes value;    /* SET, APPEND, QUEUE_PUSH, the desired value of COMPARE_SET */
    struct store_bytes expected; /* COMPARE_SET */
    struct store_value *block;   /* set by a caller that received `value` into memory of its own */
    int64_t number;              /* ADD, BARRIER; the nonce of PING */
    const uint8_t *base;         /* what the offsets of `items` count from */
    const struct store_span *items; /* K: keys; P: key, value, key, value, … */
    size_t item_count;              /* P: two per pair */
    size_t size;                    /* bytes of the request */
};

static inline struct store_bytes store_request_item(const struct store_request *r, size_t i) {
    return (struct store_bytes){r->base + r->items[i].offset, r->items[i].len};
}

/* Zero-initialise; set limits (borrowed) and dialect; store_parser_done() at the end. */
struct store_parser {
    const struct store_limits *limits;
    enum store_dialect dialect;
    size_t pos;        /* bytes of the request already understood; 0 = none under way */
    int op;            /* the request under way */
    const char *field; /* its next field */
    size_t field_len;  /* length of the key or value whose bytes come next */
    bool in_field;     /* field_len is known */
    size_t items_left; /* elements of the list that have not come yet, plus one; 0 = no list */
    int64_t number;
    struct store_span spans[3]; /* key, value, second value */
    size_t span_count;
    struct store_span *items;
    size_t item_count, item_cap;
    const char *reason; /* why it failed; static text */
};

/* Parses on. data[0] is the first byte of the current request, of which earlier calls may have seen
 * a part already; no byte is looked at twice. Returns
 *   1           *out is whole; the caller drops out->size bytes, and calls store_parser_next() when
 *               it does not need *out any more
 *   0           more bytes are needed
 *   -EPROTO     unknown opcode        } p->reason has the reason; the connection must be closed
 *   -EMSGSIZE   over a limit          }
 *   -ENOMEM                           }  */
int store_parse(struct store_parser *p, const void *data, size_t len, struct store_request *out);
void store_parser_next(struct store_parser *p);
void store_parser_done(struct store_parser *p);

/* After store_parse() returned 0: if only a part of the last value is missing, and the value
 * has at least STORE_BLOCK_MIN bytes, returns the value's whole length, so that the caller can
 * receive it into memory of its own; *head is the number of bytes in front of the value.
 * Otherwise returns 0. */
#define STORE_BLOCK_MIN ((size_t) 32 << 10)
size_t store_parser_block(const struct store_parser *p, size_t *head);

/* Completes such a request: `data` holds its first *head bytes, `value` the whole value. */
void store_parser_complete(struct store_parser *p, const void *data, struct store_bytes value,
                           struct store_request *out);

#endif
