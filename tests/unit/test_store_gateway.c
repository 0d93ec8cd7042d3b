/* Tests store/gateway, both ends of a trunk: which requests of a node are sent to the store as one
 * request, that each request is carried out once although connections break, and what a hostile
 * other end can do. test_store_model.c compares random requests through gateways with a model. */
#include "tests/lib/run_suite.h"
#include "tests/lib/store_peer.h"
#include "tests/lib/store_trunk.h"

#include <check.h>
#include <errno.h>

#define MODERN STORE_VALIDATE_BYTES

static struct store_keyspace keys;
static struct trunk_ends trunk;

static void setup(void) {
    store_keyspace_init(&keys, (const uint64_t[2]){1, 2});
    trunk_open(&trunk, &keys, &peer_limits);
}

static void teardown(void) {
    trunk_close(&trunk);
    ck_assert_uint_eq(keys.wait_count, 0);
    store_keyspace_done(&keys);
}

static void settle(void) { trunks_settle(&keys, &trunk, 1); }

/* ---- workers ---- */

static struct store_gateway_worker *join(void) {
    const char *reason;
    struct store_gateway_worker *w = store_gateway_add(trunk.gateway, NULL);
    ck_assert_int_eq(store_gateway_from_worker(w, MODERN, STORE_VALIDATE_LEN, &reason), 0);
    return w;
}

static void say(struct store_gateway_worker *w, const struct cr_buffer *request) {
    const char *reason;
    ck_assert_int_eq(store_gateway_from_worker(w, request->data, request->len, &reason), 0);
}

#define SAY(w, encode)                                                                             \
    do {                                                                                           \
        struct cr_buffer bytes = {0};                                                              \
        struct store_encoder e = {&bytes, STORE_DIALECT_MODERN, STORE_BYTES("/")};                 \
        ck_assert_int_eq(encode, 0);                                                               \
        say(w, &bytes);                                                                            \
        cr_buffer_done(&bytes);                                                                    \
    } while (0)

static void wait_for(struct store_gateway_worker *w, const char *key) {
    struct store_bytes one = STORE_BYTES(key);
    SAY(w, store_encode_keys(&e, STORE_OP_WAIT, &one, 1));
}

static void set(struct store_gateway_worker *w, const char *key) {
    SAY(w, store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES(key), 0));
}

static void push(struct store_gateway_worker *w, const char *key) {
    SAY(w, store_encode_value_head(&e, STORE_OP_QUEUE_PUSH, STORE_BYTES(key), 0));
}

static void ask(struct store_gateway_worker *w, enum store_op op, const char *key) {
    SAY(w, store_encode_key(&e, op, STORE_BYTES(key)));
}

/* Returns how many bytes of replies the worker has got since the last call. */
static size_t got(struct store_gateway_worker *w) {
    struct cr_buffer *out = store_gateway_replies(w);
    size_t n = out->len;
    cr_buffer_clear(out);
    return n;
}

/* ---- waits ---- */

START_TEST(waits_of_a_node_become_one) {
    struct store_gateway_worker *w[8];
    for (int i = 0; i < 8; i++) wait_for(w[i] = join(), "k");
    settle();
    ck_assert_uint_eq(keys.wait_count, 1);
    set(join(), "k");
    settle();
    for (int i = 0; i < 8; i++) ck_assert_uint_eq(got(w[i]), 1);
    ck_assert_uint_eq(keys.wait_count, 0);
}
END_TEST

/* A reply that the store sent before a worker's WAIT must not end that WAIT, because the key may
 * have been deleted between the reply and the WAIT. */
START_TEST(a_later_wait_is_not_answered_by_an_earlier_end) {
    struct store_gateway_worker *first = join(), *later = join();
    wait_for(first, "k");
    settle();
    set(first, "k");
    /* the store ends the wait of `first`; its reply is under way to the gateway */
    (void) trunk_up(&trunk, SIZE_MAX);
    trunk_wake(&keys);
    ask(later, STORE_OP_DELETE, "k");
    wait_for(later, "k");
    settle();
    ck_assert_uint_eq(got(first), 1);
    ck_assert_uint_eq(got(later), 8); /* the reply to DELETE, and no end of the wait */
    set(first, "k");
    settle();
    ck_assert_uint_eq(got(later), 1);
}
END_TEST

START_TEST(an_element_of_a_queue_ends_one_wait) {
    struct store_gateway_worker *w[3], *other = join();
    for (int i = 0; i < 3; i++) wait_for(w[i] = join(), "q");
    /* when the reply to this GET arrives, the store has received the three WAITs before it */
    ask(other, STORE_OP_GET, "nothing");
    settle();
    for (int n = 1; n <= 3; n++) {
        push(other, "q");
        settle();
        size_t ended = 0;
        for (int i = 0; i < 3; i++) ended += got(w[i]);
        ck_assert_uint_eq(ended, 1);
    }
    ck_assert_uint_eq(keys.wait_count, 0);
}
END_TEST

/* A WAIT that comes while a queue has an element is answered at once, and does not join. */
START_TEST(a_wait_for_a_filled_queue_does_not_join) {
    struct store_gateway_worker *w[3], *other = join();
    for (int i = 0; i < 2; i++) wait_for(w[i] = join(), "q");
    ask(other, STORE_OP_GET, "nothing");
    settle();
    push(other, "q");
    settle();
    wait_for(w[2] = join(), "q");
    settle();
    ck_assert_uint_eq(got(w[2]), 1);
}
END_TEST

START_TEST(the_wait_ends_with_the_last_who_waits) {
    struct store_gateway_worker *a = join(), *b = join();
    wait_for(a, "k");
    wait_for(b, "k");
    settle();
    SAY(a, store_encode_plain(&e, STORE_OP_CANCEL_WAIT));
    settle();
    ck_assert_uint_eq(got(a), 1);
    ck_assert_uint_eq(keys.wait_count, 1);
    store_gateway_remove(b);
    settle();
    ck_assert_uint_eq(keys.wait_count, 0);
}
END_TEST

/* ---- workers that end, and requests that fail ---- */

START_TEST(a_worker_that_closed_its_side_gets_its_replies) {
    const char *reason;
    struct store_gateway_worker *w = join();
    ask(w, STORE_OP_GET, "k");
    wait_for(w, "never");
    store_gateway_half_closed(w);
    ck_assert(!store_gateway_is_over(w, &reason));
    settle();
    ck_assert_uint_eq(got(w), 8);
    ck_assert(store_gateway_is_over(w, &reason));
    ck_assert_ptr_null(reason);
}
END_TEST

/* A worker sends 60 requests for a value of 1 MiB at once, closes its sending side, and reads its
 * replies late. The gateway must never hold more than 40 MiB of replies for it, and in the end the
 * worker must have got all of them. */
START_TEST(a_worker_that_does_not_read_fills_no_memory) {
    enum { COUNT = 60, SIZE = 1 << 20 };
    const char *reason;
    struct store_gateway_worker *w = join(), *other = join();
    struct cr_buffer bytes = {0};
    struct store_encoder e = {&bytes, STORE_DIALECT_MODERN, STORE_BYTES("/")};
    ck_assert_int_eq(store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("k"), SIZE), 0);
    ck_assert_int_eq(cr_buffer_reserve(&bytes, SIZE), 0);
    memset(bytes.data + bytes.len, 'x', SIZE);
    bytes.len += SIZE;
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(store_encode_key(&e, STORE_OP_GET, STORE_BYTES("k")), 0);
    }
    say(w, &bytes);
    cr_buffer_done(&bytes);
    store_gateway_half_closed(w);
    size_t total = 0;
    for (int i = 0; i < COUNT && total < COUNT * (size_t) (SIZE + 8); i++) {
        settle();
        bool is_over = store_gateway_is_over(w, &reason);
        size_t n = got(w);
        ck_assert_uint_gt(n, 0);
        ck_assert_uint_le(n, (size_t) 40 << 20);
        total += n;
        ck_assert(is_over == (total == COUNT * (size_t) (SIZE + 8)));
        (void) store_gateway_go_on(w);
    }
    ck_assert_uint_eq(total, COUNT * (size_t) (SIZE + 8));
    ck_assert_ptr_null(reason);
    ask(other, STORE_OP_GET, "k");
    settle();
    ck_assert_uint_eq(got(other), SIZE + 8);
}
END_TEST

/* A MULTI_GET of no keys has an empty reply. Such requests must not count as unanswered: at a limit
 * of unanswered requests, the gateway takes no more of the worker. */
START_TEST(requests_with_empty_replies_do_not_add_up) {
    struct store_gateway_worker *w = join();
    for (int i = 0; i < 100; i++) {
        SAY(w, store_encode_keys(&e, STORE_OP_MULTI_GET, NULL, 0));
        settle();
    }
    ask(w, STORE_OP_GET, "k");
    settle();
    ck_assert_uint_eq(got(w), 8);
}
END_TEST

START_TEST(a_request_that_fails_ends_its_worker_only) {
    const char *reason;
    struct store_gateway_worker *bad = join(), *good = join();
    set(bad, "text"); /* an empty value is no number */
    SAY(bad, store_encode_number(&e, STORE_OP_ADD, STORE_BYTES("text"), 1));
    ask(good, STORE_OP_GET, "text");
    settle();
    ck_assert(store_gateway_is_over(bad, &reason));
    ck_assert_ptr_nonnull(reason);
    ck_assert(!store_gateway_is_over(good, &reason));
    ck_assert_uint_eq(got(good), 8);
}
END_TEST

/* The gateway refuses a request that it had kept because of a limit. The owner does not know this
 * yet, and passes further bytes of this worker. No request may be sent twice. */
START_TEST(bytes_after_a_refused_request_are_ignored) {
    const char *reason;
    struct store_gateway_worker *bad = join(), *good = join();
    for (int i = 0; i < 16; i++) ask(bad, STORE_OP_DELETE, "k");
    set(bad, "k");
    const size_t too_long = peer_limits.value_max + 1;
    SAY(bad, store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES("k"), too_long));
    settle();
    while (store_gateway_take_ready(trunk.gateway) != NULL) continue;
    (void) store_gateway_go_on(bad);
    ck_assert(store_gateway_is_over(bad, &reason));
    settle();
    uint64_t before = trunk.operations;
    set(bad, "k");
    ask(good, STORE_OP_DELETE, "other");
    settle();
    ck_assert_uint_eq(trunk.operations, before + 1);
    ck_assert_uint_eq(got(good), 8);
}
END_TEST

START_TEST(a_program_that_is_no_client_is_refused) {
    const char *reason;
    struct store_gateway_worker *w = store_gateway_add(trunk.gateway, NULL);
    ck_assert_int_eq(store_gateway_from_worker(w, "GET / HTTP/1.1\r\n", 16, &reason), -EPROTO);
}
END_TEST

/* ---- lost connections ---- */

/* Breaks the connection after each number of bytes from 0 to 59, in both directions. Each ADD must
 * be carried out once. */
START_TEST(each_request_is_carried_out_once) {
    for (size_t cut = 0; cut < 120; cut++) {
        char key[16];
        (void) snprintf(key, sizeof(key), "n%zu", cut);
        struct store_gateway_worker *w = join();
        SAY(w, store_encode_number(&e, STORE_OP_ADD, STORE_BYTES(key), 1));
        (void) trunk_up(&trunk, cut % 60);
        (void) trunk_down(&trunk, cut / 2);
        trunk_break(&trunk);
        settle();
        struct cr_buffer *out = store_gateway_replies(w);
        ck_assert_uint_eq(out->len, 8);
        ck_assert_uint_eq(store_load_u64(out->data), 1);
        store_gateway_remove(w);
    }
}
END_TEST

START_TEST(a_store_that_lost_bytes_is_refused) {
    struct store_gateway_worker *w = join();
    ask(w, STORE_OP_GET, "k");
    settle();
    ck_assert_int_eq(store_gateway_connected(trunk.gateway, 0), -EPROTO);
    ck_assert_int_eq(store_gateway_connected(trunk.gateway, 1 << 20), -EPROTO);
    trunk_break(&trunk);
}
END_TEST

START_TEST(a_dead_connection_is_noticed) {
    ck_assert(store_gateway_ping(trunk.gateway));
    ck_assert(!store_gateway_ping(trunk.gateway));
    settle();
    ck_assert(store_gateway_ping(trunk.gateway));
}
END_TEST

/* A PING that follows another request shows that the store has carried out that request, so the
 * gateway must not answer it. */
START_TEST(the_gateway_answers_the_first_ping_only) {
    struct store_gateway_worker *w = join();
    SAY(w, store_encode_ping(e.out, 7));
    ck_assert_ptr_eq(store_gateway_take_ready(trunk.gateway), w);
    ck_assert_uint_eq(store_load_u32(store_gateway_replies(w)->data), 7);
    ck_assert_uint_eq(got(w), 4);
    ck_assert_uint_eq(store_gateway_to_store(trunk.gateway)->len, 0);
    set(w, "k");
    SAY(w, store_encode_ping(e.out, 8));
    ck_assert_uint_eq(got(w), 0);
    settle();
    ck_assert_uint_eq(store_load_u32(store_gateway_replies(w)->data), 8);
    ck_assert_uint_eq(got(w), 4);
}
END_TEST

/* ---- a hostile gateway ---- */

/* Sends one frame, in one segment, to a new gate. Returns what the gate returns. */
static int send_frame(const void *frame, size_t len) {
    uint64_t operations = 0;
    uint8_t header[12] = {0};
    struct store_gate *gate = store_gate_new(&keys, &peer_limits, &operations);
    store_put_u32(header, (uint32_t) len);
    int rc = store_gate_receive(gate, header, sizeof(header), 0);
    if (rc == 0) rc = store_gate_receive(gate, frame, len, 0);
    store_gate_free(gate);
    return rc;
}

START_TEST(a_gate_refuses_what_no_gateway_sends) {
    static const struct {
        size_t len;
        const char *frame;
        int rc;
    } cases[] = {
        {9, "\1\0\0\0\x03\0\0\0\0", 0},                /* the end of an unknown wait */
        {10, "\1\0\0\0\x03\1\0\0\0x", -EPROTO},        /* an end with bytes */
        {9, "\1\0\0\0\x00\0\0\0\0", -EPROTO},          /* an unknown kind */
        {9, "\1\0\0\0\x01\0\0\0\0", -EPROTO},          /* no request */
        {11, "\1\0\0\0\x01\2\0\0\0\7\7", -EPROTO},     /* two requests */
        {10, "\1\0\0\0\x01\1\0\0\0\7", 0},             /* NUM_KEYS */
        {18, "\1\0\0\0\x01\x09\0\0\0\6\0\0\0\0\0\0\0\0", -EPROTO}, /* WAIT without a session */
        {9, "\1\0\0\0\x01\xff\xff\xff\xff", -EMSGSIZE}, /* a giant */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(send_frame(cases[i].frame, cases[i].len) == cases[i].rc, "case %zu", i);
    }
    uint8_t ack[12] = {0, 0, 0, 0, 1}; /* acknowledges what was not sent */
    ck_assert_int_eq(store_gate_receive(trunk.gate, ack, sizeof(ack), 0), -EPROTO);
}
END_TEST

START_TEST(hello_is_what_was_written) {
    struct store_gateway_hello h = {"0123456789abcde", 7, 8, 9}, back;
    uint8_t bytes[STORE_GATEWAY_HELLO];
    store_gateway_write_hello(&h, bytes);
    ck_assert_int_eq(store_gateway_read_hello(bytes, &back), 0);
    ck_assert_mem_eq(h.id, back.id, sizeof(h.id));
    ck_assert(back.incarnation == 7 && back.round == 8 && back.received == 9);
    bytes[3] ^= 1;
    ck_assert_int_eq(store_gateway_read_hello(bytes, &back), -EPROTO);
}
END_TEST

int main(void) {
    Suite *s = suite_create("store_gateway");
    TCase *t = tcase_create("gateway");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, waits_of_a_node_become_one);
    tcase_add_test(t, requests_with_empty_replies_do_not_add_up);
    tcase_add_test(t, a_later_wait_is_not_answered_by_an_earlier_end);
    tcase_add_test(t, an_element_of_a_queue_ends_one_wait);
    tcase_add_test(t, a_wait_for_a_filled_queue_does_not_join);
    tcase_add_test(t, the_wait_ends_with_the_last_who_waits);
    tcase_add_test(t, a_worker_that_closed_its_side_gets_its_replies);
    tcase_add_test(t, a_worker_that_does_not_read_fills_no_memory);
    tcase_add_test(t, a_request_that_fails_ends_its_worker_only);
    tcase_add_test(t, bytes_after_a_refused_request_are_ignored);
    tcase_add_test(t, a_program_that_is_no_client_is_refused);
    tcase_add_test(t, each_request_is_carried_out_once);
    tcase_add_test(t, a_store_that_lost_bytes_is_refused);
    tcase_add_test(t, a_dead_connection_is_noticed);
    tcase_add_test(t, the_gateway_answers_the_first_ping_only);
    tcase_add_test(t, a_gate_refuses_what_no_gateway_sends);
    tcase_add_test(t, hello_is_what_was_written);
    suite_add_tcase(s, t);
    return run_suite(s);
}
