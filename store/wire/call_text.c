/* Writes a request as text, with at most KEYS_NAMED of its keys and at most KEY_SHOWN bytes of each
 * key. */
#include "store/wire/call_text.h"

#include "base/text/text.h"

#include <stdarg.h>
#include <stdio.h>

#define KEYS_NAMED 3
#define KEY_SHOWN  80 /* bytes of a key that are shown */

struct text {
    char *at;
    size_t room;
};

static void advance(struct text *t, size_t n) {
    if (n >= t->room) n = t->room - 1;
    t->at += n;
    t->room -= n;
}

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at, t->room, fmt, ap);
    va_end(ap);
    advance(t, n < 0 ? 0 : (size_t) n);
}

static void put_key(struct text *t, struct store_bytes key) {
    bool is_long = key.len > KEY_SHOWN;
    put(t, "'");
    advance(t, cr_text_copy(t->at, t->room, key.data, is_long ? KEY_SHOWN : key.len));
    put(t, "%s'", is_long ? "..." : "");
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
