/* What is in flight, in words, for every error of the clients. */
#include "store/wire/call_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEYS_NAMED 3
#define KEY_SHOWN  80 /* bytes of one key */

struct text {
    char *at;
    size_t room;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at, t->room, fmt, ap);
    va_end(ap);
    size_t step = n < 0 ? 0 : (size_t) n;
    if (step >= t->room) step = t->room - 1;
    t->at += step;
    t->room -= step;
}

static void put_key(struct text *t, struct store_bytes key) {
    const unsigned char *b = key.data;
    put(t, "'");
    for (size_t i = 0; i < key.len && i < KEY_SHOWN; i++) {
        put(t, b[i] < 0x20 || b[i] == 0x7f ? "\\x%02x" : "%c", b[i]);
    }
    put(t, "%s'", key.len > KEY_SHOWN ? "..." : "");
}

void store_call_text(enum store_op op, const struct store_bytes *keys, size_t key_count,
                     char out[STORE_CALL_TEXT_MAX]) {
    struct text t = {out, STORE_CALL_TEXT_MAX};
    put(&t, "%s", op == STORE_OP_WAIT ? "wait for" : store_op_name(op));
    for (size_t i = 0; i < key_count && i < KEYS_NAMED; i++) {
        put(&t, i > 0 ? ", " : " ");
        put_key(&t, keys[i]);
    }
    if (key_count > KEYS_NAMED) put(&t, " and %zu more", key_count - KEYS_NAMED);
}
