/* Tests the store's blocking client against servers that follow a script
 * (tests/lib/store_script.h): each byte that the client sends, and what it returns for answers that
 * are split, wrong, late, cut off or too long. */
#include "base/cleanup.h"
#include "base/time/clock.h"
#include "store/client/tcp_client_internal.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/store_script.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LONG_MS 30000

/* ---- the client under test ---- */

/* Makes a client on one end of a socket pair; a scripted server has the other end. */
static struct store_client *client_with(struct peer *p, enum store_handshake how,
                                        const char *const *script) {
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct store_client *c = calloc(1, sizeof(*c));
    ck_assert_ptr_nonnull(c);
    c->store.ops = &store_client_ops;
    c->socket.fd = pair[0];
    c->handshake = how;
    for (int i = 0; i < STORE_OP_COUNT; i++) c->known[i] = 1;
    strcpy(c->socket.peer, "peer:1");
    *p = (struct peer){.fd = pair[1], .script = script};
    ck_assert_int_eq(pthread_create(&p->thread, NULL, peer_play, p), 0);
    return c;
}

static void finish(struct peer *p, struct store_client *c) {
    store_client_close(c);
    ck_assert_int_eq(pthread_join(p->thread, NULL), 0);
    ck_assert_msg(p->wrong[0] == '\0', "the peer %s", p->wrong);
}

#define B(text) STORE_BYTES(text)

static struct cr_error err;

static int compare_set(struct store *s, const char *key, const char *expected, const char *desired,
                       void **value, size_t *len) {
    struct store_swap swap = {B(key), B(expected), B(desired)};
    return store_compare_set(s, &swap, LONG_MS, value, len, &err);
}

/* ---- modern requests and replies; "golden M03" is line M03 of tests/golden/store_modern.txt
 * ---- */

START_TEST(test_modern_set_get) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING,
        SCRIPT("> 01 0200000000000000 2f6b 0200000000000000 7631",       /* SET: golden M03 */
               /* WAIT before GET: golden M05 */
               "> 06 0100000000000000 0200000000000000 2f6b", "< 00",
               "> 03 0200000000000000 2f6b", "<1 0200000000000000 7631", /* GET: golden M06 */
               "> 01 0100000000000000 2f 0000000000000000",              /* SET: golden M04 */
               "> 06 0100000000000000 0100000000000000 2f", "< 00", "> 03 0100000000000000 2f",
               "<1 0000000000000000"));
    struct store *s = store_client_store(c);
    void *value = NULL;
    size_t len = 9;
    ck_assert_int_eq(store_set(s, B("k"), B("v1"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_get(s, B("k"), LONG_MS, &value, &len, &err), 0);
    ck_assert_uint_eq(len, 2);
    ck_assert_str_eq(value, "v1"); /* the client adds a NUL behind the value */
    free(value);
    ck_assert_int_eq(store_set(s, B(""), B(""), LONG_MS, &err), 0);
    ck_assert_int_eq(store_get(s, B(""), LONG_MS, &value, &len, &err), 0);
    ck_assert_uint_eq(len, 0);
    ck_assert_str_eq(value, "");
    free(value);
    finish(&p, c);
}
END_TEST

START_TEST(test_modern_numbers) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING,
        /* ADD: golden M07 */
        SCRIPT("> 04 0500000000000000 696e69742f 0100000000000000", "< 0100000000000000",
               /* ADD: golden M09 */
               "> 04 0400000000000000 2f637472 f9ffffffffffffff", "<1 feffffffffffffff",
               /* GETNUMKEYS: golden M15 */
               "> 07", "< 0400000000000000",
               /* DELETE: golden M16 */
               "> 08 0200000000000000 2f6b", "< 0100000000000000",
               "> 08 0200000000000000 2f6b", "< 0000000000000000", "> 10 0200000000000000 2f71",
               "< 0100000000000000")); /* QUEUE_LEN: golden M21 */
    struct store *s = store_client_store(c);
    int64_t n = 0;
    int deleted = 7;
    ck_assert_int_eq(store_client_add_raw(c, B("init/"), 1, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(store_add(s, B("ctr"), -7, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, -2);
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(store_delete(s, B("k"), LONG_MS, &deleted, &err), 0);
    ck_assert_int_eq(deleted, 1);
    ck_assert_int_eq(store_delete(s, B("k"), LONG_MS, &deleted, &err), 0);
    ck_assert_int_eq(deleted, 0);
    ck_assert_int_eq(store_queue_len(s, B("q"), LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, 1);
    finish(&p, c);
}
END_TEST

START_TEST(test_modern_compare_set) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING,
        SCRIPT("> 02 0300000000000000 2f6373 0000000000000000 0100000000000000 61",
               "< 0100000000000000 61", /* COMPARE_SET: golden M10 */
               "> 02 0600000000000000 2f6e6f6b6579 0300000000000000 657870 0300000000000000 646573",
               "<1 0300000000000000 657870")); /* COMPARE_SET: golden M11 */
    struct store *s = store_client_store(c);
    void *value;
    size_t len;
    ck_assert_int_eq(compare_set(s, "cs", "", "a", &value, &len), 0);
    ck_assert_str_eq(value, "a");
    free(value);
    ck_assert_int_eq(compare_set(s, "nokey", "exp", "des", &value, &len), 0);
    ck_assert_str_eq(value, "exp");
    free(value);
    finish(&p, c);
}
END_TEST

START_TEST(test_modern_lists) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING,
        SCRIPT("> 05 0200000000000000 0200000000000000 2f6b 0500000000000000 2f6e6f7065",
               "< 01", /* CHECK: golden M13 */
               "> 05 0000000000000000", "< 00",
               "> 06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62", "< 00",
               /* MULTI_GET: golden M18 */
               "> 0a 0200000000000000 0200000000000000 2f61 0200000000000000 2f62",
               "<1 0100000000000000 31 0200000000000000 3232",
               "> 0b 0200000000000000 0200000000000000 2f61 0100000000000000 31"
               "  0200000000000000 2f62 0200000000000000 3232", /* MULTI_SET: golden M19 */
               "> 11",
               "<1 0300000000000000 0500000000000000 696e69742f"
               /* LIST_KEYS: golden M24, and an empty key */
               "  0200000000000000 2f6b 0100000000000000 2f"));
    struct store *s = store_client_store(c);
    struct store_bytes keys[] = {B("a"), B("b")}, values[] = {B("1"), B("22")};
    int present = 7;
    ck_assert_int_eq(
        store_check(s, (struct store_bytes[]){B("k"), B("nope")}, 2, LONG_MS, &present, &err), 0);
    ck_assert_int_eq(present, 0);
    ck_assert_int_eq(store_check(s, NULL, 0, LONG_MS, &present, &err), 0);
    ck_assert_int_eq(present, 1);
    struct store_list list;
    ck_assert_int_eq(store_multi_get(s, keys, 2, LONG_MS, &list, &err), 0);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.items[0].data, "1");
    ck_assert_str_eq(list.items[1].data, "22");
    store_list_done(&list);
    ck_assert_int_eq(store_multi_set(s, keys, values, 2, LONG_MS, &err), 0);
    ck_assert_int_eq(store_list_keys(s, LONG_MS, &list, &err), 0);
    ck_assert_uint_eq(list.count, 2); /* the key init/ of the store itself is left out */
    ck_assert_str_eq(list.items[0].data, "k");
    ck_assert_str_eq(list.items[1].data, "");
    store_list_done(&list);
    finish(&p, c);
}
END_TEST

START_TEST(test_modern_queue_and_barrier) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING,
        SCRIPT("> 09 0200000000000000 2f6b 0200000000000000 7879",   /* APPEND: golden M17 */
               "> 0e 0200000000000000 2f71 0300000000000000 6a6f62", /* QUEUE_PUSH: golden M20 */
               "> 0f 0200000000000000 2f71", "< 0000000000000000",   /* QUEUE_POP: golden M23 */
               "> 06 0100000000000000 0200000000000000 2f71", "< 00", "> 0f 0200000000000000 2f71",
               "<1 0100000000000000 0300000000000000 6a6f62", /* QUEUE_POP: golden M22 */
               "> 0f 0200000000000000 2f71", "< 0000000000000000",
               "> 12 0300000000000000 2f6231 0200000000000000", "< 00")); /* BARRIER: golden M25 */
    struct store *s = store_client_store(c);
    void *value = NULL;
    size_t len;
    ck_assert_int_eq(store_append(s, B("k"), B("xy"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_queue_push(s, B("q"), B("job"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_queue_pop(s, B("q"), LONG_MS, &value, &len, &err), 0);
    ck_assert_str_eq(value, "job");
    free(value);
    ck_assert_int_eq(store_queue_pop(s, B("q"), 0, &value, &len, &err), -ENOENT);
    ck_assert_str_eq(err.text, "queue_pop 'q': the queue is empty");
    ck_assert_int_eq(store_barrier(s, B("b1"), 2, LONG_MS, &err), 0);
    finish(&p, c);
}
END_TEST

/* ---- legacy requests; "golden L02" is line L02 of tests/golden/store_legacy.txt ---- */

START_TEST(test_legacy_numbers) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_LEGACY,
        SCRIPT("> 00 0200000000000000 2f6b 0200000000000000 7631",       /* SET: golden L02 */
               /* CHECK: the key exists, so no WAIT follows */
               "> 04 0100000000000000 0200000000000000 2f6b", "< 00",
               "> 02 0200000000000000 2f6b", "<1 0200000000000000 7631", /* GET: golden L04 */
               /* ADD: golden L07 */
               "> 03 0400000000000000 2f637472 0500000000000000", "< 0500000000000000",
               "> 01 0300000000000000 2f6373 0000000000000000 0100000000000000 61",
               "< 0100000000000000 61", /* COMPARE_SET: golden L11 */
               "> 04 0100000000000000 0200000000000000 2f77", "< 01",
               "> 05 0100000000000000 0200000000000000 2f77", "< 00", "> 06",
               "< 0000000000000000",                                 /* GETNUMKEYS: golden L01 */
               "> 08 0200000000000000 2f6b", "< 0100000000000000")); /* DELETE: golden L17 */
    struct store *s = store_client_store(c);
    struct store_bytes w = B("w");
    void *value;
    size_t len;
    int64_t n;
    int deleted;
    ck_assert_int_eq(store_set(s, B("k"), B("v1"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_get(s, B("k"), LONG_MS, &value, &len, &err), 0);
    ck_assert_str_eq(value, "v1");
    free(value);
    ck_assert_int_eq(store_add(s, B("ctr"), 5, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(compare_set(s, "cs", "", "a", &value, &len), 0);
    free(value);
    ck_assert_int_eq(store_wait(s, &w, 1, LONG_MS, &err), 0);
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(store_delete(s, B("k"), LONG_MS, &deleted, &err), 0);
    finish(&p, c);
}
END_TEST

/* An old server has neither append nor queues. The client makes append from compare_set, and
 * refuses queue operations with -ENOTSUP. Here the client appends "y" to a key that holds "y".
 * While it does so, another client changes the key to "x". The first compare_set only reads the
 * key. */
START_TEST(test_legacy_lacks) {
    struct peer p;
    struct store_client *c =
        client_with(&p, STORE_SHAKE_LEGACY,
                    SCRIPT("> 01 0200000000000000 2f6b 0200000000000000 793f 0200000000000000 793f",
                           "< 0100000000000000 79",
                           "> 01 0200000000000000 2f6b 0100000000000000 79 0200000000000000 7979",
                           "< 0100000000000000 78",
                           "> 01 0200000000000000 2f6b 0100000000000000 78 0200000000000000 7879",
                           "< 0200000000000000 7879"));
    struct store *s = store_client_store(c);
    ck_assert_int_eq(store_append(s, B("k"), B("y"), LONG_MS, &err), 0);
    ck_assert_int_eq(store_queue_push(s, B("q"), B("job"), LONG_MS, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "queue_push 'q': the store's server does not have this operation");
    finish(&p, c);
}
END_TEST

/* If the key is missing, the server replies to compare_set with the expected value of the request,
 * here "y?". From this reply to its first request the client concludes that the key has no value,
 * so its second request expects an empty value. */
START_TEST(test_legacy_appends_to_a_missing_key) {
    struct peer p;
    struct store_client *c =
        client_with(&p, STORE_SHAKE_LEGACY,
                    SCRIPT("> 01 0200000000000000 2f6b 0200000000000000 793f 0200000000000000 793f",
                           "< 0200000000000000 793f",
                           "> 01 0200000000000000 2f6b 0000000000000000 0100000000000000 79",
                           "< 0100000000000000 79"));
    ck_assert_int_eq(store_append(store_client_store(c), B("k"), B("y"), LONG_MS, &err), 0);
    finish(&p, c);
}
END_TEST

/* ---- time limits ---- */

static void wait_times_out(const char *const *script) {
    struct peer p;
    struct store_client *c = client_with(&p, STORE_SHAKE_PING, script);
    struct store *s = store_client_store(c);
    struct store_bytes keys[] = {B("gone"), B("k\n")};
    int64_t n = 0;
    ck_assert_int_eq(store_wait(s, keys, 1, 50, &err), -ETIMEDOUT);
    ck_assert_str_eq(err.text, "wait for 'gone' at store peer:1: timed out after 50 ms");
    /* the connection can still be used */
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &n, &err), 0);
    ck_assert_int_eq(n, 4);
    finish(&p, c);
}

#define WAIT_GONE "> 06 0100000000000000 0500000000000000 2f676f6e65" /* golden M14 */

START_TEST(test_wait_cancelled) {
    wait_times_out(SCRIPT(WAIT_GONE, "> 0c", "< 01", "> 07", "< 0400000000000000"));
}
END_TEST

START_TEST(test_wait_cancelled_too_late) {
    wait_times_out(SCRIPT(WAIT_GONE, "> 0c", "<1 0001", "> 07", "< 0400000000000000"));
}
END_TEST

START_TEST(test_cancel_answered_wrongly) {
    struct peer p;
    struct store_client *c = client_with(&p, STORE_SHAKE_PING, SCRIPT(WAIT_GONE, "> 0c", "< 05"));
    struct store_bytes gone = B("gone");
    int64_t n;
    ck_assert_int_eq(store_wait(store_client_store(c), &gone, 1, 50, &err), -EPROTO);
    ck_assert_int_eq(store_num_keys(store_client_store(c), LONG_MS, &n, &err), -EPROTO);
    finish(&p, c);
}
END_TEST

/* With a timeout of 0, the client checks once, by CHECK, whether the key exists, and never
 * waits. */
START_TEST(test_no_time_looks_once) {
    struct peer p;
    struct store_client *c =
        client_with(&p, STORE_SHAKE_PING,
                    SCRIPT("> 05 0100000000000000 0200000000000000 2f6b", "< 01",
                           "> 05 0100000000000000 0200000000000000 2f6b", "< 00",
                           "> 03 0200000000000000 2f6b", "< 0100000000000000 31"));
    struct store *s = store_client_store(c);
    struct store_bytes k = B("k");
    void *value;
    size_t len;
    ck_assert_int_eq(store_wait(s, &k, 1, 0, &err), -ETIMEDOUT);
    ck_assert_int_eq(store_get(s, k, 0, &value, &len, &err), 0);
    ck_assert_str_eq(value, "1");
    free(value);
    finish(&p, c);
}
END_TEST

START_TEST(test_late_reply_breaks) {
    struct peer p;
    struct store_client *c = client_with(
        &p, STORE_SHAKE_PING, SCRIPT("> 04 0200000000000000 2f63 0100000000000000", "> 00"));
    int64_t n = 0;
    ck_assert_int_eq(store_add(store_client_store(c), B("c"), 1, 50, &n, &err), -ETIMEDOUT);
    ck_assert_str_eq(err.text, "add 'c' at store peer:1: timed out after 50 ms");
    ck_assert_int_eq(store_num_keys(store_client_store(c), LONG_MS, &n, &err), -ETIMEDOUT);
    ck_assert_str_eq(err.text, "num_keys at store peer:1: the connection was lost before: add 'c' "
                               "at store peer:1: timed out after 50 ms");
    store_client_close(c);
    /* p.wrong is not checked: the server has not played its script to the end */
    ck_assert_int_eq(pthread_join(p.thread, NULL), 0);
}
END_TEST

/* ---- wrong answers ---- */

static void get_fails(const char *const *script, int code, const char *text) {
    struct peer p;
    struct store_client *c = client_with(&p, STORE_SHAKE_PING, script);
    struct store *s = store_client_store(c);
    void *value = NULL;
    size_t len = 0;
    int64_t n;
    ck_assert_int_eq(store_get(s, B("k\n"), LONG_MS, &value, &len, &err), code);
    ck_assert_str_eq(err.text, text);
    ck_assert_ptr_null(value);
    /* each later call fails with the same error */
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &n, &err), code);
    finish(&p, c);
}

#define WAIT_K "> 06 0100000000000000 0300000000000000 2f6b0a"
#define GET_K  "> 03 0300000000000000 2f6b0a"

START_TEST(test_unexpected_byte) {
    get_fails(SCRIPT(WAIT_K, "< 07"), -EPROTO,
              "wait for 'k\\x0a' at store peer:1: unexpected byte in reply");
}
END_TEST

START_TEST(test_reply_too_long) {
    get_fails(SCRIPT(WAIT_K, "< 00", GET_K, "< ffffffffffffff7f 00"), -EMSGSIZE,
              "get 'k\\x0a' at store peer:1: reply too long");
    get_fails(SCRIPT(WAIT_K, "< 00", GET_K, "< ffffffffffffffff"), -EMSGSIZE,
              "get 'k\\x0a' at store peer:1: reply too long");
}
END_TEST

START_TEST(test_reply_with_more) {
    get_fails(SCRIPT(WAIT_K, "< 00", GET_K, "< 0100000000000000 3131"), -EPROTO,
              "get 'k\\x0a' at store peer:1: more bytes than the reply has");
}
END_TEST

START_TEST(test_reply_cut_off) {
    get_fails(SCRIPT(WAIT_K, "< 00", GET_K, "< 0500000000000000 3131", "x"), -ECONNRESET,
              "get 'k\\x0a' at store peer:1: the server closed the connection");
    get_fails(SCRIPT(WAIT_K, "x"), -ECONNRESET,
              "wait for 'k\\x0a' at store peer:1: the server closed the connection");
}
END_TEST

/* A SET has no reply, so a client detects a dead server only in the next call that has a reply. The
 * SET to the dead server must not raise SIGPIPE, which would end the process. */
START_TEST(test_dead_server_found_without_signal) {
    (void) signal(SIGPIPE, SIG_DFL);
    struct peer p;
    struct store_client *c = client_with(&p, STORE_SHAKE_PING, SCRIPT("x"));
    struct store *s = store_client_store(c);
    ck_assert_int_eq(pthread_join(p.thread, NULL), 0);
    int64_t n;
    (void) store_set(s, B("k"), B("v"), LONG_MS, NULL);
    ck_assert_int_lt(store_num_keys(s, LONG_MS, &n, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "at store peer:1"));
    store_client_close(c);
}
END_TEST

/* A request over a limit would make the server close the connection. The client refuses it without
 * sending anything, so the connection can still be used. */
START_TEST(test_over_limit_is_refused) {
    struct peer p;
    struct store_client *c =
        client_with(&p, STORE_SHAKE_PING, SCRIPT("> 07", "< 0100000000000000"));
    struct store *s = store_client_store(c);
    CR_AUTO_FREE char *long_key = calloc(1, STORE_KEY_MAX + 2);
    memset(long_key, 'x', STORE_KEY_MAX + 1);
    int64_t n = 0;
    ck_assert_int_eq(store_set(s, B(long_key), B("v"), LONG_MS, &err), -EMSGSIZE);
    ck_assert_ptr_nonnull(strstr(err.text, "a key is longer than 65536"));
    ck_assert_int_eq(
        store_set(s, B("k"), (struct store_bytes){"", STORE_VALUE_MAX + 1}, LONG_MS, &err),
        -EMSGSIZE);
    ck_assert_str_eq(err.text, "set 'k': the value is longer than 67108864");
    struct store_bytes keys[5], values[5]; /* the sum of the lengths exceeds the limit of one
                                            * request */
    for (int i = 0; i < 5; i++) keys[i] = B("k"), values[i] = (struct store_bytes){"", 60 << 20};
    ck_assert_int_eq(store_multi_set(s, keys, values, 5, LONG_MS, &err), -EMSGSIZE);
    ck_assert_str_eq(err.text,
                     "multi_set 'k', 'k', 'k' and 2 more: the request is longer than 268435456");
    ck_assert_int_eq(store_num_keys(s, LONG_MS, &n, &err), 0);
    finish(&p, c);
}
END_TEST

/* ---- connecting ---- */

static void connects(const char *const *const *scripts, enum store_protocol protocol,
                     const char *found) {
    struct listener l;
    struct store_client *c = NULL;
    serve(&l, scripts);
    int rc = store_client_connect("127.0.0.1", l.port, protocol, LONG_MS, &c, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_str_eq(store_client_protocol(c), found);
    end_serving(&l);
    store_client_close(c);
}

START_TEST(test_connect_modern) {
    char want[64], echo[64];
    connects(SCRIPTS(SCRIPT(with_nonce(want, "> " VALIDATE " 0d"), with_nonce(echo, "<1"))),
             STORE_PROTOCOL_MODERN, "modern");
}
END_TEST

/* When a server's listen queue overflows, the client's connection is reset during the handshake.
 * The client must connect again and not return an error. */
START_TEST(test_connect_retries_reset) {
    char want[64], echo[64];
    connects(SCRIPTS(SCRIPT("x!"), SCRIPT("> 00 cef7853c 0d", "x!"),
                     SCRIPT(with_nonce(want, "> " VALIDATE " 0d"), with_nonce(echo, "<"))),
             STORE_PROTOCOL_MODERN, "modern");
}
END_TEST

START_TEST(test_probe_finds_no_ping) {
    connects(SCRIPTS(SCRIPT("> " VALIDATE " 0d", "x"), SCRIPT(NOPING_ANSWER)), STORE_PROTOCOL_PROBE,
             "modern without ping");
}
END_TEST

/* An old server sends no answer to VALIDATE and PING, and closes the connection on CANCEL_WAIT. */
START_TEST(test_probe_finds_legacy) {
    connects(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "x"), SCRIPT(LEGACY_ANSWER)),
             STORE_PROTOCOL_PROBE, "legacy");
}
END_TEST

/* The server answers CANCEL_WAIT with the byte 07, which no known server sends. The probe must then
 * start again, on a new connection. */
START_TEST(test_probe_refuses_nonsense) {
    char want[64], echo[64];
    connects(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "< 07"),
                     SCRIPT(with_nonce(want, "> " VALIDATE " 0d"), with_nonce(echo, "<"))),
             STORE_PROTOCOL_PROBE, "modern");
}
END_TEST

/* A modern server that also speaks legacy may be too busy to answer PING in time. Its answer to
 * CANCEL_WAIT shows that it is modern, so the client must not use the legacy protocol. */
START_TEST(test_probe_is_patient_with_ours) {
    char want[64], echo[64];
    connects(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "< 01"),
                     SCRIPT(with_nonce(want, "> " VALIDATE " 0d"), with_nonce(echo, "<"))),
             STORE_PROTOCOL_PROBE, "modern");
}
END_TEST

static void *listen_later(void *arg) {
    struct listener *l = arg;
    /* 150 ms, in which the client's connections are refused because the port does not listen yet */
    struct timespec t = {0, 150 * 1000000};
    (void) nanosleep(&t, NULL);
    if (listen(l->fd, 8) < 0) return NULL;
    return listener_accept_all(l);
}

START_TEST(test_connect_retries_refused) {
    char want[64], echo[64];
    const char *const *one = SCRIPT(with_nonce(want, "> " VALIDATE " 0d"), with_nonce(echo, "<"));
    const char *const *const all[] = {one, NULL};
    struct listener l = {.scripts = all};
    struct store_client *c = NULL;
    listener_bind(&l);
    ck_assert_int_eq(pthread_create(&l.thread, NULL, listen_later, &l), 0);
    ck_assert_int_eq(
        store_client_connect("127.0.0.1", l.port, STORE_PROTOCOL_MODERN, LONG_MS, &c, &err), 0);
    end_serving(&l);
    store_client_close(c);
}
END_TEST

START_TEST(test_connect_gives_up) {
    struct listener l = {0};
    struct store_client *c = NULL;
    char text[256];
    listener_bind(&l); /* not listening yet, so connections are refused */
    int64_t start = cr_monotonic_ms();
    int rc = store_client_connect("127.0.0.1", l.port, STORE_PROTOCOL_PROBE, 1000, &c, &err);
    ck_assert_int_eq(rc, -ETIMEDOUT);
    ck_assert_int_ge(cr_monotonic_ms() - start, 999);
    (void) snprintf(text, sizeof(text),
                    "connect to the store at 127.0.0.1:%u: timed out after 1000 ms "
                    "(Connection refused); is it running there?",
                    l.port);
    ck_assert_str_eq(err.text, text);
    (void) close(l.fd);
}
END_TEST

int main(void) {
    TCase *wire = tcase_create("wire"), *trouble = tcase_create("trouble");
    TCase *connecting = tcase_create("connecting");
    tcase_add_test(wire, test_modern_set_get);
    tcase_add_test(wire, test_modern_numbers);
    tcase_add_test(wire, test_modern_compare_set);
    tcase_add_test(wire, test_modern_lists);
    tcase_add_test(wire, test_modern_queue_and_barrier);
    tcase_add_test(wire, test_legacy_numbers);
    tcase_add_test(wire, test_legacy_lacks);
    tcase_add_test(wire, test_legacy_appends_to_a_missing_key);
    tcase_add_test(trouble, test_wait_cancelled);
    tcase_add_test(trouble, test_wait_cancelled_too_late);
    tcase_add_test(trouble, test_cancel_answered_wrongly);
    tcase_add_test(trouble, test_no_time_looks_once);
    tcase_add_test(trouble, test_late_reply_breaks);
    tcase_add_test(trouble, test_unexpected_byte);
    tcase_add_test(trouble, test_reply_too_long);
    tcase_add_test(trouble, test_reply_with_more);
    tcase_add_test(trouble, test_reply_cut_off);
    tcase_add_test(trouble, test_dead_server_found_without_signal);
    tcase_add_test(trouble, test_over_limit_is_refused);
    tcase_add_test(connecting, test_connect_modern);
    tcase_add_test(connecting, test_connect_retries_reset);
    tcase_add_test(connecting, test_probe_finds_no_ping);
    tcase_add_test(connecting, test_probe_finds_legacy);
    tcase_add_test(connecting, test_probe_refuses_nonsense);
    tcase_add_test(connecting, test_probe_is_patient_with_ours);
    tcase_add_test(connecting, test_connect_retries_refused);
    tcase_add_test(connecting, test_connect_gives_up);
    tcase_set_timeout(connecting, 60);
    tcase_set_timeout(trouble, 60);
    tcase_set_timeout(wire, 60);
    Suite *suite = suite_create("store client");
    suite_add_tcase(suite, wire);
    suite_add_tcase(suite, trouble);
    suite_add_tcase(suite, connecting);
    return run_suite(suite);
}
