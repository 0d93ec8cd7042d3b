/* libFuzzer target: the store client's decoder of replies. Bytes received in one piece, and the
 * same bytes received in pieces whose sizes the input chooses, must give the same reply. The
 * decoder's memory must be proportional to the bytes received, whatever length the reply announces.
 *
 * Input: one byte for the reply's shape, one byte for the number of items that the request asked
 * for, one byte as the seed of the piece sizes, then the bytes of the reply. */
#include "base/assert.h"
#include "store/wire/answer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* upper limit, in bytes, of what the decoder may allocate in addition to the bytes received */
#define ROOM_MAX (((size_t) 4 << 20))

struct story {
    int end; /* result of the last store_answer_put() */
    int stray;
    uint64_t digest;
};

static void fold(struct story *s, const void *data, size_t len) {
    const uint8_t *at = data;
    for (size_t i = 0; i < len; i++) s->digest = (s->digest ^ at[i]) * UINT64_C(1099511628211);
    s->digest = (s->digest ^ len) * UINT64_C(1099511628211);
}

static void fold_list(struct story *s, struct store_answer *a) {
    struct store_list list;
    store_answer_take_list(a, &list);
    for (size_t i = 0; i < list.count; i++) {
        const char *item = list.items[i].data;
        fold(s, item, list.items[i].len);
        CR_ASSERT(item[list.items[i].len] == '\0');
    }
    store_list_done(&list);
}

static void fold_reply(struct story *s, struct store_answer *a) {
    void *value = NULL;
    size_t len = 0;
    fold(s, &a->number, sizeof(a->number));
    fold(s, &a->byte, 1);
    if (a->shape == STORE_REPLY_VALUE || (a->shape == STORE_REPLY_POP && a->number > 0)) {
        CR_ASSERT(store_answer_take_value(a, &value, &len) == 0);
        fold(s, value, len);
        CR_ASSERT(((char *) value)[len] == '\0');
        free(value);
    }
    if (a->shape == STORE_REPLY_VALUES || a->shape == STORE_REPLY_KEYS) fold_list(s, a);
}

static struct story receive(enum store_reply shape, size_t items, const uint8_t *wire, size_t len,
                            unsigned seed) {
    struct story s = {0};
    struct store_answer a = {0};
    size_t used = 0;
    store_answer_begin(&a, shape, items);
    s.end = store_answer_put(&a, 0);
    while (s.end == 0 && used < len) {
        size_t room;
        void *at = store_answer_room(&a, &room);
        CR_ASSERT(at != NULL && room > 0);
        size_t n = len - used < room ? len - used : room;
        if (seed != 0) {
            seed = seed * 1103515245u + 12345u;
            size_t piece = 1 + (seed >> 16) % 13;
            n = piece < n ? piece : n;
        }
        memcpy(at, wire + used, n);
        used += n;
        s.end = store_answer_put(&a, n);
        CR_ASSERT(a.bytes.cap <= 4 * (used + ROOM_MAX));
    }
    CR_ASSERT(s.end >= 0 || a.reason != NULL);
    s.stray = s.end < 0 && strcmp(a.reason, "more bytes than the reply has") == 0;
    if (s.end == 1) fold_reply(&s, &a);
    store_answer_done(&a);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    static const enum store_reply shapes[] = {
        STORE_REPLY_BYTE,   STORE_REPLY_NUMBER, STORE_REPLY_NONCE, STORE_REPLY_VALUE,
        STORE_REPLY_VALUES, STORE_REPLY_POP,    STORE_REPLY_KEYS};
    enum store_reply shape = shapes[data[0] % 7];
    struct story whole = receive(shape, data[1], data + 3, size - 3, 0);
    struct story pieces = receive(shape, data[1], data + 3, size - 3, data[2] | 1u);
    /* The decoder reports bytes after the end of the reply only if they arrive together with the
     * end. */
    if (whole.stray || pieces.stray) {
        CR_ASSERT(whole.stray || whole.end == 1);
        CR_ASSERT(pieces.stray || pieces.end == 1);
        return 0;
    }
    CR_ASSERT(whole.end == pieces.end);
    CR_ASSERT(whole.digest == pieces.digest);
    return 0;
}
