/* Tests rendezvous/dial/refusal.c with real listeners: a connection for which there is no memory is
 * closed at once, and the listener goes on accepting. */
#include "rendezvous/dial/refusal_internal.h"

#include "tests/lib/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 5

static uv_loop_t loop;
static uv_tcp_t listener, accepted[CLIENTS];
static struct refusal *refusal;
static int failures_left;    /* number of calls of on_connection() that will have no memory */
static bool closes;          /* true: the owner closes the listener after the last failure */
static int accepted_count, wanted;
static int clients[CLIENTS]; /* the clients' ends */

static void on_connection(uv_stream_t *l, int status) {
    ck_assert_int_eq(status, 0);
    if (failures_left > 0) {
        failures_left--;
        refusal_use(refusal, l, on_connection);
        if (closes && failures_left == 0) {
            refusal_free(refusal);
            uv_close((uv_handle_t *) l, NULL);
        }
        return;
    }
    ck_assert_int_eq(uv_tcp_init(&loop, &accepted[accepted_count]), 0);
    ck_assert_int_eq(uv_accept(l, (uv_stream_t *) &accepted[accepted_count]), 0);
    if (++accepted_count == wanted) uv_stop(&loop);
}

/* Opens the listener, and connects all clients to it before the loop runs, so that libuv announces
 * all of them in one turn of the loop. */
static void setup(void) {
    struct sockaddr_in here;
    int len = sizeof(here);
    accepted_count = 0;
    closes = false;
    refusal = refusal_new();
    ck_assert_ptr_nonnull(refusal);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(uv_tcp_init(&loop, &listener), 0);
    ck_assert_int_eq(uv_ip4_addr("127.0.0.1", 0, &here), 0);
    ck_assert_int_eq(uv_tcp_bind(&listener, (struct sockaddr *) &here, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *) &listener, CLIENTS, on_connection), 0);
    ck_assert_int_eq(uv_tcp_getsockname(&listener, (struct sockaddr *) &here, &len), 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(clients[i], 0);
        ck_assert_int_eq(connect(clients[i], (struct sockaddr *) &here, sizeof(here)), 0);
    }
}

static void teardown(void) {
    for (int i = 0; i < accepted_count; i++) uv_close((uv_handle_t *) &accepted[i], NULL);
    if (!closes) uv_close((uv_handle_t *) &listener, NULL);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < CLIENTS; i++) (void) close(clients[i]);
}

/* Reads from a client's end until it is closed, which must be without any byte. */
static void expect_closed(int fd) {
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
}

/* The handle of the refusal is in use for the first connection when the second one is announced. So
 * on_connection() is called twice for the second one, and has no memory both times. */
START_TEST(connections_without_memory_are_closed_and_later_ones_accepted) {
    setup();
    failures_left = 3;
    wanted = CLIENTS - 2;
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(failures_left, 0);
    ck_assert_int_eq(accepted_count, wanted);
    expect_closed(clients[0]);
    expect_closed(clients[1]);
    refusal_free(refusal);
    teardown();
}
END_TEST

/* The second call of on_connection() finds the refusal's handle in use, and its owner frees the
 * refusal: the loop frees the memory later, and on_connection() is not called again. */
START_TEST(a_listener_that_closes_while_it_refuses) {
    setup();
    closes = true;
    failures_left = 2;
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(accepted_count, 0);
    expect_closed(clients[0]);
    expect_closed(clients[1]);
    teardown();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("refusal");
    TCase *tests = tcase_create("refusal");
    tcase_add_test(tests, connections_without_memory_are_closed_and_later_ones_accepted);
    tcase_add_test(tests, a_listener_that_closes_while_it_refuses);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
