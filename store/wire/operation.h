/* The operations of the protocol, their opcodes in each dialect, and how the first bytes of a
 * connection show its dialect. */
#ifndef STORE_WIRE_OPERATION_H
#define STORE_WIRE_OPERATION_H

#include <stddef.h>
#include <stdint.h>

enum store_dialect {
    STORE_DIALECT_NONE,    /* the first bytes have not arrived */
    STORE_DIALECT_MODERN,  /* spoken by torch 2.1 and later; the first request is VALIDATE */
    STORE_DIALECT_LEGACY,  /* spoken by torch 1.9 to 2.0; has no handshake, and other opcodes */
    STORE_DIALECT_ADMIN,   /* spoken by 'crun-store stat'; begins with STORE_ADMIN_MAGIC */
    STORE_DIALECT_FOREIGN, /* the first bytes belong to none of the dialects above: they are a
                            * registered magic number, or unknown */
};

/* The table of operations. Its columns: name; text for messages; opcode in the modern and in the
 * legacy dialect (-1: the dialect lacks the operation); fields of the request; shape of the reply.
 * Fields: k key, v value, n i64, m u32, K list of keys, P list of (key, value) pairs. The legacy
 * opcodes 9 to 12 were only in development snapshots of torch. */
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

/* The shape of a reply: its fields in order. */
enum store_reply {
    STORE_REPLY_NONE,
    STORE_REPLY_BYTE,   /* u8, one of the codes below */
    STORE_REPLY_NUMBER, /* i64 */
    STORE_REPLY_NONCE,  /* u32, the number that the request contained */
    STORE_REPLY_VALUE,  /* u64 length, bytes */
    STORE_REPLY_VALUES, /* one VALUE per key of the request, without a count */
    STORE_REPLY_POP,    /* i64 length of the queue before the pop; if it is > 0, a VALUE follows */
    STORE_REPLY_KEYS,   /* i64 count, then that many VALUEs: the keys as they stand on the wire */
};

#define STORE_READY         0 /* reply to CHECK: all keys exist */
#define STORE_NOT_READY     1 /* reply to CHECK: at least one key is missing */
#define STORE_STOP_WAITING  0 /* reply to WAIT and BARRIER */
#define STORE_WAIT_CANCELED 1 /* reply to CANCEL_WAIT; if the wait had ended before, the client
                               * receives STORE_STOP_WAITING first */

/* The reply to WATCH is a u8, STORE_WATCH_REGISTERED. After it, each change of the key is sent as
 * u8 code, VALUE key, VALUE old, VALUE new. */
#define STORE_WATCH_UPDATED    0
#define STORE_WATCH_CREATED    1
#define STORE_WATCH_DELETED    2
#define STORE_WATCH_REGISTERED 3

/* text of the operation, such as "set" */
const char *store_op_name(enum store_op op);
/* shape of the operation's reply */
enum store_reply store_op_reply(enum store_op op);
const char *store_op_fields(enum store_op op); /* fields of the operation's request, such as "kv" */
/* opcode of the operation, or -1 if the dialect lacks it */
int store_op_code(enum store_dialect dialect, enum store_op op);
int store_op_find(enum store_dialect dialect, uint8_t code); /* the operation of an opcode, or -1 */

/* ---- the first bytes of a connection ---- */

#define STORE_VALIDATE_MAGIC UINT32_C(0x3C85F7CE)
#define STORE_VALIDATE_BYTES "\x00\xce\xf7\x85\x3c"
#define STORE_VALIDATE_LEN   ((size_t) 5)

/* A magic number is four bytes with which a connection begins. Its first byte must be above
 * STORE_LEGACY_FIRST_MAX, which is the largest first byte that a client of torch sends. */
#define STORE_LEGACY_FIRST_MAX 0x08
#define STORE_MAGIC_LEN        ((size_t) 4)

/* The administration dialect. The client sends the magic number, then any number of requests of one
 * byte each. The reply to STORE_ADMIN_STAT is a u64 length and that many bytes of JSON
 * (docs/protocols/store.md, section 6). The JSON lists at most STORE_STAT_WAITERS_MAX waiting
 * clients, and for each client at most STORE_STAT_KEYS_MAX missing keys. On any other request the
 * server closes the connection. */
#define STORE_ADMIN_MAGIC      "CRS1"
#define STORE_ADMIN_STAT       'S'
#define STORE_STAT_WAITERS_MAX 1024
#define STORE_STAT_KEYS_MAX    16

/* Finds the dialect from the first bytes of a connection. Returns 0 if more bytes are needed.
 * Otherwise returns 1, sets *dialect, and sets *consumed to the length of the handshake or magic
 * number. For STORE_DIALECT_FOREIGN, *consumed is 0, and `data` has at least STORE_MAGIC_LEN
 * bytes. */
int store_detect(const void *data, size_t len, enum store_dialect *dialect, size_t *consumed);

#endif
