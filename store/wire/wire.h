/* The wire of torch's TCPStore: operations, their numbers in each generation, requests both ways.
 *
 * A request is one opcode byte and fields of fixed order. Numbers are little-endian; keys and
 * values are a u64 length and bytes; lists a u64 count and elements. Nothing says the length of the
 * whole.
 * docs/protocols/store.md has it in full.
 *
 * Pure: bytes in, structs out, and back. No sockets, no clock, no libuv; safe inside libcrunrt. */
#ifndef STORE_WIRE_WIRE_H
#define STORE_WIRE_WIRE_H

#include "base/buffer.h"
#include "store/store.h"

#include <stddef.h>
#include <stdint.h>

/* ---- dialects and operations ---- */

enum store_dialect {
    STORE_DIALECT_NONE,     /* nothing decided yet */
    STORE_DIALECT_MODERN,   /* begins with VALIDATE (torch from 2.1 or 2.2 on) */
    STORE_DIALECT_LEGACY,   /* no handshake, other numbers (torch 1.9 to 2.0) */
    STORE_DIALECT_ADMIN,    /* ours: begins with STORE_ADMIN_MAGIC */
    STORE_DIALECT_FOREIGN,  /* begins with something else: another room's magic, or garbage */
};

/* name, text, opcode in modern / legacy (-1: it has none), request fields, reply.
 * Fields: k key, v value, n i64, m u32, K list of keys, P list of (key, value) pairs.
 * Legacy 9 to 12 were in development snapshots only. */
#define STORE_OPS(X)                                                                               \
    X(VALIDATE, "validate", 0, -1, "m", NONE)                                                  \
    X(SET, "set", 1, 0, "kv", NONE)                                                             \
    X(COMPARE_SET, "compare_set", 2, 1, "kvv", VALUE)                                           \
    X(GET, "get", 3, 2, "k", VALUE)                                                             \
    X(ADD, "add", 4, 3, "kn", NUMBER)                                                           \
    X(CHECK, "check", 5, 4, "K", BYTE)                                                          \
    X(WAIT, "wait", 6, 5, "K", BYTE)                                                            \
    X(NUM_KEYS, "num_keys", 7, 6, "", NUMBER)                                                   \
    X(DELETE, "delete", 8, 8, "k", NUMBER)                                                      \
    X(APPEND, "append", 9, 9, "kv", NONE)                                                       \
    X(MULTI_GET, "multi_get", 10, 10, "K", VALUES)                                              \
    X(MULTI_SET, "multi_set", 11, 11, "P", NONE)                                               \
    X(CANCEL_WAIT, "cancel_wait", 12, 12, "", BYTE)                                            \
    X(PING, "ping", 13, -1, "m", NONCE)                                                        \
    X(QUEUE_PUSH, "queue_push", 14, -1, "kv", NONE)                                            \
    X(QUEUE_POP, "queue_pop", 15, -1, "k", POP)                                                \
    X(QUEUE_LEN, "queue_len", 16, -1, "k", NUMBER)                                             \
    X(LIST_KEYS, "list_keys", 17, -1, "", KEYS)                                                \
    X(BARRIER, "barrier", 18, -1, "kn", BYTE)                                                  \
    X(WATCH, "watch", -1, 7, "k", BYTE)

enum store_op {
#define X(name, text, modern, legacy, fields, reply) STORE_OP_##name,
    STORE_OPS(X)
#undef X
        STORE_OP_COUNT
};

/* What comes back. */
enum store_reply {
    STORE_REPLY_NONE,
    STORE_REPLY_BYTE,   /* u8, one of the codes below */
    STORE_REPLY_NUMBER, /* i64 */
    STORE_REPLY_NONCE,  /* u32, as sent */
    STORE_REPLY_VALUE,  /* u64 length, bytes */
    STORE_REPLY_VALUES, /* one VALUE a key asked for, no count in front */
    STORE_REPLY_POP,    /* i64 length before the pop; if > 0, a VALUE follows */
    STORE_REPLY_KEYS,   /* i64 count, then that many VALUEs: raw keys */
};

#define STORE_READY         0 /* CHECK: all exist */
#define STORE_NOT_READY     1 /* CHECK: at least one is missing */
#define STORE_STOP_WAITING  0 /* WAIT, BARRIER */
#define STORE_WAIT_CANCELED 1 /* CANCEL_WAIT, perhaps after one STORE_STOP_WAITING */

/* WATCH: u8 REGISTERED, then for each change u8 code, VALUE key, VALUE old, VALUE new. */
#define STORE_WATCH_UPDATED    0
#define STORE_WATCH_CREATED    1
#define STORE_WATCH_DELETED    2
#define STORE_WATCH_REGISTERED 3

const char *store_op_name(enum store_op op);                     /* "set", … */
enum store_reply store_op_reply(enum store_op op);               /* the shape of its reply */
const char *store_op_fields(enum store_op op);                   /* "kv", … as above */
int store_op_code(enum store_dialect dialect, enum store_op op); /* the opcode, or -1 */
int store_op_find(enum store_dialect dialect, uint8_t code);     /* the operation, or -1 */

/* ---- the first bytes of a connection ---- */

#define STORE_VALIDATE_MAGIC UINT32_C(0x3C85F7CE)
#define STORE_VALIDATE_BYTES "\x00\xce\xf7\x85\x3c"
#define STORE_VALIDATE_LEN   ((size_t) 5)

/* A magic is four bytes of which the first is above STORE_LEGACY_FIRST_MAX, so that no torch client
 * can send it first. */
#define STORE_LEGACY_FIRST_MAX 0x08
#define STORE_MAGIC_LEN        ((size_t) 4)

/* The administration dialect. The connection opens with the magic, then any number of requests of
 * one byte each follow:
 *
 *   STORE_ADMIN_STAT   <- u64 length, JSON text (UTF-8, one object; see store_stat in
 *                         docs/protocols/store.md). Keys stand in it with every byte outside
 *                         0x20..0x7e as \u00XX: one code point a byte, so nothing is lost, but a
 *                         reader must allow \u0000 (jansson: JSON_ALLOW_NUL). Shape:
 *
 *   {"version":"0.1.0","pid":1,"address":"0.0.0.0:29500","uptime_ms":5,"clients":2,"clients_max":0,
 *    "keys":3,"queues":0,"key_bytes":30,"value_bytes":9,"memory":700,"memory_max":0,
 *    "operations":12,"operations_per_second":4.5,"bytes_in":100,"bytes_out":50,
 *    "operations_by_kind":{"set":3,…},             only kinds that were seen
 *    "waiting_clients":1,                          all of them, also those not listed
 *    "waiting":[{"peer":"10.0.0.7:41234","kind":"wait" or "barrier","for_ms":81234,
 *                "missing":2,"keys":["/a","/b"]}]} longest wait first; at most
 *                                                  STORE_STAT_WAITERS_MAX waiters and
 *                                                  STORE_STAT_KEYS_MAX of their missing keys
 *
 * Any other byte closes the connection. An administration connection is counted in nothing. */
#define STORE_ADMIN_MAGIC      "CRS1"
#define STORE_ADMIN_STAT       'S'
#define STORE_STAT_WAITERS_MAX 1024
#define STORE_STAT_KEYS_MAX    16

/* Tells who speaks from the first bytes of a connection. Returns 1 and writes *dialect and
 * *consumed (bytes that are done with: the handshake or magic), 0 when more bytes are needed, or
 * -EPROTO (cannot be any of ours). For STORE_DIALECT_FOREIGN nothing is consumed and at least
 * STORE_MAGIC_LEN bytes are there. */
int store_detect(const void *data, size_t len, enum store_dialect *dialect, size_t *consumed);

/* ---- requests in: the incremental parser ---- */

struct store_limits {
    size_t key_max; /* bytes on the wire, a leading '/' included */
    size_t value_max, list_max;
    size_t request_max; /* bytes of one request, below 4 GiB */
};

/* A value as the key space keeps it: shared by reference, so that a big one is never copied. */
struct store_value {
    size_t *account; /* whose count it leaves when it is freed; NULL: somebody else's business */
    uint32_t refs;
    uint32_t len;
    uint32_t cap;
    uint32_t lent; /* the kernel has been given its pages: they never change again */
    uint8_t data[];
};

/* From here on a value begins at a page and shares none with anybody, so that it can be lent. */
#define STORE_LEND_MIN ((size_t) 128 << 10)
/* From here on copying is faster again: one core fetches from memory for the server, another copies
 * from the cache for the client, at the same time. */
#define STORE_LEND_MAX ((size_t) 4 << 20)

static inline int store_value_lendable(const struct store_value *v) {
    return v->len >= STORE_LEND_MIN && v->len <= STORE_LEND_MAX;
}

struct store_value *store_value_new(size_t cap); /* refs 1, len 0; NULL when memory is short */
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v);        /* NULL is fine */
size_t store_value_cost(const struct store_value *v); /* bytes of memory, about; NULL is 0 */
size_t store_value_cost_of(size_t cap);               /* of one that is not made yet */

/* Bytes by their place in the request, since the buffer may move while the request grows. */
struct store_span {
    uint32_t offset, len;
};

/* A whole request. Pointers are into the parsed bytes and live as long as those do. */
struct store_request {
    enum store_op op;
    struct store_bytes key;
    struct store_bytes value;    /* SET, APPEND, QUEUE_PUSH, the desired one of COMPARE_SET */
    struct store_bytes expected; /* COMPARE_SET */
    struct store_value *block;   /* the value again, when it was received into a block of its own */
    int64_t number;              /* ADD, BARRIER; the nonce of PING */
    const uint8_t *base;         /* of the items */
    const struct store_span *items; /* K: keys; P: key, value, key, value, … */
    size_t item_count;              /* P: two a pair */
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
    int in_field;      /* field_len is known */
    size_t items_left; /* elements of the list that have not come yet */
    int64_t number;
    struct store_span spans[3]; /* key, value, second value */
    size_t span_count;
    struct store_span *items;
    size_t item_count, item_cap;
    const char *reason; /* why it failed; static text */
};

/* Parses on. data[0] is the first byte of the current request, whatever was seen of it before; no
 * byte is looked at twice. Returns
 *   1           *out is whole; the caller drops out->size bytes and then calls
 *               store_parser_next() when done with *out
 *   0           more bytes are needed
 *   -EPROTO     unknown opcode        } p->reason says why; the connection is lost
 *   -EMSGSIZE   over a limit          }
 *   -ENOMEM                            }  */
int store_parse(struct store_parser *p, const void *data, size_t len, struct store_request *out);
void store_parser_next(struct store_parser *p);
void store_parser_done(struct store_parser *p);

/* After store_parse() returned 0: when all that is missing is the tail of the last value, and it is
 * a big one, returns its full length, so that the caller can receive it into a block at once;
 * *head is the number of bytes in front of it. Otherwise 0. */
#define STORE_BLOCK_MIN ((size_t) 32 << 10)
size_t store_parser_block(const struct store_parser *p, size_t *head);

/* Completes such a request: `data` holds its first *head bytes, `block` the whole value. */
void store_parser_finish(struct store_parser *p, const void *data, struct store_value *block,
                         struct store_request *out);

/* What a request is beside its keys' and values' bytes, at most: opcode, count or number; and a length
 * and torch's '/' for each of them. */
#define STORE_REQUEST_OVERHEAD ((size_t) 9)
#define STORE_ITEM_OVERHEAD    ((size_t) 9)

/* Which part of a request is beyond what our server takes ("a key", "the list" …), and that limit;
 * NULL if none is. For clients: over a server's limit the connection would be lost without a word. */
const char *store_request_excess(const struct store_bytes *keys, size_t key_count,
                                 const struct store_bytes *values, size_t value_count,
                                 size_t *limit);

/* ---- requests out: encoders for the clients ----
 *
 * Each appends one whole request, or changes nothing and returns -ENOMEM, or -ENOTSUP if the
 * dialect lacks the operation. `prefix` goes in front of every key: "/" for the keys that users
 * name, "" for raw keys such as "init/". */
struct store_encoder {
    struct cr_buffer *out;
    enum store_dialect dialect;
    struct store_bytes prefix;
};

int store_encode_validate(struct cr_buffer *out);
int store_encode_ping(struct cr_buffer *out, uint32_t nonce);

/* NUM_KEYS, LIST_KEYS, CANCEL_WAIT. */
int store_encode_plain(const struct store_encoder *e, enum store_op op);
/* GET, DELETE, QUEUE_POP, QUEUE_LEN, WATCH. */
int store_encode_key(const struct store_encoder *e, enum store_op op, struct store_bytes key);
/* ADD, BARRIER. */
int store_encode_number(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                        int64_t number);
/* SET, APPEND, QUEUE_PUSH: everything but the value's bytes, which the caller sends next; so a big
 * value need not be copied. */
int store_encode_value_head(const struct store_encoder *e, enum store_op op, struct store_bytes key,
                            size_t value_len);
int store_encode_compare_set(const struct store_encoder *e, struct store_bytes key,
                             struct store_bytes expected, struct store_bytes desired);
/* CHECK, WAIT, MULTI_GET. */
int store_encode_keys(const struct store_encoder *e, enum store_op op,
                      const struct store_bytes *keys, size_t key_count);
/* MULTI_SET. */
int store_encode_pairs(const struct store_encoder *e, const struct store_bytes *keys,
                       const struct store_bytes *values, size_t pair_count);

/* ---- little-endian numbers at any address ---- */

static inline uint64_t store_load_u64(const void *p) {
    const uint8_t *b = p;
    return (uint64_t) b[0] | (uint64_t) b[1] << 8 | (uint64_t) b[2] << 16 | (uint64_t) b[3] << 24 |
           (uint64_t) b[4] << 32 | (uint64_t) b[5] << 40 | (uint64_t) b[6] << 48 |
           (uint64_t) b[7] << 56;
}

static inline uint32_t store_load_u32(const void *p) {
    const uint8_t *b = p;
    return (uint32_t) b[0] | (uint32_t) b[1] << 8 | (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
}

static inline void store_put_u64(void *p, uint64_t v) {
    for (int i = 0; i < 8; i++) ((uint8_t *) p)[i] = (uint8_t) (v >> (8 * i));
}

static inline void store_put_u32(void *p, uint32_t v) {
    for (int i = 0; i < 4; i++) ((uint8_t *) p)[i] = (uint8_t) (v >> (8 * i));
}

#endif
