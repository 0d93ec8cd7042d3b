/* The operations of the protocol, their opcodes in each dialect, and the first bytes of a
 * connection that tell the dialect. */
#ifndef STORE_WIRE_OPERATION_H
#define STORE_WIRE_OPERATION_H

#include <stddef.h>
#include <stdint.h>

enum store_dialect {
    STORE_DIALECT_NONE,    /* not known yet */
    STORE_DIALECT_MODERN,  /* begins with VALIDATE (torch 2.1 and later) */
    STORE_DIALECT_LEGACY,  /* no handshake, other opcodes (torch 1.9 to 2.0) */
    STORE_DIALECT_ADMIN,   /* ours: begins with STORE_ADMIN_MAGIC */
    STORE_DIALECT_FOREIGN, /* begins with anything else: a registered magic, or garbage */
};

/* name, text, opcode in modern and legacy (-1: the dialect lacks it), fields of the request, reply.
 * Fields: k key, v value, n i64, m u32, K list of keys, P list of (key, value) pairs.
 * Legacy 9 to 12 existed in development snapshots only. */
#define STORE_OPS(X)                                                                               \
    X(VALIDATE, "validate", 0, -1, "m", NONE)                                                      \
    X(SET, "set", 1, 0, "kv", NONE)                                                                \
    X(COMPARE_SET, "compare_set", 2, 1, "kvv", VALUE)                                              \
    X(GET, "get", 3, 2, "k", VALUE)                                                                \
    X(ADD, "add", 4, 3, "kn", NUMBER)                                                              \
    X(CHECK, "check", 5, 4, "K", BYTE)                                                             \
    X(WAIT, "wait", 6, 5, "K", BYTE)                                                               \
    X(NUM_KEYS, "num_keys", 7, 6, "", NUMBER)                                                      \
    X(DELETE, "delete", 8, 8, "k", NUMBER)                                                         \
    X(APPEND, "append", 9, 9, "kv", NONE)                                                          \
    X(MULTI_GET, "multi_get", 10, 10, "K", VALUES)                                                 \
    X(MULTI_SET, "multi_set", 11, 11, "P", NONE)                                                   \
    X(CANCEL_WAIT, "cancel_wait", 12, 12, "", BYTE)                                                \
    X(PING, "ping", 13, -1, "m", NONCE)                                                            \
    X(QUEUE_PUSH, "queue_push", 14, -1, "kv", NONE)                                                \
    X(QUEUE_POP, "queue_pop", 15, -1, "k", POP)                                                    \
    X(QUEUE_LEN, "queue_len", 16, -1, "k", NUMBER)                                                 \
    X(LIST_KEYS, "list_keys", 17, -1, "", KEYS)                                                    \
    X(BARRIER, "barrier", 18, -1, "kn", BYTE)                                                      \
    X(WATCH, "watch", -1, 7, "k", BYTE)

enum store_op {
#define X(name, text, modern, legacy, fields, reply) STORE_OP_##name,
    STORE_OPS(X)
#undef X
        STORE_OP_COUNT
};

/* The shape of a reply. */
enum store_reply {
    STORE_REPLY_NONE,
    STORE_REPLY_BYTE,   /* u8, one of the codes below */
    STORE_REPLY_NUMBER, /* i64 */
    STORE_REPLY_NONCE,  /* u32, as sent */
    STORE_REPLY_VALUE,  /* u64 length, bytes */
    STORE_REPLY_VALUES, /* one VALUE per key that was asked for, without a count */
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

/* A magic has four bytes. The first is above STORE_LEGACY_FIRST_MAX, so that no client of torch can
 * send it first. */
#define STORE_LEGACY_FIRST_MAX 0x08
#define STORE_MAGIC_LEN        ((size_t) 4)

/* The administration dialect: the connection opens with the magic, then any number of requests of
 * one byte each follow. STORE_ADMIN_STAT is answered by a u64 length and that many bytes of JSON
 * (docs/protocols/store.md, section 6); it lists at most STORE_STAT_WAITERS_MAX waiting clients
 * and STORE_STAT_KEYS_MAX missing keys of each. Any other byte closes the connection. */
#define STORE_ADMIN_MAGIC      "CRS1"
#define STORE_ADMIN_STAT       'S'
#define STORE_STAT_WAITERS_MAX 1024
#define STORE_STAT_KEYS_MAX    16

/* Finds the dialect from the first bytes of a connection. Returns 1 and writes *dialect and
 * *consumed (the bytes of the handshake or magic), or 0 when more bytes are needed. For
 * STORE_DIALECT_FOREIGN nothing is consumed, and at least STORE_MAGIC_LEN bytes are there. */
int store_detect(const void *data, size_t len, enum store_dialect *dialect, size_t *consumed);

#endif
