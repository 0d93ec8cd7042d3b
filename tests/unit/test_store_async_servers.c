/* The client on a loop against servers of every generation, by script: what it finds out, what it sends
 * to each, what it makes of operations that a server lacks, and that it can be closed at any moment. */
#include "base/clock.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/store_loop.h"
#include "tests/lib/store_script.h"

#include <errno.h>
#include <time.h>

static char ping[64], pong[64]; /* with this process's nonce: each test has a process of its own */

static void start(void) {
    (void) with_nonce(ping, "> " VALIDATE " 0d");
    (void) with_nonce(pong, "<1");
    turns = 0;
    client = NULL;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static void stop(void) { ck_assert_int_eq(uv_loop_close(&loop), 0); }

#define MODERN_ANSWER ping, pong

/* The client, opened; the server's other connections follow. */
static void connect_to(struct listener *l, const char *const *const *scripts,
                       enum store_protocol protocol, const char *found) {
    struct said s;
    serve(l, scripts);
    ck_assert_int_eq(open_client(l->port, protocol, LONG_MS, &s), 0);
    run_until(&s);
    ck_assert_msg(s.status == 0, "%s", s.text);
    ck_assert_str_eq(store_async_protocol(client), found);
    ck_assert_int_eq(store_async_error(client)->code, 0);
}

/* ---- finding out ---- */

static void finds(const char *const *const *scripts, enum store_protocol protocol,
                  const char *found) {
    struct listener l;
    connect_to(&l, scripts, protocol, found);
    close_client();
    end_serving(&l);
}

START_TEST(finds_modern) {
    finds(SCRIPTS(SCRIPT(MODERN_ANSWER, "e")), STORE_PROTOCOL_MODERN, "modern");
    finds(SCRIPTS(SCRIPT(MODERN_ANSWER, "e")), STORE_PROTOCOL_PROBE, "modern");
}
END_TEST

START_TEST(a_reset_is_tried_again) {
    finds(SCRIPTS(SCRIPT("x!"), SCRIPT("> " VALIDATE " 0d", "x!"), SCRIPT(MODERN_ANSWER, "e")),
          STORE_PROTOCOL_MODERN, "modern");
}
END_TEST

START_TEST(finds_modern_without_ping) {
    finds(SCRIPTS(SCRIPT("> " VALIDATE " 0d", "x"), SCRIPT(NOPING_ANSWER, "e")),
          STORE_PROTOCOL_PROBE, "modern without ping");
}
END_TEST

START_TEST(finds_legacy) {
    finds(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "x"), SCRIPT(LEGACY_ANSWER, "e")),
          STORE_PROTOCOL_PROBE, "legacy");
    finds(SCRIPTS(SCRIPT(LEGACY_ANSWER, "e")), STORE_PROTOCOL_LEGACY, "legacy");
}
END_TEST

/* A modern server that was too busy for PING and speaks legacy too must not be taken for old. */
START_TEST(is_patient_with_ours) {
    finds(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "< 01"), SCRIPT(MODERN_ANSWER, "e")),
          STORE_PROTOCOL_PROBE, "modern");
}
END_TEST

START_TEST(tries_nonsense_anew) {
    finds(SCRIPTS(SILENT, SCRIPT(LEGACY_ANSWER, "> 0c", "< 07"), SCRIPT(MODERN_ANSWER, "e")),
          STORE_PROTOCOL_PROBE, "modern");
    finds(SCRIPTS(SCRIPT(ping, "< 01020304"), SCRIPT(MODERN_ANSWER, "e")), STORE_PROTOCOL_MODERN,
          "modern");
}
END_TEST

/* Whichever addresses the name has besides: the ones that refuse cost no pause. */
START_TEST(finds_a_server_by_name) {
    struct listener l;
    struct said s = {0};
    serve(&l, SCRIPTS(SCRIPT(MODERN_ANSWER, "> 07", "< 0400000000000000", "e")));
    ck_assert_int_eq(store_async_open(&loop, "localhost", l.port, STORE_PROTOCOL_PROBE, LONG_MS,
                                      on_said, &s, &client, NULL),
                     0);
    run_until(&s);
    ck_assert_msg(s.status == 0, "%s", s.text);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 4);
    close_client();
    end_serving(&l);
}
END_TEST

START_TEST(a_silent_server_takes_the_time_and_is_named) {
    struct listener l;
    struct said s;
    serve(&l, SCRIPTS(SILENT));
    ck_assert_int_eq(open_client(l.port, STORE_PROTOCOL_MODERN, 2000, &s), 0);
    run_until(&s);
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(
        strstr(s.text, "timed out after 2000 ms (the server does not answer the handshake)"));
    close_client();
    end_serving(&l);
}
END_TEST

/* ---- an old server ---- */

#define K "0200000000000000 2f6b" /* "/k" */

/* All made at once: each is one call with one callback, in order, whatever it is made of. */
START_TEST(legacy_calls) {
    struct listener l;
    struct said s[11] = {0};
    struct store_bytes keys[] = {B("a"), B("b")}, values[] = {B("1"), B("22")};
    connect_to(
        &l,
        SCRIPTS(SCRIPT(
            LEGACY_ANSWER, "> 00 " K " 0200000000000000 7631", /* L02 */
            "> 04 0100000000000000 " K, "< 00",                /* looks before it waits */
            "> 02 " K, "<1 0200000000000000 7631",             /* L04 */
            "> 03 0400000000000000 2f637472 0500000000000000", "< 0500000000000000",   /* L07 */
            "> 03 0500000000000000 696e69742f 0100000000000000", "< 0100000000000000", /* L23 */
            "> 04 0100000000000000 " K, "< 01", "> 05 0100000000000000 " K, "< 00",    /* wait */
            "> 08 " K, "< 0100000000000000",                                           /* L17 */
            /* append: it holds "x" */
            "> 01 " K " 0000000000000000 0100000000000000 79", "< 0100000000000000 78",
            "> 01 " K " 0100000000000000 78 0200000000000000 7879", "< 0200000000000000 7879",
            /* multi_set */
            "> 00 0200000000000000 2f61 0100000000000000 31"
            "  00 0200000000000000 2f62 0200000000000000 3232",
            /* multi_get; the second key comes later */
            "> 04 0100000000000000 0200000000000000 2f61", "< 00", "> 02 0200000000000000 2f61",
            "< 0100000000000000 31", "> 04 0100000000000000 0200000000000000 2f62", "< 01",
            "> 05 0100000000000000 0200000000000000 2f62", "< 00", "> 02 0200000000000000 2f62",
            "<1 0200000000000000 3232", "> 06", "< 0700000000000000", "e")),
        STORE_PROTOCOL_LEGACY, "legacy");
    ck_assert_int_eq(store_async_set(client, B("k"), B("v1"), LONG_MS, on_said, &s[0]), 0);
    ck_assert_int_eq(store_async_get(client, B("k"), LONG_MS, on_said, &s[1]), 0);
    ck_assert_int_eq(store_async_add(client, B("ctr"), 5, LONG_MS, on_said, &s[2]), 0);
    ck_assert_int_eq(store_async_add_raw(client, B("init/"), 1, LONG_MS, on_said, &s[3]), 0);
    ck_assert_int_eq(
        store_async_wait(client, &(struct store_bytes){"k", 1}, 1, LONG_MS, on_said, &s[4]), 0);
    ck_assert_int_eq(store_async_delete(client, B("k"), LONG_MS, on_said, &s[5]), 0);
    ck_assert_int_eq(store_async_append(client, B("k"), B("y"), LONG_MS, on_said, &s[6]), 0);
    ck_assert_int_eq(store_async_multi_set(client, keys, values, 2, LONG_MS, on_said, &s[7]), 0);
    ck_assert_int_eq(store_async_multi_get(client, keys, 2, LONG_MS, on_said, &s[8]), 0);
    ck_assert_int_eq(store_async_multi_get(client, keys, 0, LONG_MS, on_said, &s[9]), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &s[10]), 0);
    ck_assert_int_eq(turns, 1); /* that of opening */
    run_until(&s[10]);
    for (int i = 0; i < 11; i++) {
        ck_assert_int_eq(s[i].times, 1);
        ck_assert_msg(s[i].status == 0, "%d: %s", i, s[i].text);
        ck_assert_int_eq(s[i].turn, i + 2);
    }
    ck_assert_str_eq(s[1].value, "v1");
    ck_assert_int_eq(s[2].number, 5);
    ck_assert_int_eq(s[5].number, 1);
    ck_assert_str_eq(s[8].value, "1,22,");
    ck_assert_uint_eq(s[9].list_count, 0);
    ck_assert_int_eq(s[10].number, 7);
    close_client();
    end_serving(&l);
}
END_TEST

/* The key vanished between two tries: the server then answers with our own belief. */
START_TEST(legacy_append_to_a_key_that_vanishes) {
    struct listener l;
    struct said s;
    connect_to(&l,
               SCRIPTS(SCRIPT(LEGACY_ANSWER, "> 01 " K " 0000000000000000 0100000000000000 79",
                              "< 0100000000000000 78",
                              "> 01 " K " 0100000000000000 78 0200000000000000 7879",
                              "< 0100000000000000 78", /* what we expect: it is absent */
                              "> 01 " K " 0000000000000000 0100000000000000 79",
                              "< 0100000000000000 79", "e")),
               STORE_PROTOCOL_LEGACY, "legacy");
    CALL(s, store_async_append(client, B("k"), B("y"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    close_client();
    end_serving(&l);
}
END_TEST

#define MEMBERS "0e00000000000000 2f622f6e756d5f6d656d62657273" /* "/b/num_members" */
#define LAST    "0e00000000000000 2f622f6c6173745f6d656d626572" /* "/b/last_member" */

START_TEST(legacy_barrier) {
    struct listener l;
    struct said s;
    connect_to(
        &l,
        SCRIPTS(SCRIPT(LEGACY_ANSWER, "> 03 " MEMBERS " 0100000000000000", "< 0100000000000000",
                       "> 04 0100000000000000 " LAST, "< 01", "> 05 0100000000000000 " LAST,
                       "< 00", /* the other one came */
                       "> 03 " MEMBERS " 0100000000000000", "< 0200000000000000",
                       "> 00 " LAST " 0100000000000000 31", "> 06", "< 0200000000000000", "e")),
        STORE_PROTOCOL_LEGACY, "legacy");
    CALL(s, store_async_barrier(client, B("b"), 2, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_barrier(client, B("b"), 2, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s)); /* the SET was sent before */
    ck_assert_int_eq(s.number, 2);
    close_client();
    end_serving(&l);
}
END_TEST

#define LACKS ": the store's server does not have this operation"

START_TEST(legacy_lacks) {
    struct listener l;
    struct said s;
    connect_to(&l, SCRIPTS(SCRIPT(LEGACY_ANSWER, "> 06", "< 0100000000000000", "e")),
               STORE_PROTOCOL_LEGACY, "legacy");
    CALL(s, store_async_queue_push(client, B("q"), B("job"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, -ENOTSUP);
    ck_assert_str_eq(s.text, "queue_push 'q'" LACKS);
    CALL(s, store_async_queue_pop(client, B("q"), 0, on_said, &s));
    ck_assert_str_eq(s.text, "queue_pop 'q'" LACKS);
    CALL(s, store_async_list_keys(client, LONG_MS, on_said, &s));
    ck_assert_str_eq(s.text, "list_keys" LACKS);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 1);
    close_client();
    end_serving(&l);
}
END_TEST

#define GONE      "0100000000000000 0500000000000000 2f676f6e65"
#define WAIT_GONE "> 04 " GONE, "< 01", "> 05 " GONE

/* The server would answer the wait in the middle of something else: it is left, and the calls behind
 * go on over a connection that is new. */
START_TEST(legacy_wait_that_is_given_up) {
    struct listener l;
    struct said wait = {0}, count = {0}, late = {0};
    struct store_bytes gone = B("gone");
    connect_to(
        &l,
        SCRIPTS(SCRIPT(LEGACY_ANSWER, WAIT_GONE, "e"),
                SCRIPT(LEGACY_ANSWER, "> 06", "< 0400000000000000", "> 04 " GONE, "< 01", "e")),
        STORE_PROTOCOL_LEGACY, "legacy");
    ck_assert_int_eq(store_async_wait(client, &gone, 1, 60, on_said, &wait), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &count), 0);
    run_until(&wait);
    ck_assert_int_eq(wait.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(wait.text, "wait for 'gone' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(wait.text, ": timed out after 60 ms"));
    ck_assert_int_eq(store_async_get(client, gone, 0, on_said, &late), 0); /* meanwhile */
    run_until(&count);
    ck_assert_int_eq(count.number, 4);
    if (late.times == 0) run_until(&late);
    ck_assert_int_eq(late.status, -ETIMEDOUT);
    ck_assert_int_eq(store_async_error(client)->code, 0);
    close_client();
    end_serving(&l);
}
END_TEST

START_TEST(legacy_server_gone_when_connecting_afresh) {
    struct listener l;
    struct said wait = {0}, count = {0};
    struct store_bytes gone = B("gone");
    connect_to(&l, SCRIPTS(SCRIPT(LEGACY_ANSWER, WAIT_GONE, "e")), STORE_PROTOCOL_LEGACY, "legacy");
    (void) shutdown(l.fd, SHUT_RDWR); /* from now on it refuses */
    ck_assert_int_eq(store_async_wait(client, &gone, 1, 60, on_said, &wait), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &count), 0);
    run_until(&wait);
    ck_assert_int_eq(wait.status, -ETIMEDOUT);
    if (count.times == 0) run_until(&count);
    ck_assert_int_eq(count.status, -ECONNREFUSED);
    ck_assert_ptr_nonnull(strstr(count.text, "wait for 'gone' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(count.text, ": connection refused"));
    ck_assert_int_eq(store_async_error(client)->code, -ECONNREFUSED);
    close_client();
    end_serving(&l);
}
END_TEST

/* ---- a modern server that lacks operations ---- */

#define PROBE_KEY   "0d00000000000000 2f6372756e72742f70726f6265" /* "/crunrt/probe" */
#define ASK_QUEUE   "> 10 " PROBE_KEY
#define ASK_BARRIER "> 12 " PROBE_KEY " 0100000000000000 08 " PROBE_KEY

/* Each is asked for once, over a connection of its own, and the first connection serves on. */
START_TEST(what_a_modern_server_lacks) {
    struct listener l;
    struct said s;
    connect_to(
        &l,
        SCRIPTS(SCRIPT(MODERN_ANSWER, "> 04 " MEMBERS " 0100000000000000", "< 0200000000000000",
                       "> 01 " LAST " 0100000000000000 31", "> 07", "< 0300000000000000", "e"),
                SCRIPT(MODERN_ANSWER, ASK_QUEUE, "x"), SCRIPT(MODERN_ANSWER, "> 11", "x!"),
                SCRIPT(MODERN_ANSWER, ASK_BARRIER, "x")),
        STORE_PROTOCOL_PROBE, "modern");
    for (int i = 0; i < 2; i++) { /* the second time it is known */
        CALL(s, store_async_queue_len(client, B("q"), LONG_MS, on_said, &s));
        ck_assert_int_eq(s.status, -ENOTSUP);
        ck_assert_str_eq(s.text, "queue_len 'q'" LACKS);
        CALL(s, store_async_queue_pop(client, B("q"), 0, on_said, &s));
        ck_assert_str_eq(s.text, "queue_pop 'q'" LACKS);
        CALL(s, store_async_list_keys(client, LONG_MS, on_said, &s));
        ck_assert_str_eq(s.text, "list_keys" LACKS);
    }
    CALL(s, store_async_barrier(client, B("b"), 2, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 3);
    close_client();
    end_serving(&l);
}
END_TEST

START_TEST(what_a_modern_server_without_ping_has) {
    struct listener l;
    struct said pop = {0}, push = {0}, barrier = {0}, count = {0};
    connect_to(&l,
               SCRIPTS(SCRIPT("> " VALIDATE " 0d", "x"),
                       SCRIPT(NOPING_ANSWER, "> 0f 0200000000000000 2f71",
                              "< 0100000000000000 0300000000000000 6a6f62",
                              "> 0e 0200000000000000 2f71 0100000000000000 78",
                              "> 12 0200000000000000 2f62 0200000000000000", "<1 00", "> 07",
                              "< 0300000000000000", "e"),
                       SCRIPT(NOPING_ANSWER, ASK_QUEUE, "<1 0000000000000000", "e"),
                       SCRIPT(NOPING_ANSWER, ASK_BARRIER, "< 00", "<1 0100000000000000", "e")),
               STORE_PROTOCOL_PROBE, "modern without ping");
    ck_assert_int_eq(store_async_queue_pop(client, B("q"), LONG_MS, on_said, &pop), 0);
    ck_assert_int_eq(store_async_queue_push(client, B("q"), B("x"), LONG_MS, on_said, &push), 0);
    ck_assert_int_eq(store_async_barrier(client, B("b"), 2, LONG_MS, on_said, &barrier), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &count), 0);
    run_until(&count);
    ck_assert_str_eq(pop.value, "job");
    ck_assert_int_eq(push.status, 0);
    ck_assert_msg(barrier.status == 0, "%s", barrier.text);
    ck_assert_int_lt(pop.turn, push.turn);
    ck_assert_int_lt(push.turn, barrier.turn);
    ck_assert_int_lt(barrier.turn, count.turn);
    close_client();
    end_serving(&l);
}
END_TEST

/* The question fails, not the client: the call says so, and the next one asks again. */
START_TEST(a_question_that_fails) {
    struct listener l;
    struct said s;
    connect_to(&l,
               SCRIPTS(SCRIPT(MODERN_ANSWER, "> 07", "< 0300000000000000",
                              "> 10 0200000000000000 2f71", "< 0500000000000000", "e"),
                       SILENT, SCRIPT("> " VALIDATE " 0d", "x"), SCRIPT(ping, "< 01020304"),
                       SCRIPT(MODERN_ANSWER, ASK_QUEUE, "< 0000000000000000", "e")),
               STORE_PROTOCOL_MODERN, "modern");
    CALL(s, store_async_queue_len(client, B("q"), 80, on_said, &s));
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(s.text, "queue_len 'q' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(s.text, ": timed out after 80 ms"));
    CALL(s, store_async_queue_len(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, -ECONNRESET);
    ck_assert_ptr_nonnull(strstr(s.text, "ask the store at 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(s.text, " for 'queue_len': "));
    CALL(s, store_async_queue_len(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, -EPROTO);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 3);
    CALL(s, store_async_queue_len(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 5);
    close_client();
    end_serving(&l);
}
END_TEST

/* ---- trouble ---- */

static void loses(const char *const *main_script, int code, const char *text) {
    struct listener l;
    struct said wait = {0}, count = {0}, none = {0};
    struct store_bytes gone = B("gone");
    connect_to(&l, SCRIPTS(main_script), STORE_PROTOCOL_MODERN, "modern");
    ck_assert_int_eq(store_async_wait(client, &gone, 1, 60, on_said, &wait), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &count), 0);
    run_until(&count);
    ck_assert_int_eq(wait.status, code);
    ck_assert_int_eq(count.status, code);
    ck_assert_msg(strstr(count.text, text) != NULL, "%s", count.text);
    ck_assert_str_eq(store_async_error(client)->text, count.text);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &none), code);
    close_client();
    ck_assert_int_eq(none.times, 0);
    end_serving(&l);
}

START_TEST(a_wait_answered_wrongly) {
    loses(SCRIPT(MODERN_ANSWER, "> 06 " GONE, "< 05", "e"), -EPROTO, ": unexpected byte in reply");
    loses(SCRIPT(MODERN_ANSWER, "> 06 " GONE, "> 0c", "< 05", "e"), -EPROTO,
          "wait for 'gone' at store 127.0.0.1:");
    loses(SCRIPT(MODERN_ANSWER, "> 06 " GONE, "x"), -ECONNRESET,
          ": the server closed the connection");
}
END_TEST

START_TEST(a_wait_cancelled_too_late) {
    struct listener l;
    struct said wait, count;
    struct store_bytes gone = B("gone");
    connect_to(&l,
               SCRIPTS(SCRIPT(MODERN_ANSWER, "> 06 " GONE, "> 0c", "<1 0001", "> 07",
                              "< 0400000000000000", "e")),
               STORE_PROTOCOL_MODERN, "modern");
    CALL(wait, store_async_wait(client, &gone, 1, 60, on_said, &wait));
    ck_assert_int_eq(wait.status, -ETIMEDOUT);
    CALL(count, store_async_num_keys(client, LONG_MS, on_said, &count));
    ck_assert_int_eq(count.number, 4);
    close_client();
    end_serving(&l);
}
END_TEST

START_TEST(bytes_that_nobody_asked_for) {
    struct listener l;
    struct said s, none = {0};
    connect_to(&l, SCRIPTS(SCRIPT(MODERN_ANSWER, "> 07", "< 0400000000000000 00", "e")),
               STORE_PROTOCOL_MODERN, "modern");
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 4);
    while (store_async_error(client)->code == 0) (void) uv_run(&loop, UV_RUN_ONCE);
    ck_assert_ptr_nonnull(
        strstr(store_async_error(client)->text, "nothing in flight at store 127.0.0.1:"));
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &none), -EPROTO);
    close_client();
    end_serving(&l);
}
END_TEST

START_TEST(a_late_reply_loses_the_connection) {
    struct listener l;
    struct said s;
    connect_to(&l,
               SCRIPTS(SCRIPT(MODERN_ANSWER, "> 04 0200000000000000 2f63 0100000000000000", "e")),
               STORE_PROTOCOL_MODERN, "modern");
    CALL(s, store_async_add(client, B("c"), 1, 60, on_said, &s));
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(s.text, "add 'c' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(s.text, ": timed out after 60 ms"));
    ck_assert_int_eq(store_async_error(client)->code, -ETIMEDOUT);
    close_client();
    end_serving(&l);
}
END_TEST

/* ---- closing at any moment ---- */

#define CALLS 9

/* Opens, makes calls of every kind, and closes after `steps` turns of the loop. */
static int closes_after(int steps, uint16_t port, enum store_protocol protocol) {
    struct said opened, s[CALLS] = {0};
    struct store_bytes keys[] = {B("k"), B("gone")};
    int made[CALLS] = {0}, is_made = 0;
    ck_assert_int_eq(open_client(port, protocol, LONG_MS, &opened), 0);
    for (int i = 0; i < steps; i++) {
        if (opened.times > 0 && !is_made) {
            is_made = 1;
            int queues = strcmp(store_async_protocol(client), "legacy") != 0;
            made[0] = !store_async_append(client, keys[0], B("v"), LONG_MS, on_said, &s[0]);
            made[1] = !store_async_wait(client, keys, 2, 1, on_said, &s[1]);
            made[2] = !store_async_barrier(client, B("b"), 2, 1, on_said, &s[2]);
            made[3] = !store_async_multi_get(client, keys, 1, LONG_MS, on_said, &s[3]);
            made[4] = !store_async_queue_push(client, B("q"), B("v"), LONG_MS, on_said, &s[4]);
            made[5] = !store_async_queue_pop(client, B("q"), LONG_MS, on_said, &s[5]);
            made[6] = !store_async_list_keys(client, LONG_MS, on_said, &s[6]);
            made[7] = !store_async_add(client, B("n"), queues, LONG_MS, on_said, &s[7]);
            made[8] = !store_async_get(client, keys[0], LONG_MS, on_said, &s[8]);
        }
        if (is_made && s[CALLS - 1].times > 0) break;
        (void) uv_run(&loop, UV_RUN_ONCE);
    }
    int all_said = s[CALLS - 1].times > 0;
    close_client();
    ck_assert_int_eq(opened.times, 1);
    for (int i = 0; i < CALLS; i++) ck_assert_int_eq(s[i].times, made[i]);
    if (!all_said) ck_assert_int_eq(is_made ? s[CALLS - 1].status : -ECANCELED, -ECANCELED);
    return all_said;
}

static void closes_at_any_moment(enum store_protocol protocol) {
    struct store_server *server;
    struct store_space *space;
    uint16_t port;
    ck_assert_int_eq(store_server_start(NULL, &server, NULL), 0);
    ck_assert_int_eq(store_server_open(server, "127.0.0.1", 0, &space, &port, NULL), 0);
    int steps = 0;
    while (!closes_after(steps, port, protocol)) ck_assert_int_lt(steps++, 1000);
    ck_assert_int_ge(steps, 3); /* it was closed in several places */
    store_server_stop(server);
}

START_TEST(closing_a_modern_one) { closes_at_any_moment(STORE_PROTOCOL_PROBE); }
END_TEST

START_TEST(closing_an_old_one) { closes_at_any_moment(STORE_PROTOCOL_LEGACY); }
END_TEST

/* And where the server keeps it waiting: in the handshake, in a question, in connecting afresh. */
START_TEST(closing_while_the_server_is_silent) {
    struct listener l;
    struct said s;
    serve(&l, SCRIPTS(SCRIPT(LEGACY_ANSWER, "> 0c", "~")));
    for (int steps = 0; steps < 30; steps++) { /* RESOLVE, DIAL; the backlog accepts */
        ck_assert_int_eq(open_client(l.port, STORE_PROTOCOL_MODERN, LONG_MS, &s), 0);
        for (int i = 0; i < steps; i++) {
            struct timespec moment = {0, 200000};
            (void) nanosleep(&moment, NULL);
            (void) uv_run(&loop, UV_RUN_NOWAIT);
        }
        close_client();
        ck_assert_int_eq(s.status, -ECANCELED);
        ck_assert_ptr_nonnull(strstr(s.text, "the client was closed"));
    }
    (void) shutdown(l.fd, SHUT_RDWR);
    (void) pthread_join(l.thread, NULL); /* whatever it was sent */
    (void) close(l.fd);

    struct said ask = {0};
    connect_to(&l, SCRIPTS(SCRIPT(MODERN_ANSWER, "e"), SILENT), STORE_PROTOCOL_MODERN, "modern");
    ck_assert_int_eq(store_async_list_keys(client, LONG_MS, on_said, &ask), 0);
    for (int i = 0; i < 3; i++) (void) uv_run(&loop, UV_RUN_NOWAIT);
    close_client();
    ck_assert_int_eq(ask.status, -ECANCELED);
    end_serving(&l);

    struct said wait = {0}, count = {0};
    struct store_bytes gone = B("gone");
    connect_to(&l, SCRIPTS(SCRIPT(LEGACY_ANSWER, WAIT_GONE, "e"), SILENT), STORE_PROTOCOL_LEGACY,
               "legacy");
    ck_assert_int_eq(store_async_wait(client, &gone, 1, 60, on_said, &wait), 0);
    run_until(&wait);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &count), 0);
    close_client();
    ck_assert_int_eq(count.status, -ECANCELED);
    end_serving(&l);
}
END_TEST

static void close_in_callback(void *arg, int status, struct store_async_result *r,
                              const struct cr_error *err) {
    on_said(arg, status, r, err);
    store_async_close(client, NULL, NULL);
}

/* Inside any callback: of opening, of a call, of one that is told that all is lost. */
static void closes_inside(const char *const *script, int in_opening, int status) {
    struct listener l;
    struct said opened = {0}, one = {0}, two = {0};
    serve(&l, SCRIPTS(script));
    ck_assert_int_eq(store_async_open(&loop, "127.0.0.1", l.port, STORE_PROTOCOL_LEGACY, LONG_MS,
                                      in_opening ? close_in_callback : on_said, &opened, &client,
                                      NULL),
                     0);
    run_until(&opened);
    ck_assert_int_eq(opened.status, 0);
    if (!in_opening) {
        ck_assert_int_eq(store_async_num_keys(client, LONG_MS, close_in_callback, &one), 0);
        ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &two), 0);
        run_until(&one);
        ck_assert_int_eq(one.status, status);
        ck_assert_int_eq(two.times, 1); /* closing tells it at once */
        ck_assert_int_eq(two.status, -ECANCELED);
    }
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    end_serving(&l);
}

START_TEST(closing_inside_a_callback) {
    closes_inside(SCRIPT(LEGACY_ANSWER, "e"), 1, 0);
    closes_inside(SCRIPT(LEGACY_ANSWER, "> 06", "< 0100000000000000", "~"), 0, 0);
    closes_inside(SCRIPT(LEGACY_ANSWER, "> 06", "x"), 0, -ECONNRESET);
}
END_TEST

static void add(TCase *t, Suite *suite) {
    tcase_add_checked_fixture(t, start, stop);
    tcase_set_timeout(t, 60);
    suite_add_tcase(suite, t);
}

int main(void) {
    Suite *suite = suite_create("store client on a loop, servers of all ages");
    TCase *opening = tcase_create("opening"), *old = tcase_create("old");
    TCase *lacking = tcase_create("lacking"), *closing = tcase_create("closing");
    TCase *trouble = tcase_create("trouble");
    tcase_add_test(opening, finds_modern);
    tcase_add_test(opening, a_reset_is_tried_again);
    tcase_add_test(opening, finds_modern_without_ping);
    tcase_add_test(opening, finds_legacy);
    tcase_add_test(opening, is_patient_with_ours);
    tcase_add_test(opening, tries_nonsense_anew);
    tcase_add_test(opening, finds_a_server_by_name);
    tcase_add_test(opening, a_silent_server_takes_the_time_and_is_named);
    tcase_add_test(old, legacy_calls);
    tcase_add_test(old, legacy_append_to_a_key_that_vanishes);
    tcase_add_test(old, legacy_barrier);
    tcase_add_test(old, legacy_lacks);
    tcase_add_test(old, legacy_wait_that_is_given_up);
    tcase_add_test(old, legacy_server_gone_when_connecting_afresh);
    tcase_add_test(lacking, what_a_modern_server_lacks);
    tcase_add_test(lacking, what_a_modern_server_without_ping_has);
    tcase_add_test(lacking, a_question_that_fails);
    tcase_add_test(trouble, a_wait_answered_wrongly);
    tcase_add_test(trouble, a_wait_cancelled_too_late);
    tcase_add_test(trouble, bytes_that_nobody_asked_for);
    tcase_add_test(trouble, a_late_reply_loses_the_connection);
    tcase_add_test(closing, closing_a_modern_one);
    tcase_add_test(closing, closing_an_old_one);
    tcase_add_test(closing, closing_while_the_server_is_silent);
    tcase_add_test(closing, closing_inside_a_callback);
    add(opening, suite);
    add(old, suite);
    add(lacking, suite);
    add(trouble, suite);
    add(closing, suite);
    return run_suite(suite);
}
