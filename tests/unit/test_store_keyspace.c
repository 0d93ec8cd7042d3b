/* Tests store/keyspace: the bytes of each reply, which waiting clients an operation wakes, and that
 * a session leaves no waits or watches behind. The tests send whole requests and read the bytes of
 * the replies, as on a connection. */
#include "tests/lib/run_suite.h"
#include "tests/lib/store_peer.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct store_keyspace keys;
static struct peer a, b, c;

static void setup_peers(void) {
    struct peer *all[] = {&a, &b, &c};
    for (size_t i = 0; i < 3; i++) {
        peer_open(all[i], &keys, &peer_limits);
        peer_send(all[i], STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
    }
}

static void teardown_peers(void) {
    peer_close(&a);
    peer_close(&b);
    peer_close(&c);
}

static void setup(void) {
    store_keyspace_init(&keys, (const uint64_t[2]){1, 2});
    setup_peers();
}

static void teardown(void) {
    teardown_peers();
    store_keyspace_done(&keys);
}

/* ---- sending requests and receiving replies ---- */

static struct cr_buffer request;
static const struct store_encoder encoder = {&request, STORE_DIALECT_MODERN, {"/", 1}};

static void send_request(struct peer *p, int rc) {
    ck_assert_int_eq(rc, 0);
    peer_send(p, request.data, request.len);
    cr_buffer_clear(&request);
}

static void say(struct peer *p, enum store_op op) {
    send_request(p, store_encode_plain(&encoder, op));
}

static void say_key(struct peer *p, enum store_op op, const char *key) {
    send_request(p, store_encode_key(&encoder, op, STORE_BYTES(key)));
}

static void say_number(struct peer *p, enum store_op op, const char *key, int64_t number) {
    send_request(p, store_encode_number(&encoder, op, STORE_BYTES(key), number));
}

static void say_value(struct peer *p, enum store_op op, const char *key, const char *value) {
    int rc = store_encode_value_head(&encoder, op, STORE_BYTES(key), strlen(value));
    if (rc == 0) rc = cr_buffer_append(&request, value, strlen(value));
    send_request(p, rc);
}

static void say_keys(struct peer *p, enum store_op op, const char *k0, const char *k1) {
    struct store_bytes list[2] = {STORE_BYTES(k0 == NULL ? "" : k0),
                                  STORE_BYTES(k1 == NULL ? "" : k1)};
    size_t n = k0 == NULL ? 0 : k1 == NULL ? 1 : 2;
    send_request(p, store_encode_keys(&encoder, op, list, n));
}

static void compare_set(struct peer *p, const char *key, const char *expected,
                        const char *desired) {
    send_request(p, store_encode_compare_set(&encoder, STORE_BYTES(key), STORE_BYTES(expected),
                                             STORE_BYTES(desired)));
}

static void hear_bytes(struct peer *p, const void *want, size_t len) {
    struct cr_buffer got = {0};
    peer_receive(p, &got);
    ck_assert_uint_eq(got.len, len);
    if (len > 0) ck_assert_mem_eq(got.data, want, len);
    cr_buffer_done(&got);
}

static void hear_nothing(struct peer *p) { hear_bytes(p, NULL, 0); }
static void hear_byte(struct peer *p, char byte) { hear_bytes(p, &byte, 1); }

static void hear_number(struct peer *p, int64_t number) {
    uint8_t raw[8];
    store_put_u64(raw, (uint64_t) number);
    hear_bytes(p, raw, 8);
}

static void hear_value(struct peer *p, const char *value) {
    struct cr_buffer want = {0};
    uint8_t raw[8];
    store_put_u64(raw, strlen(value));
    ck_assert_int_eq(cr_buffer_append(&want, raw, 8), 0);
    ck_assert_int_eq(cr_buffer_append(&want, value, strlen(value)), 0);
    hear_bytes(p, want.data, want.len);
    cr_buffer_done(&want);
}

static void assert_holds(const char *key, const char *value) {
    say_key(&c, STORE_OP_GET, key);
    hear_value(&c, value);
}

static void assert_num_keys(int64_t n) {
    say(&c, STORE_OP_NUM_KEYS);
    hear_number(&c, n);
}

static void set(const char *key, const char *value) {
    say_value(&c, STORE_OP_SET, key, value);
    hear_nothing(&c);
}

/* ---- the golden bytes ---- */

static size_t from_hex(const char *hex, uint8_t *out) {
    size_t n = 0;
    unsigned byte;
    while (hex[0] != '-' && sscanf(hex + 2 * n, "%2x", &byte) == 1) out[n++] = (uint8_t) byte;
    return n;
}

struct named_peer {
    char name[16];
    struct peer peer;
};

static struct peer *peer_called(struct named_peer *peers, const char *name) {
    struct named_peer *p = peers;
    while (p->name[0] != '\0' && strcmp(p->name, name) != 0) p++;
    if (p->name[0] == '\0') {
        strcpy(p->name, name);
        peer_open(&p->peer, &keys, &peer_limits);
    }
    return &p->peer;
}

/* Sends the requests of a golden file in pieces of `step` bytes and compares the replies with
 * it. */
static int play(const char *path, size_t step) {
    struct named_peer peers[4] = {0};
    char line[1024], id[16], name[16], req[512], first[512], second[512];
    int played = 0;
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "cannot open %s; run me from the repository's root", path);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (line[0] == '#') continue;
        int n = sscanf(line, "%15s %15s %511s -> %511s or %511s", id, name, req, first, second);
        ck_assert_int_ge(n, 4);
        struct peer *p = peer_called(peers, name);
        uint8_t raw[256], want[256], other[256];
        size_t len = from_hex(req, raw), want_len = from_hex(first, want);
        for (size_t at = 0; at < len; at += step) {
            peer_send(p, raw + at, len - at < step ? len - at : step);
        }
        struct cr_buffer got = {0};
        peer_receive(p, &got);
        int same = got.len == want_len && (want_len == 0 || memcmp(got.data, want, want_len) == 0);
        if (n == 5 && !same)
            same = got.len == from_hex(second, other) && memcmp(got.data, other, got.len) == 0;
        ck_assert_msg(same || want_len + got.len == 0, "%s: %s: wrong reply to %s", path, id, req);
        cr_buffer_done(&got);
        played++;
    }
    (void) fclose(f);
    for (int i = 0; i < 4 && peers[i].name[0] != '\0'; i++) peer_close(&peers[i].peer);
    return played;
}

START_TEST(test_golden_legacy) {
    ck_assert_int_ge(play("tests/golden/store_legacy.txt", (size_t) _i), 28);
}
END_TEST

START_TEST(test_golden_modern) {
    ck_assert_int_ge(play("tests/golden/store_modern.txt", (size_t) _i), 25);
}
END_TEST

/* ---- keys and values ---- */

START_TEST(test_any_bytes_are_a_key) {
    struct store_bytes key = {"\0\xff\n", 3};
    int rc = store_encode_value_head(&encoder, STORE_OP_SET, key, 3);
    if (rc == 0) rc = cr_buffer_append(&request, "\n\0\xfe", 3);
    send_request(&a, rc);
    send_request(&a, store_encode_key(&encoder, STORE_OP_GET, key));
    hear_bytes(&a, "\3\0\0\0\0\0\0\0\n\0\xfe", 11);
    set("", "");
    assert_holds("", "");
    assert_num_keys(2);
}
END_TEST

START_TEST(test_absent_keys_are_empty_values) {
    assert_holds("none", "");
    assert_num_keys(0);
    set("here", "1");
    say_keys(&a, STORE_OP_MULTI_GET, "none", "here");
    hear_bytes(&a,
               "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
               "1",
               17);
    say_keys(&a, STORE_OP_MULTI_GET, "here", "here");
    hear_bytes(&a,
               "\1\0\0\0\0\0\0\0"
               "1\1\0\0\0\0\0\0\0"
               "1",
               18);
    say_keys(&a, STORE_OP_MULTI_GET, NULL, NULL);
    hear_nothing(&a);
}
END_TEST

START_TEST(test_add_reads_text_as_strtoll) {
    const struct {
        const char *text;
        int64_t number;
    } rows[] = {{"12abc", 12},
                {" 7", 7},
                {"+5", 5},
                {"-3\n", -3},
                {"0x10", 0},
                {"1.5", 1},
                {"\t\v\f\r\n 8", 8},
                {"000000000000000000000000000042", 42},
                {"-0", 0},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set("n", rows[i].text);
        say_number(&a, STORE_OP_ADD, "n", 0);
        hear_number(&a, rows[i].number);
        char text[32];
        (void) snprintf(text, sizeof(text), "%" PRId64, rows[i].number);
        assert_holds("n", text);
    }
}
END_TEST

START_TEST(test_add_refuses_what_is_no_number) {
    const char *const bad[] = {"abc",
                               "",
                               " ",
                               "-",
                               "+-1",
                               "9223372036854775808",
                               "-9223372036854775809",
                               "99999999999999999999"};
    const char *text = bad[_i];
    set("n", text);
    say_number(&a, STORE_OP_ADD, "n", 1);
    ck_assert_int_eq(a.error, -EPROTO);
    hear_nothing(&a);
    assert_holds("n", text);
    say_number(&b, STORE_OP_BARRIER, "n", 1);
    ck_assert_int_eq(b.error, -EPROTO);
    assert_holds("n", text);
}
END_TEST

/* ADD parses only the first 64 KiB of a value as a number, because parsing a value of maximal
 * length would keep the other clients waiting. */
START_TEST(test_add_looks_at_so_much_text_only) {
    static char text[(64 << 10) + 2];
    memset(text, ' ', sizeof(text) - 1);
    text[(64 << 10) - 1] = '7';
    text[64 << 10] = '\0';
    set("k", text);
    say_number(&a, STORE_OP_ADD, "k", 1);
    hear_number(&a, 8);
    text[(64 << 10) - 1] = ' ';
    text[64 << 10] = '7';
    set("k", text);
    say_number(&a, STORE_OP_ADD, "k", 1);
    ck_assert_int_eq(a.error, -EPROTO);
    ck_assert_str_eq(a.reason, "add to a value that is too long for a number");
}
END_TEST

START_TEST(test_add_wraps_and_creates) {
    say_number(&a, STORE_OP_ADD, "zero", 0);
    hear_number(&a, 0);
    assert_holds("zero", "0");
    assert_num_keys(1);
    set("max", "9223372036854775807");
    say_number(&a, STORE_OP_ADD, "max", 1);
    hear_number(&a, INT64_MIN);
    assert_holds("max", "-9223372036854775808");
    say_number(&a, STORE_OP_ADD, "max", -1);
    hear_number(&a, INT64_MAX);
}
END_TEST

START_TEST(test_compare_set) {
    compare_set(&a, "k", "x", "y"); /* the key is missing, but a value is expected: no change */
    hear_value(&a, "x");
    assert_num_keys(0);
    compare_set(&a, "k", "", ""); /* the key is missing, and an empty value is expected: creates the
                                   * key */
    hear_value(&a, "");
    assert_num_keys(1);
    compare_set(&a, "k", "", "v"); /* the stored empty value is the expected value */
    hear_value(&a, "v");
    compare_set(&a, "k", "w", "z"); /* the stored value is not the expected value */
    hear_value(&a, "v");
    assert_holds("k", "v");
    compare_set(&a, "k", "v", "w");
    hear_value(&a, "w");
    assert_holds("k", "w");
}
END_TEST

START_TEST(test_append_and_multi_set) {
    say_value(&a, STORE_OP_APPEND, "k", "5");
    say_value(&a, STORE_OP_APPEND, "k", "1");
    say_value(&a, STORE_OP_APPEND, "k", "");
    hear_nothing(&a);
    assert_holds("k", "51");
    struct store_bytes names[3] = {STORE_BYTES("x"), STORE_BYTES("y"), STORE_BYTES("x")};
    struct store_bytes values[3] = {STORE_BYTES("1"), STORE_BYTES("2"), STORE_BYTES("3")};
    send_request(&a, store_encode_pairs(&encoder, names, values, 3));
    hear_nothing(&a);
    assert_holds("x", "3");
    assert_holds("y", "2");
    assert_num_keys(3);
}
END_TEST

/* A multi_set that has arrived only in part has no effect. */
START_TEST(test_multi_set_is_applied_whole) {
    struct store_bytes names[2] = {STORE_BYTES("x"), STORE_BYTES("y")};
    struct store_bytes values[2] = {STORE_BYTES("1"), STORE_BYTES("2")};
    ck_assert_int_eq(store_encode_pairs(&encoder, names, values, 2), 0);
    char last = request.data[request.len - 1];
    peer_send(&a, request.data, request.len - 1);
    cr_buffer_clear(&request);
    assert_num_keys(0);
    peer_send(&a, &last, 1);
    assert_num_keys(2);
}
END_TEST

START_TEST(test_list_keys_counts_what_num_keys_counts) {
    set("k", "v");
    say_number(&a, STORE_OP_ADD, "n", 1);
    hear_number(&a, 1);
    say_value(&a, STORE_OP_QUEUE_PUSH, "q", "job");
    say_keys(&b, STORE_OP_WAIT, "missing", NULL);
    assert_num_keys(2);
    say(&a, STORE_OP_LIST_KEYS);
    struct cr_buffer got = {0};
    peer_receive(&a, &got);
    ck_assert_uint_eq(store_load_u64(got.data), 2);
    ck_assert_uint_eq(got.len, 8 + 2 * (8 + 2));
    cr_buffer_done(&got);
}
END_TEST

/* Adds 1,000 keys. The test of long lists calls it between two pieces of a list of keys: a key that
 * exists during the whole listing must be listed exactly once. */
static void grow(int round) {
    char key[32];
    for (int i = 0; i < 1000; i++) {
        (void) snprintf(key, sizeof(key), "new%d.%d", round, i);
        say_value(&c, STORE_OP_SET, key, "");
    }
}

static void shrink(int from, int to) {
    char key[32];
    for (int i = from; i < to; i++) {
        (void) snprintf(key, sizeof(key), "gone%d", i);
        say_key(&c, STORE_OP_DELETE, key);
        hear_number(&c, 1);
    }
}

START_TEST(test_a_long_list_in_pieces) {
    enum { STAY = 20000, GONE = 60000 };
    static uint8_t seen[STAY];
    memset(seen, 0, sizeof(seen));
    char key[32];
    for (int i = 0; i < GONE; i++) {
        (void) snprintf(key, sizeof(key), "gone%d", i);
        say_value(&c, STORE_OP_SET, key, "");
        (void) snprintf(key, sizeof(key), "stay%d", i);
        if (i < STAY) say_value(&c, STORE_OP_SET, key, "");
    }
    a.session.lists_in_pieces = true;
    say(&a, STORE_OP_LIST_KEYS);
    ck_assert_ptr_nonnull(a.session.listing);
    hear_nothing(&a);
    const char *reason = NULL;
    int rounds = 0, rc;
    while ((rc = store_keyspace_list_on(&keys, &a.session, &reason)) == 1) {
        if (_i == 1) grow(rounds);
        if (_i == 2 && rounds < 20) shrink(rounds * 3000, rounds * 3000 + 3000);
        rounds++;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(rounds, 5);
    struct cr_buffer got = {0};
    peer_receive(&a, &got);
    uint64_t count = store_load_u64(got.data), found = 0;
    size_t at = 8;
    for (uint64_t i = 0; i < count; i++) {
        size_t len = store_load_u64(got.data + at);
        ck_assert_uint_lt(len, sizeof(key));
        memcpy(key, got.data + at + 8, len);
        key[len] = '\0';
        at += 8 + len;
        if (strncmp(key, "/stay", 5) != 0) continue;
        ck_assert_uint_eq(seen[atoi(key + 5)]++, 0);
        found++;
    }
    ck_assert_uint_eq(at, got.len);
    ck_assert_uint_eq(found, STAY);
    if (_i == 0) ck_assert_uint_eq(count, STAY + GONE);
    cr_buffer_done(&got);
}
END_TEST

/* A reply that is not sent yet shares a big value with the key. A change of the key must not change
 * the value in that reply. */
START_TEST(test_big_values_are_shared_not_changed) {
    char *big = malloc(100001);
    memset(big, 'x', 100000);
    big[100000] = '\0';
    set("big", big);
    say_key(&a, STORE_OP_GET, "big");
    say_value(&b, STORE_OP_APPEND, "big", "tail");
    set("big", "small");
    hear_value(&a, big);
    assert_holds("big", "small");
    free(big);
}
END_TEST

/* The kernel may still send from the pages of a lent value, so their bytes must not change when the
 * value is freed. It gives up no pages that are locked into memory (mlock(2)), so the memory of
 * such a value must not be used again. The system call is made directly, because the sanitizers
 * replace mlock() by a function that does nothing. */
START_TEST(test_locked_pages_of_a_lent_value_are_not_used_again) {
    enum { SIZE = 256 << 10, OTHERS = 20 };
    static uint8_t *lent; /* static, so that LeakSanitizer finds the memory, which is not freed */
    struct store_value *v = store_value_new(SIZE), *other[OTHERS];
    ck_assert_ptr_nonnull(v);
    lent = v->data;
    memset(lent, 'a', SIZE);
    v->len = SIZE;
    v->lent = 1;
    if (syscall(SYS_mlock, lent, SIZE) < 0) {
        (void) printf("note: no memory can be locked here; not tested: %s\n", strerror(errno));
        store_value_unref(v);
        return;
    }
    store_value_unref(v);
    for (int i = 0; i < OTHERS; i++) {
        other[i] = store_value_new(SIZE);
        memset(other[i]->data, 'b', SIZE);
    }
    for (size_t i = 0; i < SIZE; i++) ck_assert_uint_eq(lent[i], 'a');
    for (int i = 0; i < OTHERS; i++) store_value_unref(other[i]);
}
END_TEST

/* A deleted value counts as used memory as long as an unsent reply still contains it. */
START_TEST(test_unsent_values_stay_counted) {
    size_t size = 100000;
    char *big = malloc(size + 1);
    memset(big, 'x', size);
    big[size] = '\0';
    set("k", big);
    size_t one = keys.memory;
    say_key(&a, STORE_OP_GET, "k");
    say_key(&b, STORE_OP_GET, "k");
    ck_assert_uint_eq(keys.memory, one); /* the reply shares the value */
    set("k", big);
    ck_assert_uint_gt(keys.memory, one + size);
    say_key(&c, STORE_OP_DELETE, "k");
    hear_number(&c, 1);
    ck_assert_uint_gt(keys.memory, size);
    hear_value(&a, big);
    ck_assert_uint_gt(keys.memory, size);
    peer_close(&b); /* b disconnects without reading */
    peer_open(&b, &keys, &peer_limits);
    ck_assert_uint_eq(keys.memory, 0);
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", big);
    say_key(&a, STORE_OP_QUEUE_POP, "q");
    ck_assert_uint_gt(keys.memory, size);
    struct cr_buffer got = {0};
    peer_receive(&a, &got);
    ck_assert_uint_eq(got.len, 16 + size);
    cr_buffer_done(&got);
    ck_assert_uint_eq(keys.memory, 0);
    free(big);
}
END_TEST

/* ---- waits ---- */

START_TEST(test_check_and_wait_at_once) {
    const enum store_op ops[] = {STORE_OP_CHECK, STORE_OP_WAIT};
    set("k", "v");
    set("l", "v");
    for (int i = 0; i < 2; i++) {
        say_keys(&a, ops[i], NULL, NULL);
        hear_byte(&a, 0);
        say_keys(&a, ops[i], "k", "l");
        hear_byte(&a, 0);
    }
    say_keys(&a, STORE_OP_CHECK, "k", "none");
    hear_byte(&a, STORE_NOT_READY);
    assert_num_keys(2);
}
END_TEST

/* Creates a key by the operation number `way`; each of these operations must end a wait for it. */
static void create(const char *key, int way) {
    struct store_bytes name = STORE_BYTES(key), value = STORE_BYTES("1");
    if (way == 0) say_value(&c, STORE_OP_SET, key, "1");
    if (way == 1) say_number(&c, STORE_OP_ADD, key, 1);
    if (way == 2) say_value(&c, STORE_OP_APPEND, key, "1");
    if (way == 3) send_request(&c, store_encode_pairs(&encoder, &name, &value, 1));
    if (way == 4) compare_set(&c, key, "", "1");
    if (way == 5) say_value(&c, STORE_OP_QUEUE_PUSH, key, "1");
    if (way == 6) say_number(&c, STORE_OP_BARRIER, key, 1);
    struct cr_buffer reply = {0};
    peer_receive(&c, &reply);
    cr_buffer_done(&reply);
}

START_TEST(test_wait_ends_with_the_last_key) {
    for (int order = 0; order < 2; order++) {
        char k0[16], k1[16];
        (void) snprintf(k0, sizeof(k0), "x%d", order);
        (void) snprintf(k1, sizeof(k1), "y%d", order);
        say_keys(&a, STORE_OP_WAIT, k0, k1);
        say_keys(&b, STORE_OP_WAIT, k1, k0);
        create(order ? k1 : k0, _i);
        hear_nothing(&a);
        hear_nothing(&b);
        create(order ? k0 : k1, _i);
        hear_byte(&a, STORE_STOP_WAITING);
        if (_i == 5) { /* a queue: one new element wakes one waiting client */
            hear_nothing(&b);
            continue;
        }
        hear_byte(&b, STORE_STOP_WAITING);
    }
}
END_TEST

START_TEST(test_wait_for_one_name_twice) {
    say_keys(&a, STORE_OP_WAIT, "k", "k");
    set("k", "v");
    hear_byte(&a, STORE_STOP_WAITING);
    set("k", "w");
    hear_nothing(&a);
}
END_TEST

START_TEST(test_a_key_seen_counts_though_deleted) {
    say_keys(&a, STORE_OP_WAIT, "x", "y");
    set("x", "1");
    say_key(&c, STORE_OP_DELETE, "x");
    hear_number(&c, 1);
    set("y", "1");
    hear_byte(&a, STORE_STOP_WAITING);
}
END_TEST

START_TEST(test_a_refused_compare_set_wakes_nobody) {
    say_keys(&a, STORE_OP_WAIT, "k", NULL);
    compare_set(&c, "k", "x", "y");
    hear_value(&c, "x");
    hear_nothing(&a);
}
END_TEST

START_TEST(test_cancel) {
    say(&a, STORE_OP_CANCEL_WAIT);
    hear_byte(&a, STORE_WAIT_CANCELED);
    say_keys(&a, STORE_OP_WAIT, "k", "l");
    say(&a, STORE_OP_CANCEL_WAIT);
    hear_byte(&a, STORE_WAIT_CANCELED);
    set("k", "v");
    set("l", "v");
    hear_nothing(&a);
    say_keys(&a, STORE_OP_WAIT, "again", NULL);
    set("again", "v");
    hear_byte(&a, STORE_STOP_WAITING);
    /* The set has ended a's wait, and a has its reply STORE_STOP_WAITING. CANCEL_WAIT has a reply
     * of its own, even if no wait is left to cancel. */
    say(&a, STORE_OP_CANCEL_WAIT);
    hear_byte(&a, STORE_WAIT_CANCELED);
}
END_TEST

/* A modern client may send other requests while it waits. A second wait replaces the first wait. */
START_TEST(test_other_requests_while_waiting) {
    say_keys(&a, STORE_OP_WAIT, "k", NULL);
    say(&a, STORE_OP_NUM_KEYS);
    hear_number(&a, 0);
    say_keys(&a, STORE_OP_WAIT, "l", NULL);
    set("k", "v");
    hear_nothing(&a);
    set("l", "v");
    hear_byte(&a, STORE_STOP_WAITING);
}
END_TEST

/* A legacy client has no CANCEL_WAIT. If it sends another request while it waits, its wait ends. */
START_TEST(test_a_legacy_client_gives_up_by_going_on) {
    struct peer old;
    peer_open(&old, &keys, &peer_limits);
    peer_send(&old, "\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k", 19);
    hear_nothing(&old);
    peer_send(&old, "\x06", 1);
    hear_number(&old, 0);
    set("k", "v");
    hear_nothing(&old);
    peer_send(&old, "\x06", 1);
    hear_number(&old, 1);
    peer_close(&old);
}
END_TEST

START_TEST(test_leaving_leaves_nothing) {
    set("base", "v");
    size_t memory = keys.memory, entries = keys.table.count;
    for (int i = 0; i < 10000; i++) {
        struct peer p;
        peer_open(&p, &keys, &peer_limits);
        peer_send(&p, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
        say_keys(&p, STORE_OP_WAIT, "missing", "base2");
        peer_close(&p);
    }
    ck_assert_uint_eq(keys.memory, memory);
    ck_assert_uint_eq(keys.table.count, entries);
    ck_assert_uint_eq(keys.wait_count, 0);
    ck_assert(TAILQ_EMPTY(&keys.waits));
    set("missing", "v");
}
END_TEST

START_TEST(test_what_is_deleted_is_free) {
    size_t memory = keys.memory;
    char key[32];
    for (int i = 0; i < 5000; i++) {
        (void) snprintf(key, sizeof(key), "key%d", i);
        set(key, "some value");
        say_value(&c, STORE_OP_APPEND, key, "and more of it");
        say_value(&c, STORE_OP_QUEUE_PUSH, key, "job");
    }
    assert_num_keys(5000);
    for (int i = 0; i < 5000; i++) {
        (void) snprintf(key, sizeof(key), "key%d", i);
        say_key(&c, STORE_OP_DELETE, key);
        hear_number(&c, 1);
        say_key(&c, STORE_OP_QUEUE_POP, key);
        struct cr_buffer got = {0};
        peer_receive(&c, &got);
        ck_assert_uint_eq(got.len, 8 + 8 + 3);
        cr_buffer_done(&got);
    }
    ck_assert_uint_eq(keys.memory, memory);
    ck_assert_uint_eq(keys.key_bytes, 0);
    ck_assert_uint_eq(keys.value_bytes, 0);
    ck_assert_uint_eq(keys.queue_count, 0);
    ck_assert_uint_eq(keys.table.count, 0);
}
END_TEST

/* ---- queues ---- */

static void pop(struct peer *p, int64_t before, const char *head) {
    say_key(p, STORE_OP_QUEUE_POP, "q");
    struct cr_buffer got = {0};
    peer_receive(p, &got);
    ck_assert_uint_ge(got.len, 8);
    ck_assert_uint_eq(store_load_u64(got.data), (uint64_t) before);
    ck_assert_uint_eq(got.len, before > 0 ? 16 + strlen(head) : 8);
    if (before > 0) ck_assert_mem_eq(got.data + 16, head, strlen(head));
    cr_buffer_done(&got);
}

START_TEST(test_queue_is_first_in_first_out) {
    pop(&a, 0, NULL);
    say_value(&a, STORE_OP_QUEUE_PUSH, "q", "one");
    say_value(&a, STORE_OP_QUEUE_PUSH, "q", "");
    say_value(&b, STORE_OP_QUEUE_PUSH, "q", "three");
    hear_nothing(&a);
    say_key(&a, STORE_OP_QUEUE_LEN, "q");
    hear_number(&a, 3);
    say_key(&a, STORE_OP_QUEUE_LEN, "other");
    hear_number(&a, 0);
    pop(&b, 3, "one");
    pop(&a, 2, "");
    pop(&a, 1, "three");
    pop(&a, 0, NULL);
}
END_TEST

START_TEST(test_one_push_wakes_one_waiter) {
    say_keys(&a, STORE_OP_WAIT, "q", NULL);
    say_keys(&b, STORE_OP_WAIT, "q", NULL);
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", "1");
    hear_byte(&a, STORE_STOP_WAITING);
    hear_nothing(&b);
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", "2");
    hear_byte(&b, STORE_STOP_WAITING);
    pop(&a, 2, "1");
    pop(&b, 1, "2");
    /* A new WAIT replaces the client's earlier wait, so a no longer waits for q. */
    say_keys(&a, STORE_OP_WAIT, "other", NULL);
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", "3");
    hear_nothing(&a);
}
END_TEST

/* A push wakes a client that waits for this queue only, not a client that also waits for a missing
 * key. */
START_TEST(test_push_wakes_one_who_can_go) {
    say_keys(&a, STORE_OP_WAIT, "q", "later");
    say_keys(&b, STORE_OP_WAIT, "q", NULL);
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", "1");
    hear_nothing(&a);
    hear_byte(&b, STORE_STOP_WAITING);
    set("later", "v");
    hear_byte(&a, STORE_STOP_WAITING);
}
END_TEST

START_TEST(test_queues_are_not_keys) {
    say_value(&c, STORE_OP_QUEUE_PUSH, "q", "1");
    say_keys(&a, STORE_OP_CHECK, "q", NULL);
    hear_byte(&a, STORE_READY);
    say_keys(&a, STORE_OP_WAIT, "q", NULL);
    hear_byte(&a, STORE_STOP_WAITING);
    assert_holds("q", "");
    assert_num_keys(0);
    say_key(&a, STORE_OP_DELETE, "q");
    hear_number(&a, 0);
    set("q", "plain"); /* a key and a queue with the same name */
    say_key(&a, STORE_OP_DELETE, "q");
    hear_number(&a, 1);
    pop(&a, 1, "1");
}
END_TEST

/* ---- barriers ---- */

START_TEST(test_barrier) {
    say_number(&a, STORE_OP_BARRIER, "b", 3);
    hear_nothing(&a);
    say_number(&b, STORE_OP_BARRIER, "b", 3);
    hear_nothing(&b);
    hear_nothing(&a);
    say_number(&c, STORE_OP_BARRIER, "b", 3);
    hear_byte(&a, STORE_STOP_WAITING);
    hear_byte(&b, STORE_STOP_WAITING);
    hear_byte(&c, STORE_STOP_WAITING);
    /* The three arrivals that the barrier needs have come, so a fourth one does not wait. */
    say_number(&a, STORE_OP_BARRIER, "b", 3);
    hear_byte(&a, STORE_STOP_WAITING);
    assert_holds("b", "4");
    say_number(&a, STORE_OP_BARRIER, "alone", 1);
    hear_byte(&a, STORE_STOP_WAITING);
}
END_TEST

START_TEST(test_barrier_cancelled_stays_counted) {
    say_number(&a, STORE_OP_BARRIER, "b", 2);
    say(&a, STORE_OP_CANCEL_WAIT);
    hear_byte(&a, STORE_WAIT_CANCELED);
    assert_holds("b", "1");
    say_number(&b, STORE_OP_BARRIER, "b", 2);
    hear_byte(&b, STORE_STOP_WAITING);
    hear_nothing(&a);
}
END_TEST

/* The first arrival at a barrier creates the barrier's key, but only the last arrival wakes the
 * clients that wait for the key. */
START_TEST(test_barrier_arrival_wakes_no_waiter) {
    say_keys(&a, STORE_OP_WAIT, "b", NULL);
    say_number(&b, STORE_OP_BARRIER, "b", 2);
    hear_nothing(&a);
    hear_nothing(&b);
    say_number(&c, STORE_OP_BARRIER, "b", 2);
    hear_byte(&a, STORE_STOP_WAITING);
    hear_byte(&b, STORE_STOP_WAITING);
    hear_byte(&c, STORE_STOP_WAITING);
}
END_TEST

START_TEST(test_set_releases_a_barrier) {
    say_number(&a, STORE_OP_BARRIER, "b", 2);
    set("b", "7");
    hear_byte(&a, STORE_STOP_WAITING);
}
END_TEST

/* ---- limits of memory and of unsent bytes ---- */

START_TEST(test_memory_limit) {
    set("k", "v");
    keys.memory_max = keys.memory + 1100;
    char big[901];
    memset(big, 'x', 900);
    big[900] = '\0';
    say_value(&a, STORE_OP_SET, "l", big);
    ck_assert_int_eq(a.error, 0);
    say_value(&a, STORE_OP_SET, "m", big);
    ck_assert_int_eq(a.error, -ENOSPC);
    ck_assert_str_eq(a.reason, "memory limit of the store reached");
    assert_num_keys(2);
    set("k", "w"); /* needs no more memory, so it succeeds */
    say_key(&b, STORE_OP_DELETE, "l");
    hear_number(&b, 1);
    say_value(&b, STORE_OP_APPEND, "k", big);
    ck_assert_int_eq(b.error, -ENOSPC);
}
END_TEST

START_TEST(test_memory_limit_holds_for_waits) {
    keys.memory_max = 2000;
    struct store_bytes names[64];
    char text[64][8];
    for (size_t i = 0; i < 64; i++) {
        (void) snprintf(text[i], sizeof(text[i]), "k%zu", i);
        names[i] = STORE_BYTES(text[i]);
    }
    send_request(&a, store_encode_keys(&encoder, STORE_OP_WAIT, names, 64));
    ck_assert_int_eq(a.error, -ENOSPC);
    peer_close(&a);
    peer_open(&a, &keys, &peer_limits);
    ck_assert_uint_eq(keys.memory, 0);
    for (int i = 0; i < 64 && b.error == 0; i++)
        say_value(&b, STORE_OP_QUEUE_PUSH, "q", "123456789");
    ck_assert_int_eq(b.error, -ENOSPC);
    ck_assert_uint_le(keys.memory, 2000);
}
END_TEST

START_TEST(test_a_wait_counts_all_its_memory) {
    struct store_bytes names[1000];
    for (size_t i = 0; i < 1000; i++) names[i] = STORE_BYTES("the same");
    send_request(&a, store_encode_keys(&encoder, STORE_OP_WAIT, names, 1000));
    ck_assert_uint_gt(keys.memory, 1000 * sizeof(struct store_registration));
    ck_assert_uint_eq(a.session.wait->missing, 1);
    say(&a, STORE_OP_CANCEL_WAIT);
    hear_byte(&a, STORE_WAIT_CANCELED);
    ck_assert_uint_eq(keys.memory, 0);
}
END_TEST

/* A client that watches keys and never reads is closed as soon as its unsent bytes exceed the
 * limit, even in the middle of another client's request. */
START_TEST(test_pushes_are_held_to_the_limits) {
    keys.reply_max = 1000;
    a.parser.dialect = STORE_DIALECT_LEGACY;
    for (int i = 0; i < 200; i++) peer_send(&a, "\x07\2\0\0\0\0\0\0\0/k", 11);
    ck_assert_uint_eq(a.session.out.pending, 200);
    say_value(&b, STORE_OP_SET, "k", "v");
    ck_assert_str_eq(a.session.lost, "it does not read its replies");
    ck_assert_uint_lt(a.session.out.pending, 1100);
    ck_assert_uint_gt(keys.pushed, 0);
    ck_assert_ptr_eq(store_keyspace_take_ready(&keys), &a.session);
    ck_assert_uint_eq(keys.pushed, 0);
}
END_TEST

/* Sends request number `which`. If the memory limit is a few bytes too low for the request, the key
 * space must refuse all of it and execute no part. */
static void say_one_that_needs_memory(int which) {
    static char large[200001];
    memset(large, 'x', sizeof(large) - 1);
    switch (which) {
    case 0: say_value(&a, STORE_OP_SET, "k", "some value or other"); break;
    case 1: say_value(&a, STORE_OP_SET, "k", large); break;
    case 2: say_number(&a, STORE_OP_ADD, "k", 1234567890); break;
    case 3: say_value(&a, STORE_OP_APPEND, "known", "some more of the same"); break;
    case 4: say_value(&a, STORE_OP_QUEUE_PUSH, "k", "job"); break;
    case 5: say_value(&a, STORE_OP_QUEUE_PUSH, "known", "job"); break;
    case 6: say_keys(&a, STORE_OP_WAIT, "k", "l"); break;
    case 7: say_number(&a, STORE_OP_BARRIER, "k", 2); break;
    case 8: compare_set(&a, "k", "", "some value or other"); break;
    default:
        a.parser.dialect = STORE_DIALECT_LEGACY;
        peer_send(&a, "\x07\1\0\0\0\0\0\0\0k", 10); /* WATCH */
    }
}

START_TEST(test_memory_limit_is_met_to_the_byte) {
    set("known", "v");
    size_t before = keys.memory, largest = 0, spare = _i == 1 ? 200000 : 0;
    for (bool refused = true; refused; spare++) {
        ck_assert_uint_lt(spare, 210000);
        keys.memory_max = before + spare;
        say_one_that_needs_memory(_i);
        ck_assert_uint_le(keys.memory, keys.memory_max);
        refused = a.error != 0;
        if (refused) ck_assert_int_eq(a.error, -ENOSPC);
        if (refused) ck_assert_uint_eq(keys.memory, before);
        if (refused) ck_assert_ptr_null(a.session.wait);
        largest = spare;
        peer_close(&a);
        peer_open(&a, &keys, &peer_limits);
        peer_send(&a, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
    }
    ck_assert_uint_gt(largest, 0);
}
END_TEST

/* ---- clearing a key space ---- */

static void clear(void) {
    teardown_peers();
    store_keyspace_clear(&keys, (const uint64_t[2]){3, 4});
    setup_peers();
}

/* Fills the key space with `count` keys, one of 100 with a large value, and with a queue of `count`
 * elements. */
static void fill(int count) {
    char key[32], *large = malloc(100001);
    memset(large, 'x', 100000);
    large[100000] = '\0';
    for (int i = 0; i < count; i++) {
        (void) snprintf(key, sizeof(key), "k%d", i);
        say_value(&a, STORE_OP_SET, key, i % 100 == 0 ? large : "small");
        say_value(&a, STORE_OP_QUEUE_PUSH, "q", "job");
    }
    free(large);
}

START_TEST(test_cleared_at_once_freed_in_pieces) {
    fill(20000);
    size_t all = keys.memory, count = 20000, pieces = 0;
    clear();
    ck_assert_uint_eq(keys.memory, all);
    assert_num_keys(0);
    assert_holds("k1", "");
    say_key(&c, STORE_OP_QUEUE_LEN, "q");
    hear_number(&c, 0);
    set("k1", "new");
    for (bool more = true; more; pieces++) {
        size_t before = keys.memory;
        more = store_keyspace_free_some(&keys);
        ck_assert_uint_le(keys.memory, before);
        /* no more than one piece was freed */
        ck_assert_uint_le(before - keys.memory, 256 * 200 + 10 * 110000);
        say_number(&b, STORE_OP_ADD, "n", 1);
        hear_number(&b, (int64_t) pieces + 1);
        if (pieces == 20) { /* clears a second time, before all memory is freed */
            teardown_peers();
            store_keyspace_clear(&keys, (const uint64_t[2]){5, 6});
            setup_peers();
            set("n", "21");
        }
    }
    ck_assert_uint_gt(pieces, 2 * count / 256);
    ck_assert(!store_keyspace_free_some(&keys));
    assert_num_keys(1);
    say_key(&c, STORE_OP_DELETE, "n");
    hear_number(&c, 1);
    ck_assert_uint_eq(keys.memory, 0);
}
END_TEST

/* A full key space can be filled again directly after clearing, although the cleared entries are
 * freed piece by piece, and its memory never exceeds the limit. */
START_TEST(test_what_was_cleared_is_in_nobodys_way) {
    fill(5000);
    keys.memory_max = keys.memory;
    for (int round = 0; round < 3; round++) {
        clear();
        char key[32];
        for (int i = 0; i < 20000; i++) {
            (void) snprintf(key, sizeof(key), "other%d", i);
            say_value(&a, STORE_OP_SET, key, "value");
            ck_assert_int_eq(a.error, 0);
            ck_assert_uint_le(keys.memory, keys.memory_max);
        }
        assert_num_keys(20000);
    }
}
END_TEST

START_TEST(test_reply_limit) {
    keys.reply_max = 64;
    set("k", "123456789012345678901234567890");
    say_keys(&a, STORE_OP_MULTI_GET, "k", "k");
    ck_assert_int_eq(a.error, -EMSGSIZE);
    ck_assert_str_eq(a.reason, "reply too long");
    say_value(&b, STORE_OP_APPEND, "k", "123456789012345678901234567890");
    ck_assert_int_eq(b.error, -EMSGSIZE);
    set("second key that is long", "v");
    set("third key that is long too", "v");
    say(&c, STORE_OP_LIST_KEYS);
    ck_assert_int_eq(c.error, -EMSGSIZE);
}
END_TEST

/* A key uses less than 200 bytes of memory in addition to the bytes of the key and of its value. */
START_TEST(test_overhead_of_a_key) {
    char key[32];
    size_t n = 100000;
    for (size_t i = 0; i < n; i++) {
        (void) snprintf(key, sizeof(key), "%zu", i);
        say_value(&c, STORE_OP_SET, key, "value");
    }
    size_t payload = keys.key_bytes + keys.value_bytes;
    ck_assert_uint_lt((keys.memory - payload) / n, 200);
    ck_assert_uint_le(keys.table.sizes[0], 2 * n);
}
END_TEST

/* The table needs a hash whose low bits are evenly spread and which depends on length and seed. */
START_TEST(test_hash_spreads) {
    const uint64_t seed[2] = {1, 2};
    size_t used[256] = {0};
    for (uint32_t i = 0; i < 256 * 64; i++) used[store_hash(seed, &i, sizeof(i)) & 255]++;
    for (int i = 0; i < 256; i++) ck_assert_uint_lt(used[i], 128);
    ck_assert(store_hash(seed, "", 0) != store_hash(seed, "\0", 1));
    ck_assert(store_hash(seed, "a", 1) != store_hash((const uint64_t[2]){2, 1}, "a", 1));
}
END_TEST

static void add_values(TCase *t) {
    tcase_add_test(t, test_any_bytes_are_a_key);
    tcase_add_test(t, test_absent_keys_are_empty_values);
    tcase_add_test(t, test_add_reads_text_as_strtoll);
    tcase_add_test(t, test_add_looks_at_so_much_text_only);
    tcase_add_loop_test(t, test_add_refuses_what_is_no_number, 0, 8);
    tcase_add_test(t, test_add_wraps_and_creates);
    tcase_add_test(t, test_compare_set);
    tcase_add_test(t, test_append_and_multi_set);
    tcase_add_test(t, test_multi_set_is_applied_whole);
    tcase_add_test(t, test_list_keys_counts_what_num_keys_counts);
    tcase_add_loop_test(t, test_a_long_list_in_pieces, 0, 3);
    tcase_add_test(t, test_big_values_are_shared_not_changed);
    tcase_add_test(t, test_locked_pages_of_a_lent_value_are_not_used_again);
    tcase_add_test(t, test_unsent_values_stay_counted);
    tcase_add_test(t, test_what_is_deleted_is_free);
}

static void add_waits(TCase *t) {
    tcase_add_test(t, test_check_and_wait_at_once);
    tcase_add_loop_test(t, test_wait_ends_with_the_last_key, 0, 7);
    tcase_add_test(t, test_wait_for_one_name_twice);
    tcase_add_test(t, test_a_key_seen_counts_though_deleted);
    tcase_add_test(t, test_a_refused_compare_set_wakes_nobody);
    tcase_add_test(t, test_cancel);
    tcase_add_test(t, test_other_requests_while_waiting);
    tcase_add_test(t, test_a_legacy_client_gives_up_by_going_on);
    tcase_add_test(t, test_leaving_leaves_nothing);
    tcase_add_test(t, test_queue_is_first_in_first_out);
    tcase_add_test(t, test_one_push_wakes_one_waiter);
    tcase_add_test(t, test_push_wakes_one_who_can_go);
    tcase_add_test(t, test_queues_are_not_keys);
    tcase_add_test(t, test_barrier);
    tcase_add_test(t, test_barrier_cancelled_stays_counted);
    tcase_add_test(t, test_barrier_arrival_wakes_no_waiter);
    tcase_add_test(t, test_set_releases_a_barrier);
}

static void add_limits(TCase *t) {
    tcase_add_test(t, test_memory_limit);
    tcase_add_test(t, test_memory_limit_holds_for_waits);
    tcase_add_test(t, test_a_wait_counts_all_its_memory);
    tcase_add_test(t, test_pushes_are_held_to_the_limits);
    tcase_add_loop_test(t, test_memory_limit_is_met_to_the_byte, 0, 10);
    tcase_add_test(t, test_cleared_at_once_freed_in_pieces);
    tcase_add_test(t, test_what_was_cleared_is_in_nobodys_way);
    tcase_add_test(t, test_reply_limit);
    tcase_add_test(t, test_overhead_of_a_key);
    tcase_add_test(t, test_hash_spreads);
}

int main(void) {
    Suite *suite = suite_create("store_keyspace");
    TCase *t = tcase_create("keyspace");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, test_golden_legacy, 1, 30);
    tcase_add_loop_test(t, test_golden_modern, 1, 30);
    add_values(t);
    add_waits(t);
    add_limits(t);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
