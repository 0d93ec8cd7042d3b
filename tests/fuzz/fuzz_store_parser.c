/* libFuzzer target: the store server's parser of requests. Bytes parsed in one piece, and the same
 * bytes parsed in pieces whose sizes the input chooses, must give the same requests and the same
 * last result.
 *
 * Input: one byte for the dialect, one byte as the seed of the piece sizes, then the bytes of the
 * requests. */
#include "base/assert.h"
#include "store/wire/wire.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct store_limits limits = {64, 4096, 64, 16384};

/* The parsed requests, as a digest, and the parser's last result, so that two ways of parsing the
 * same bytes can be compared. */
struct story {
    uint64_t digest;
    size_t requests, used;
    int end; /* result of the last store_parse() */
};

static void fold(struct story *s, const void *data, size_t len) {
    const uint8_t *at = data;
    for (size_t i = 0; i < len; i++) s->digest = (s->digest ^ at[i]) * UINT64_C(1099511628211);
    s->digest = (s->digest ^ len) * UINT64_C(1099511628211);
}

static void fold_request(struct story *s, const struct store_request *r) {
    const char *fields = store_op_fields(r->op);
    uint8_t op = (uint8_t) r->op;
    fold(s, &op, 1);
    if (fields[0] == 'k') fold(s, r->key.data, r->key.len);
    if (strchr(fields, 'v') != NULL) fold(s, r->value.data, r->value.len);
    if (strcmp(fields, "kvv") == 0) fold(s, r->expected.data, r->expected.len);
    if (strchr(fields, 'n') != NULL || fields[0] == 'm') fold(s, &r->number, sizeof(r->number));
    if (fields[0] == 'K' || fields[0] == 'P') {
        CR_ASSERT(fields[0] == 'K' || r->item_count % 2 == 0);
        for (size_t i = 0; i < r->item_count; i++) {
            struct store_bytes item = store_request_item(r, i);
            fold(s, item.data, item.len);
        }
    }
    CR_ASSERT(r->size <= limits.request_max + 16);
    s->requests++;
}

/* Continues parsing with what has arrived: the first `seen` bytes of `wire`. */
static void parse_seen(struct store_parser *p, const uint8_t *wire, size_t seen, struct story *s) {
    s->end = 1;
    while (s->end == 1 && s->used < seen) {
        struct store_request r;
        s->end = store_parse(p, wire + s->used, seen - s->used, &r);
        if (s->end != 1) return;
        fold_request(s, &r);
        CR_ASSERT(r.size > 0 && r.size <= seen - s->used);
        s->used += r.size;
        store_parser_next(p);
    }
}

static struct story parse(enum store_dialect dialect, const uint8_t *wire, size_t len,
                          uint32_t seed) {
    struct store_parser p = {.limits = &limits, .dialect = dialect};
    struct story s = {0};
    size_t seen = 0;
    while (seen < len && s.end >= 0) {
        seed = seed * 1664525u + 1013904223u;
        size_t piece = seed == 0 ? len : 1 + (seed >> 24) % 37;
        if (dialect == STORE_DIALECT_NONE) piece = len;
        seen = seen + piece < len ? seen + piece : len;
        parse_seen(&p, wire, seen, &s);
    }
    store_parser_done(&p);
    return s;
}

static struct story parse_whole(enum store_dialect dialect, const uint8_t *wire, size_t len) {
    struct store_parser p = {.limits = &limits, .dialect = dialect};
    struct story s = {0};
    parse_seen(&p, wire, len, &s);
    store_parser_done(&p);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    enum store_dialect dialect = (enum store_dialect)(STORE_DIALECT_MODERN + data[0] % 3);
    struct story whole = parse_whole(dialect, data + 2, size - 2);
    struct story pieces = parse(dialect, data + 2, size - 2, data[1]);
    CR_ASSERT(whole.requests == pieces.requests && whole.used == pieces.used);
    CR_ASSERT(whole.digest == pieces.digest);
    CR_ASSERT((whole.end < 0) == (pieces.end < 0));

    enum store_dialect found;
    size_t consumed = 0;
    if (store_detect(data + 2, size - 2, &found, &consumed) == 1) CR_ASSERT(consumed <= size - 2);
    return 0;
}
