/* The client on a loop, against our server in the same process: every call, the order of calls,
 * time limits, a server that goes away, closing in the middle. */
#include "base/clock.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/store_loop.h"

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct store_server *server;
static struct store_space *space;
static uint16_t port;

static void start(void) {
    struct cr_error err = {0};
    struct said s;
    turns = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(store_server_start(NULL, &server, &err), 0);
    ck_assert_int_eq(store_server_open(server, "127.0.0.1", 0, &space, &port, &err), 0);
    ck_assert_int_eq(open_client(port, STORE_PROTOCOL_PROBE, LONG_MS, &s), 0);
    run_until(&s);
    ck_assert_msg(s.status == 0, "%s", s.text);
}

static void stop(void) {
    close_client();
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* nothing was left behind */
    store_server_stop(server);
}

START_TEST(every_call_answers) {
    struct said s;
    struct store_bytes keys[] = {B("k"), B("c"), B("k")};
    CALL(s, store_async_set(client, B("k"), B("v1"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_get(client, B("k"), LONG_MS, on_said, &s));
    ck_assert_str_eq(s.value, "v1");
    CALL(s, store_async_add(client, B("c"), -2, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, -2);
    CALL(s, store_async_compare_set(client, B("k"), B("zz"), B("x"), LONG_MS, on_said, &s));
    ck_assert_str_eq(s.value, "v1");
    CALL(s, store_async_wait(client, keys, 3, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_check(client, keys, 3, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 1);
    CALL(s, store_async_multi_get(client, keys, 3, LONG_MS, on_said, &s));
    ck_assert_uint_eq(s.list_count, 3);
    CALL(s, store_async_multi_get(client, keys, 0, LONG_MS, on_said, &s));
    ck_assert_uint_eq(s.list_count, 0);
    CALL(s, store_async_delete(client, B("k"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 1);
    CALL(s, store_async_check(client, keys, 3, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 0);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 1);
}
END_TEST

START_TEST(lists_queues_and_barriers) {
    struct said s;
    struct store_bytes keys[] = {B("a"), B("b")}, values[] = {B("1"), B("2")};
    CALL(s, store_async_multi_set(client, keys, values, 2, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_append(client, B("a"), B("xy"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_get(client, B("a"), LONG_MS, on_said, &s));
    ck_assert_str_eq(s.value, "1xy");
    CALL(s, store_async_list_keys(client, LONG_MS, on_said, &s));
    ck_assert_uint_eq(s.list_count, 2);
    CALL(s, store_async_queue_pop(client, B("q"), 0, on_said, &s));
    ck_assert_int_eq(s.status, -ENOENT);
    ck_assert_ptr_nonnull(strstr(s.text, "queue_pop 'q' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(s.text, ": the queue is empty"));
    CALL(s, store_async_queue_push(client, B("q"), B("one"), LONG_MS, on_said, &s));
    CALL(s, store_async_queue_push(client, B("q"), B("two"), LONG_MS, on_said, &s));
    CALL(s, store_async_queue_len(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 2);
    CALL(s, store_async_queue_pop(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_str_eq(s.value, "one");
    CALL(s, store_async_queue_pop(client, B("q"), 0, on_said, &s));
    ck_assert_str_eq(s.value, "two");
    CALL(s, store_async_queue_pop(client, B("q"), 50, on_said, &s));
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    CALL(s, store_async_barrier(client, B("alone"), 1, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_barrier(client, B("pair"), 2, 50, on_said, &s));
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s)); /* it is still in step */
    ck_assert_int_eq(s.number, 4);
}
END_TEST

START_TEST(no_time_looks_once) {
    struct said s;
    struct store_bytes keys[] = {B("k"), B("absent")};
    CALL(s, store_async_set(client, B("k"), B("v"), LONG_MS, on_said, &s));
    for (int i = 0; i < 200; i++) { /* what is there is found every time */
        CALL(s, store_async_get(client, B("k"), 0, on_said, &s));
        ck_assert_str_eq(s.value, "v");
        CALL(s, store_async_wait(client, keys, 1, 0, on_said, &s));
        ck_assert_int_eq(s.status, 0);
        CALL(s, store_async_wait(client, keys, 2, 0, on_said, &s));
        ck_assert_int_eq(s.status, -ETIMEDOUT);
        CALL(s, store_async_multi_get(client, keys, 2, 0, on_said, &s));
        ck_assert_int_eq(s.status, -ETIMEDOUT);
    }
    CALL(s, store_async_num_keys(client, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 1);
}
END_TEST

/* A plain key of the queue's name ends every wait at once: no endless loop. */
START_TEST(a_key_of_the_queues_name_ends_the_pop) {
    struct said s;
    CALL(s, store_async_set(client, B("q"), B("v"), LONG_MS, on_said, &s));
    CALL(s, store_async_queue_pop(client, B("q"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, -ENOENT);
    ck_assert_ptr_nonnull(strstr(s.text, "is there a key of the same name?"));
}
END_TEST

START_TEST(another_client_feeds_a_pop_and_a_barrier) {
    struct said pop = {0}, barrier = {0};
    struct store_client *other = NULL;
    ck_assert_int_eq(
        store_client_connect("127.0.0.1", port, STORE_PROTOCOL_MODERN, LONG_MS, &other, NULL), 0);
    struct store *s = store_client_store(other);
    struct said warm; /* the server is asked once for its operations: later ones start at once */
    CALL(warm, store_async_queue_len(client, B("q"), LONG_MS, on_said, &warm));
    CALL(warm, store_async_barrier(client, B("alone"), 1, LONG_MS, on_said, &warm));
    ck_assert_int_eq(store_async_queue_pop(client, B("q"), LONG_MS, on_said, &pop), 0);
    ck_assert_int_eq(store_async_barrier(client, B("both"), 2, LONG_MS, on_said, &barrier), 0);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(pop.times, 0);
    ck_assert_int_eq(store_queue_push(s, B("q"), B("job"), LONG_MS, NULL), 0);
    run_until(&pop);
    ck_assert_str_eq(pop.value, "job");
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(barrier.times, 0);
    ck_assert_int_eq(store_barrier(s, B("both"), 2, LONG_MS, NULL), 0);
    run_until(&barrier);
    ck_assert_int_eq(barrier.status, 0);
    store_client_close(other);
}
END_TEST

START_TEST(big_values_go_both_ways) {
    size_t len = 3u << 20;
    char *big = malloc(len);
    ck_assert_ptr_nonnull(big);
    memset(big, 'x', len);
    struct said s;
    struct store_bytes value = {big, len};
    CALL(s, store_async_set(client, B("big"), value, LONG_MS, on_said, &s));
    CALL(s, store_async_compare_set(client, B("big"), value, value, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    CALL(s, store_async_get(client, B("big"), LONG_MS, on_said, &s));
    ck_assert_int_eq(s.status, 0);
    free(big);
}
END_TEST

/* Queued calls are answered in order, also behind a wait that has to be given up. */
START_TEST(calls_keep_their_order) {
    struct said wait = {0}, set = {0}, get = {0}, late = {0};
    struct store_bytes gone = B("gone");
    ck_assert_int_eq(store_async_wait(client, &gone, 1, 150, on_said, &wait), 0);
    ck_assert_int_eq(store_async_add(client, B("late"), 1, 20, on_said, &late), 0);
    ck_assert_int_eq(store_async_set(client, B("k"), B("v"), LONG_MS, on_said, &set), 0);
    ck_assert_int_eq(store_async_get(client, B("k"), LONG_MS, on_said, &get), 0);
    run_until(&get);
    ck_assert_int_eq(wait.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(wait.text, "wait for 'gone' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(wait.text, ": timed out after 150 ms"));
    ck_assert_int_eq(late.status, -ETIMEDOUT); /* its time ended while it was queued: never sent */
    ck_assert_int_eq(set.status, 0);
    ck_assert_str_eq(get.value, "v");
    ck_assert_int_lt(late.turn, wait.turn);
    ck_assert_int_lt(wait.turn, set.turn);
    ck_assert_int_lt(set.turn, get.turn);
    struct said s;
    struct store_bytes name = B("late");
    CALL(s, store_async_check(client, &name, 1, LONG_MS, on_said, &s));
    ck_assert_int_eq(s.number, 0);
}
END_TEST

START_TEST(another_client_wakes_a_wait) {
    struct said wait = {0}, get = {0};
    struct store_bytes key = B("awaited");
    struct store_client *other = NULL;
    ck_assert_int_eq(
        store_client_connect("127.0.0.1", port, STORE_PROTOCOL_MODERN, LONG_MS, &other, NULL), 0);
    ck_assert_int_eq(store_async_wait(client, &key, 1, CR_FOREVER, on_said, &wait), 0);
    ck_assert_int_eq(store_async_get(client, key, LONG_MS, on_said, &get), 0);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(wait.times, 0);
    ck_assert_int_eq(store_set(store_client_store(other), key, B("x"), LONG_MS, NULL), 0);
    run_until(&get);
    ck_assert_int_eq(wait.status, 0);
    ck_assert_str_eq(get.value, "x");
    store_client_close(other);
}
END_TEST

/* What the server would hang up on is refused before it is sent. */
START_TEST(over_a_limit_is_refused) {
    struct said s = {0};
    struct store_bytes keys[5], values[5]; /* each may be sent, all of them are too much for one */
    for (int i = 0; i < 5; i++) keys[i] = B("k"), values[i] = (struct store_bytes){"", 60 << 20};
    ck_assert_int_eq(store_async_multi_set(client, keys, values, 5, LONG_MS, on_said, &s),
                     -EMSGSIZE);
    values[0].len = STORE_VALUE_MAX + 1;
    ck_assert_int_eq(store_async_set(client, B("k"), values[0], LONG_MS, on_said, &s), -EMSGSIZE);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &s), 0);
    run_until(&s);
    ck_assert_int_eq(s.times, 1);
    ck_assert_int_eq(s.status, 0);
}
END_TEST

START_TEST(a_lost_server_fails_all_calls) {
    struct said wait = {0}, set = {0}, s = {0};
    struct store_bytes key = B("never");
    ck_assert_int_eq(store_async_wait(client, &key, 1, CR_FOREVER, on_said, &wait), 0);
    ck_assert_int_eq(store_async_set(client, B("k"), B("v"), LONG_MS, on_said, &set), 0);
    store_space_close(space);
    run_until(&set);
    ck_assert_int_eq(wait.status, -ECONNRESET);
    ck_assert_int_eq(set.status, -ECONNRESET);
    ck_assert_ptr_nonnull(strstr(wait.text, "wait for 'never' at store 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(wait.text, "the server closed the connection"));
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &s), -ECONNRESET);
    ck_assert_int_eq(s.times, 0);
}
END_TEST

START_TEST(closing_cancels) {
    struct said wait = {0}, set = {0};
    struct store_bytes key = B("never");
    ck_assert_int_eq(store_async_wait(client, &key, 1, CR_FOREVER, on_said, &wait), 0);
    ck_assert_int_eq(store_async_set(client, B("k"), B("v"), LONG_MS, on_said, &set), 0);
    int closed = 0;
    store_async_close(client, on_closed, &closed);
    ck_assert_int_eq(wait.status, -ECANCELED);
    ck_assert_int_eq(set.status, -ECANCELED);
    ck_assert_int_eq(closed, 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(closed, 1);
    static struct said s; /* said while stop() closes it in the middle of opening */
    ck_assert_int_eq(open_client(port, STORE_PROTOCOL_PROBE, LONG_MS, &s), 0);
}
END_TEST

/* A bound port that nobody listens on refuses; the client tries until the time is up. */
START_TEST(opening_gives_up) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), closed = 0;
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &a, sizeof(a)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *) &a, &len), 0);
    store_async_close(client, on_closed, &closed);
    struct said s, none = {0};
    int64_t begin = cr_monotonic_ms();
    ck_assert_int_eq(open_client(ntohs(a.sin_port), STORE_PROTOCOL_PROBE, 300, &s), 0);
    ck_assert_int_eq(store_async_num_keys(client, LONG_MS, on_said, &none), -ENOTCONN);
    run_until(&s);
    ck_assert_int_eq(s.status, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(s.text, "connect to the store at 127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(s.text, "timed out after 300 ms (connection refused)"));
    ck_assert_int_ge(cr_monotonic_ms() - begin, 50); /* more than one try */
    (void) close(fd);
}
END_TEST

int main(void) {
    TCase *t = tcase_create("loop");
    tcase_add_checked_fixture(t, start, stop);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_call_answers);
    tcase_add_test(t, lists_queues_and_barriers);
    tcase_add_test(t, no_time_looks_once);
    tcase_add_test(t, a_key_of_the_queues_name_ends_the_pop);
    tcase_add_test(t, another_client_feeds_a_pop_and_a_barrier);
    tcase_add_test(t, big_values_go_both_ways);
    tcase_add_test(t, calls_keep_their_order);
    tcase_add_test(t, another_client_wakes_a_wait);
    tcase_add_test(t, over_a_limit_is_refused);
    tcase_add_test(t, a_lost_server_fails_all_calls);
    tcase_add_test(t, closing_cancels);
    tcase_add_test(t, opening_gives_up);
    Suite *suite = suite_create("store client on a loop");
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
