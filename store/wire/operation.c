/* The table of operations, the search from opcode to operation, and the recognition of a
 * connection's dialect by its first bytes. */
#include "store/wire/operation.h"

#include "store/wire/number.h"

#include <string.h>

/* ---- the table ---- */

static const struct {
    const char *name;
    int8_t code[2]; /* opcodes in the modern and in the legacy dialect */
    const char *fields;
    enum store_reply reply;
} ops[STORE_OP_COUNT] = {
#define X(name, text, modern, legacy, fields, reply)                                   \
    [STORE_OP_##name] = {text, {modern, legacy}, fields, STORE_REPLY_##reply},
    STORE_OPS(X)
#undef X
};

#define CODE_MAX 18 /* highest opcode of any dialect */

/* Table from opcode to operation. An element is operation + 1, or 0 if the dialect has no such
 * opcode. If the dialect lacks an operation (opcode -1), AT() sets an element behind CODE_MAX,
 * which is never read. An index of -1 would not compile. */
#define AT(op, code) [(code) < 0 ? CODE_MAX + 1 + STORE_OP_##op : (code)] = STORE_OP_##op + 1,
static const uint8_t op_of[2][CODE_MAX + 1 + STORE_OP_COUNT] = {
#define X(name, text, modern, legacy, fields, reply) AT(name, modern)
    {STORE_OPS(X)},
#undef X
#define X(name, text, modern, legacy, fields, reply) AT(name, legacy)
    {STORE_OPS(X)},
#undef X
};

const char *store_op_name(enum store_op op) { return ops[op].name; }
enum store_reply store_op_reply(enum store_op op) { return ops[op].reply; }
const char *store_op_fields(enum store_op op) { return ops[op].fields; }

int store_op_code(enum store_dialect dialect, enum store_op op) {
    if (dialect < STORE_DIALECT_MODERN || dialect > STORE_DIALECT_LEGACY) return -1;
    return ops[op].code[dialect - STORE_DIALECT_MODERN];
}

int store_op_find(enum store_dialect dialect, uint8_t code) {
    if (code > CODE_MAX) return -1;
    if (dialect < STORE_DIALECT_MODERN || dialect > STORE_DIALECT_LEGACY) return -1;
    return (int) op_of[dialect - STORE_DIALECT_MODERN][code] - 1;
}

/* ---- the first bytes ---- */

int store_detect(const void *data, size_t len, enum store_dialect *dialect, size_t *consumed) {
    const uint8_t *b = data;
    if (len == 0) return 0;
    *consumed = 0;
    if (b[0] == 0) {
        /* A first byte 0 is VALIDATE in the modern dialect and SET in the legacy dialect. Both
         * requests have at least five bytes. So the server can wait for five bytes: the client
         * sends them without waiting for a reply in between. */
        if (len < STORE_VALIDATE_LEN) return 0;
        if (store_load_u32(b + 1) == STORE_VALIDATE_MAGIC) {
            *dialect = STORE_DIALECT_MODERN;
            *consumed = STORE_VALIDATE_LEN;
        } else {
            *dialect = STORE_DIALECT_LEGACY;
        }
        return 1;
    }
    if (b[0] <= STORE_LEGACY_FIRST_MAX) {
        *dialect = STORE_DIALECT_LEGACY;
        return 1;
    }
    if (len < STORE_MAGIC_LEN) return 0;
    if (memcmp(b, STORE_ADMIN_MAGIC, STORE_MAGIC_LEN) == 0) {
        *dialect = STORE_DIALECT_ADMIN;
        *consumed = STORE_MAGIC_LEN;
    } else {
        *dialect = STORE_DIALECT_FOREIGN;
    }
    return 1;
}
