/* Tests store/wire: the numbers of the operations in each dialect; requests in any pieces give
 * equal parsed requests; the parser reads what the encoders write; a length over its limit is
 * refused before memory is allocated for it. */
#include "store/keyspace/value.h"
#include "store/wire/wire.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct store_limits limits = {STORE_KEY_MAX + 1, STORE_VALUE_MAX, STORE_LIST_MAX,
                                           STORE_CLIENT_BUFFER_MAX};

static struct store_parser parser_of(enum store_dialect dialect) {
    return (struct store_parser){.limits = &limits, .dialect = dialect};
}

/* ---- the numbers of the operations ---- */

START_TEST(test_numbers_of_the_generations) {
    const struct {
        enum store_op op;
        int modern, legacy;
    } rows[] = {
        {STORE_OP_VALIDATE, 0, -1},   {STORE_OP_SET, 1, 0},
        {STORE_OP_COMPARE_SET, 2, 1},  {STORE_OP_GET, 3, 2},
        {STORE_OP_ADD, 4, 3},          {STORE_OP_CHECK, 5, 4},
        {STORE_OP_WAIT, 6, 5},         {STORE_OP_NUM_KEYS, 7, 6},
        {STORE_OP_WATCH, -1, 7},      {STORE_OP_DELETE, 8, 8},
        {STORE_OP_APPEND, 9, 9},       {STORE_OP_MULTI_GET, 10, 10},
        {STORE_OP_MULTI_SET, 11, 11}, {STORE_OP_CANCEL_WAIT, 12, 12},
        {STORE_OP_PING, 13, -1},      {STORE_OP_QUEUE_PUSH, 14, -1},
        {STORE_OP_QUEUE_POP, 15, -1}, {STORE_OP_QUEUE_LEN, 16, -1},
        {STORE_OP_LIST_KEYS, 17, -1}, {STORE_OP_BARRIER, 18, -1},
    };
    ck_assert_uint_eq(sizeof(rows) / sizeof(rows[0]), STORE_OP_COUNT);
    for (size_t i = 0; i < STORE_OP_COUNT; i++) {
        ck_assert_int_eq(store_op_code(STORE_DIALECT_MODERN, rows[i].op), rows[i].modern);
        ck_assert_int_eq(store_op_code(STORE_DIALECT_LEGACY, rows[i].op), rows[i].legacy);
    }
}
END_TEST

START_TEST(test_numbers_turn_round) {
    for (int d = STORE_DIALECT_MODERN; d <= STORE_DIALECT_LEGACY; d++) {
        enum store_dialect dialect = (enum store_dialect) d;
        for (int code = 0; code < 256; code++) {
            int op = store_op_find(dialect, (uint8_t) code);
            if (op >= 0) ck_assert_int_eq(store_op_code(dialect, (enum store_op) op), code);
        }
        for (int op = 0; op < STORE_OP_COUNT; op++) {
            int code = store_op_code(dialect, (enum store_op) op);
            if (code >= 0) ck_assert_int_eq(store_op_find(dialect, (uint8_t) code), op);
        }
    }
    ck_assert_int_eq(store_op_find(STORE_DIALECT_MODERN, 0x63), -1);
    ck_assert_int_eq(store_op_find(STORE_DIALECT_NONE, 1), -1);
}
END_TEST

/* ---- finding the dialect from the first bytes ---- */

static int detect(const char *data, size_t len, enum store_dialect *dialect, size_t *consumed) {
    *dialect = STORE_DIALECT_NONE;
    *consumed = 99;
    return store_detect(data, len, dialect, consumed);
}

START_TEST(test_first_bytes) {
    enum store_dialect dialect;
    size_t consumed;
    for (size_t n = 0; n < 5; n++) {
        ck_assert_int_eq(detect(STORE_VALIDATE_BYTES, n, &dialect, &consumed), 0);
    }
    ck_assert_int_eq(detect(STORE_VALIDATE_BYTES "\x0d", 6, &dialect, &consumed), 1);
    ck_assert_int_eq(dialect, STORE_DIALECT_MODERN);
    ck_assert_uint_eq(consumed, 5);

    /* With a wrong magic number, the bytes are a legacy SET whose key is longer than the limit. */
    ck_assert_int_eq(detect("\x00\xce\xf7\x85\x3d", 5, &dialect, &consumed), 1);
    ck_assert_int_eq(dialect, STORE_DIALECT_LEGACY);
    ck_assert_uint_eq(consumed, 0);
    for (char b = 1; b <= 8; b++) {
        ck_assert_int_eq(detect(&b, 1, &dialect, &consumed), 1);
        ck_assert_int_eq(dialect, STORE_DIALECT_LEGACY);
    }
    ck_assert_int_eq(detect(STORE_ADMIN_MAGIC, 3, &dialect, &consumed), 0);
    ck_assert_int_eq(detect(STORE_ADMIN_MAGIC, 4, &dialect, &consumed), 1);
    ck_assert_int_eq(dialect, STORE_DIALECT_ADMIN);
    ck_assert_uint_eq(consumed, 4);
    ck_assert_int_eq(detect("GET / HTTP/1.1\r\n", 16, &dialect, &consumed), 1);
    ck_assert_int_eq(dialect, STORE_DIALECT_FOREIGN);
    ck_assert_uint_eq(consumed, 0);
}
END_TEST

/* ---- parsing requests ---- */

/* Encodes one request of each operation of the dialect. */
static size_t encode_all(struct cr_buffer *out, enum store_dialect dialect) {
    struct store_encoder e = {out, dialect, STORE_BYTES("/")};
    struct store_bytes keys[3] = {STORE_BYTES("a"), STORE_BYTES(""), {"x\0y", 3}};
    struct store_bytes values[3] = {STORE_BYTES("1"), STORE_BYTES("22"), STORE_BYTES("")};
    size_t n = 0;
    for (int i = 1; i < STORE_OP_COUNT; i++) {
        enum store_op op = (enum store_op) i;
        if (store_op_code(dialect, op) < 0) continue;
        const char *fields = store_op_fields(op);
        int rc = 0;
        if (strcmp(fields, "") == 0) rc = store_encode_plain(&e, op);
        if (strcmp(fields, "m") == 0) rc = store_encode_ping(out, 12345);
        if (strcmp(fields, "k") == 0) rc = store_encode_key(&e, op, keys[0]);
        if (strcmp(fields, "kn") == 0) rc = store_encode_number(&e, op, keys[0], -7);
        if (strcmp(fields, "kvv") == 0)
            rc = store_encode_compare_set(&e, keys[0], values[0], values[1]);
        if (strcmp(fields, "K") == 0) rc = store_encode_keys(&e, op, keys, 3);
        if (strcmp(fields, "P") == 0) rc = store_encode_pairs(&e, keys, values, 3);
        if (strcmp(fields, "kv") == 0) {
            rc = store_encode_value_head(&e, op, keys[0], 2);
            ck_assert_int_eq(cr_buffer_append(out, "22", 2), 0);
        }
        ck_assert_int_eq(rc, 0);
        n++;
    }
    return n;
}

static void assert_bytes(struct store_bytes got, const char *want, size_t len) {
    ck_assert_uint_eq(got.len, len);
    if (len > 0) ck_assert_mem_eq(got.data, want, len);
}

static void assert_decoded(const struct store_request *r) {
    const char *fields = store_op_fields(r->op);
    if (fields[0] == 'k') assert_bytes(r->key, "/a", 2);
    if (strcmp(fields, "kv") == 0 || strcmp(fields, "kvv") == 0) assert_bytes(r->value, "22", 2);
    if (strcmp(fields, "kvv") == 0) assert_bytes(r->expected, "1", 1);
    if (strcmp(fields, "kn") == 0) ck_assert_int_eq(r->number, -7);
    if (strcmp(fields, "m") == 0) ck_assert_int_eq(r->number, 12345);
    if (strcmp(fields, "K") == 0) {
        ck_assert_uint_eq(r->item_count, 3);
        assert_bytes(store_request_item(r, 0), "/a", 2);
        assert_bytes(store_request_item(r, 1), "/", 1);
        assert_bytes(store_request_item(r, 2), "/x\0y", 4);
    }
    if (strcmp(fields, "P") == 0) {
        ck_assert_uint_eq(r->item_count, 6);
        assert_bytes(store_request_item(r, 4), "/x\0y", 4);
        assert_bytes(store_request_item(r, 3), "22", 2);
        assert_bytes(store_request_item(r, 5), "", 0);
    }
}

/* Parses the requests; each call of the parser gets `step` more bytes than the call before it. For
 * each call, the bytes are copied to a new block of exactly their size, so that the sanitizers
 * detect a read outside the block or in the block of an earlier call. Returns the number of
 * requests. */
static size_t parse_in_steps(enum store_dialect dialect, const struct cr_buffer *wire,
                             size_t step) {
    struct store_parser p = parser_of(dialect);
    size_t start = 0, count = 0;
    for (size_t seen = 0; seen < wire->len;) {
        seen = seen + step < wire->len ? seen + step : wire->len;
        int more = 1;
        while (more && start < seen) {
            struct store_request r;
            char *copy = malloc(seen - start);
            ck_assert_ptr_nonnull(copy);
            memcpy(copy, wire->data + start, seen - start);
            int rc = store_parse(&p, copy, seen - start, &r);
            ck_assert_int_ge(rc, 0);
            more = rc;
            if (rc == 1) {
                assert_decoded(&r);
                start += r.size;
                count++;
                store_parser_next(&p);
            }
            free(copy);
        }
    }
    ck_assert_uint_eq(start, wire->len);
    store_parser_done(&p);
    return count;
}

START_TEST(test_any_pieces_parse_the_same) {
    for (int d = STORE_DIALECT_MODERN; d <= STORE_DIALECT_LEGACY; d++) {
        struct cr_buffer wire = {0};
        size_t n = encode_all(&wire, (enum store_dialect) d);
        for (size_t step = 1; step <= wire.len; step++) {
            ck_assert_uint_eq(parse_in_steps((enum store_dialect) d, &wire, step), n);
        }
        cr_buffer_done(&wire);
    }
}
END_TEST

static int parse_error(const void *data, size_t len, const char **reason) {
    struct store_parser p = parser_of(STORE_DIALECT_MODERN);
    struct store_request r;
    int rc = store_parse(&p, data, len, &r);
    *reason = p.reason;
    store_parser_done(&p);
    return rc;
}

START_TEST(test_absurd_lengths) {
    const char *reason;
    uint8_t get[9] = {3}, set[18] = {1, 1}, wait[9] = {6}, pairs[9] = {11};
    const uint64_t absurd[] = {UINT64_MAX, (uint64_t) 1 << 63, (uint64_t) 1 << 35};
    for (size_t i = 0; i < 3; i++) {
        store_put_u64(get + 1, absurd[i]);
        ck_assert_int_eq(parse_error(get, 9, &reason), -EMSGSIZE);
        ck_assert_str_eq(reason, "key too long");
        set[9] = 'k';
        store_put_u64(set + 10, absurd[i]);
        ck_assert_int_eq(parse_error(set, 18, &reason), -EMSGSIZE);
        ck_assert_str_eq(reason, "value too long");
        store_put_u64(wait + 1, absurd[i]);
        ck_assert_int_eq(parse_error(wait, 9, &reason), -EMSGSIZE);
        ck_assert_str_eq(reason, "list too long");
        store_put_u64(pairs + 1, absurd[i]);
        ck_assert_int_eq(parse_error(pairs, 9, &reason), -EMSGSIZE);
    }
    ck_assert_int_eq(parse_error("\x63", 1, &reason), -EPROTO);
    ck_assert_str_eq(reason, "unknown operation");
    /* VALIDATE was sent a second time */
    ck_assert_int_eq(parse_error(STORE_VALIDATE_BYTES, 5, &reason), -EPROTO);
}
END_TEST

/* A length equal to its limit is allowed, a greater one is refused. A key of STORE_KEY_MAX bytes
 * has torch's '/' in front of it on the wire. */
START_TEST(test_limits_are_inclusive) {
    const char *reason;
    uint8_t head[18] = {3};
    store_put_u64(head + 1, STORE_KEY_MAX + 1);
    ck_assert_int_eq(parse_error(head, 9, &reason), 0);
    store_put_u64(head + 1, STORE_KEY_MAX + 2);
    ck_assert_int_eq(parse_error(head, 9, &reason), -EMSGSIZE);
    head[0] = 1;
    store_put_u64(head + 1, 1);
    store_put_u64(head + 10, STORE_VALUE_MAX);
    ck_assert_int_eq(parse_error(head, 18, &reason), 0);
    store_put_u64(head + 10, STORE_VALUE_MAX + 1);
    ck_assert_int_eq(parse_error(head, 18, &reason), -EMSGSIZE);
    head[0] = 6;
    store_put_u64(head + 1, STORE_LIST_MAX);
    ck_assert_int_eq(parse_error(head, 9, &reason), 0);
    store_put_u64(head + 1, STORE_LIST_MAX + 1);
    ck_assert_int_eq(parse_error(head, 9, &reason), -EMSGSIZE);
}
END_TEST

START_TEST(test_whole_request_is_bounded) {
    static const struct store_limits small = {100, 100, 100, 200};
    struct store_parser p = {.limits = &small, .dialect = STORE_DIALECT_MODERN};
    struct cr_buffer wire = {0};
    struct store_encoder e = {&wire, STORE_DIALECT_MODERN, STORE_BYTES("")};
    struct store_bytes keys[8];
    char name[60] = {0};
    for (size_t i = 0; i < 8; i++) keys[i] = (struct store_bytes){name, sizeof(name)};
    ck_assert_int_eq(store_encode_keys(&e, STORE_OP_WAIT, keys, 8), 0);
    struct store_request r;
    ck_assert_int_eq(store_parse(&p, wire.data, wire.len, &r), -EMSGSIZE);
    ck_assert_str_eq(p.reason, "request too long");
    store_parser_done(&p);
    cr_buffer_done(&wire);
}
END_TEST

/* A big value at the end of the received bytes can be received directly into its own memory block;
 * a small value, or a value that is followed by other bytes, cannot. */
START_TEST(test_big_value_has_its_block) {
    struct cr_buffer wire = {0};
    struct store_encoder e = {&wire, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    struct store_request r;
    size_t head = 0;
    ck_assert_int_eq(store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("k"), STORE_BLOCK_MIN),
                     0);
    struct store_parser p = parser_of(STORE_DIALECT_MODERN);
    ck_assert_int_eq(store_parse(&p, wire.data, wire.len - 1, &r), 0);
    ck_assert_uint_eq(store_parser_block(&p, &head), 0);
    ck_assert_int_eq(store_parse(&p, wire.data, wire.len, &r), 0);
    ck_assert_uint_eq(store_parser_block(&p, &head), STORE_BLOCK_MIN);
    ck_assert_uint_eq(head, wire.len);
    struct store_value *block = store_value_new(STORE_BLOCK_MIN);
    ck_assert_ptr_nonnull(block);
    block->len = (uint32_t) STORE_BLOCK_MIN;
    store_parser_complete(&p, wire.data, (struct store_bytes){block->data, block->len}, &r);
    ck_assert_int_eq(r.op, STORE_OP_SET);
    assert_bytes(r.key, "/k", 2);
    ck_assert_ptr_eq(r.value.data, block->data);
    ck_assert_ptr_null(r.block);
    store_parser_next(&p);
    store_value_unref(block);

    wire.len = 0;
    ck_assert_int_eq(
        store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("k"), STORE_BLOCK_MIN - 1), 0);
    ck_assert_int_eq(store_parse(&p, wire.data, wire.len, &r), 0);
    ck_assert_uint_eq(store_parser_block(&p, &head), 0);
    store_parser_done(&p);
    cr_buffer_done(&wire);
}
END_TEST

START_TEST(test_encoder_refuses_what_the_dialect_lacks) {
    struct cr_buffer wire = {0};
    struct store_encoder e = {&wire, STORE_DIALECT_LEGACY, STORE_BYTES("/")};
    ck_assert_int_eq(store_encode_plain(&e, STORE_OP_LIST_KEYS), -ENOTSUP);
    ck_assert_int_eq(store_encode_key(&e, STORE_OP_QUEUE_POP, STORE_BYTES("q")), -ENOTSUP);
    ck_assert_uint_eq(wire.len, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_wire");
    TCase *c = tcase_create("wire");
    tcase_add_test(c, test_numbers_of_the_generations);
    tcase_add_test(c, test_numbers_turn_round);
    tcase_add_test(c, test_first_bytes);
    tcase_add_test(c, test_any_pieces_parse_the_same);
    tcase_add_test(c, test_absurd_lengths);
    tcase_add_test(c, test_limits_are_inclusive);
    tcase_add_test(c, test_whole_request_is_bounded);
    tcase_add_test(c, test_big_value_has_its_block);
    tcase_add_test(c, test_encoder_refuses_what_the_dialect_lacks);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
