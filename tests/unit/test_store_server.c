/* Tests the functions of store/server with real sockets on loopback: several key spaces on one
 * thread, clearing, connections that the server hands to other rooms, and calls from several
 * threads at once. Tests in tests/integration and tests/fault cover the rest of the server. */
#include "base/network/held_port.h"
#include "base/time/clock.h"
#include "store/server/server_internal.h"
#include "store/store.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/store_peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct store_server *server;

static void setup(void) { ck_assert_int_eq(store_server_start(NULL, &server, NULL), 0); }
static void teardown(void) { store_server_stop(server); }

static struct store_space *open_space(uint16_t *port) {
    struct store_space *space;
    struct cr_error err = {0};
    int rc = store_server_open(server, "127.0.0.1", 0, &space, port, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_uint_gt(*port, 0);
    return space;
}

static int dial(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    return fd;
}

static void say(int fd, const void *data, size_t len) {
    ck_assert_int_eq(send(fd, data, len, MSG_NOSIGNAL), (ssize_t) len);
}

static void hear(int fd, void *data, size_t len) {
    ck_assert_int_eq(recv(fd, data, len, MSG_WAITALL), (ssize_t) len);
}

static uint64_t count_keys(uint16_t port) {
    uint8_t raw[8];
    int fd = dial(port);
    say(fd, "\x06", 1);
    hear(fd, raw, 8);
    (void) close(fd);
    return store_load_u64(raw);
}

/* Connects a client, sets /k, and waits until the server has set it. Returns the descriptor. */
static int client_with_key(uint16_t port) {
    int fd = dial(port);
    uint8_t raw[8];
    say(fd, "\x00\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v\x06", 21);
    hear(fd, raw, 8);
    ck_assert_uint_eq(store_load_u64(raw), 1);
    return fd;
}

START_TEST(test_spaces_share_nothing) {
    uint16_t one, two;
    struct store_space *a = open_space(&one), *b = open_space(&two);
    int fd = client_with_key(one);
    ck_assert_uint_eq(count_keys(one), 1);
    ck_assert_uint_eq(count_keys(two), 0);
    char text[64];
    (void) snprintf(text, sizeof(text), "127.0.0.1:%u", one);
    ck_assert_str_eq(store_space_address(a), text);
    store_space_close(a);
    char byte;
    ck_assert_int_eq(recv(fd, &byte, 1, 0), 0); /* the server has closed the connection with FIN */
    ck_assert_uint_eq(count_keys(two), 0);
    store_space_close(b);
    store_space_close(NULL);
    (void) close(fd);
}
END_TEST

START_TEST(test_clear_forgets_and_goes_on) {
    uint16_t port;
    struct store_space *space = open_space(&port);
    int fd = client_with_key(port), waiter = dial(port);
    say(waiter, "\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/w", 19);
    ck_assert_uint_eq(count_keys(port), 1);
    store_space_clear(space);
    char byte;
    ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
    ck_assert_int_eq(recv(waiter, &byte, 1, 0), 0);
    ck_assert_uint_eq(count_keys(port), 0);
    (void) close(client_with_key(port));
    (void) close(fd);
    (void) close(waiter);
}
END_TEST

/* After a fork, the child has all descriptors open until it execs. epoll reports a connection until
 * all its descriptors are closed, so it could still report a client that was cleared and closed.
 * The server must ignore such events. */
START_TEST(test_clearing_while_a_child_has_all_open) {
    uint16_t port;
    struct store_space *space = open_space(&port);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = dial(port);
        uint8_t raw[8];
        say(fds[i], "\x06", 1);
        hear(fds[i], raw, 8);
    }
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    while (child == 0) (void) pause();
    store_space_clear(space);
    for (int i = 0; i < 3; i++) {
        char byte;
        ck_assert_int_eq(recv(fds[i], &byte, 1, 0), 0);
        say(fds[i], "\x06", 1); /* the bytes arrive, because the child still has a copy of the
                                 * descriptor */
    }
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(count_keys(port), 0);
    (void) kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    for (int i = 0; i < 3; i++) (void) close(fds[i]);
}
END_TEST

START_TEST(test_port_in_use) {
    uint16_t port, other;
    struct store_space *space = open_space(&port), *second = NULL;
    struct cr_error err = {0};
    ck_assert_int_eq(store_server_open(server, "127.0.0.1", port, &second, &other, &err),
                     -EADDRINUSE);
    ck_assert_ptr_null(second);
    ck_assert_ptr_nonnull(strstr(err.text, "127.0.0.1"));
    ck_assert_int_eq(store_server_open(server, "no.such.host.invalid", 0, &second, &other, &err),
                     -ENOENT);
    (void) space;
}
END_TEST

/* Finds `count` neighbouring ports that are free on loopback, and stores them in *out. */
static void find_free_ports(uint16_t count, struct cr_port_range *out) {
    uint16_t port, found = 0;
    for (uint16_t first = 20000; found < count; first = (uint16_t) (first + found + 1)) {
        struct store_space *spaces[8];
        ck_assert_uint_lt(first, 30000);
        for (found = 0; found < count; found++) {
            if (store_server_open(server, "127.0.0.1", (uint16_t) (first + found), &spaces[found],
                                  &port, NULL) < 0) break;
        }
        for (uint16_t i = 0; i < found; i++) store_space_close(spaces[i]);
        *out = (struct cr_port_range){first, (uint16_t) (first + count - 1)};
    }
}

START_TEST(test_ports_of_a_range) {
    struct store_server_options options = {0};
    struct store_server *bounded;
    struct store_space *spaces[3], *fourth = NULL, *given;
    struct cr_error err = {0};
    uint16_t ports[3], port;
    find_free_ports(3, &options.ports);
    ck_assert_int_eq(store_server_start(&options, &bounded, NULL), 0);
    for (int i = 0; i < 3; i++) {
        int rc = store_server_open(bounded, "127.0.0.1", 0, &spaces[i], &ports[i], &err);
        ck_assert_int_eq(rc, 0);
        ck_assert_uint_ge(ports[i], options.ports.first);
        ck_assert_uint_le(ports[i], options.ports.last);
    }
    ck_assert_int_eq(store_server_open(bounded, "127.0.0.1", 0, &fourth, &port, &err),
                     -EADDRNOTAVAIL);
    ck_assert_ptr_nonnull(strstr(err.text, "are in use; give a larger --port-range"));
    store_space_close(spaces[1]);
    ck_assert_int_eq(store_server_open(bounded, "127.0.0.1", 0, &fourth, &port, &err), 0);
    ck_assert_uint_eq(port, ports[1]);
    /* a port that the caller gives need not be in the server's port range */
    ck_assert_int_eq(store_server_open(server, "127.0.0.1", 0, &given, &port, &err), 0);
    store_space_close(given);
    ck_assert_int_eq(store_server_open(bounded, "127.0.0.1", port, &given, &port, &err), 0);
    store_server_stop(bounded);
}
END_TEST

START_TEST(test_a_port_of_a_range_is_reused_last) {
    struct store_server_options options = {0};
    struct store_server *bounded;
    struct store_space *space;
    uint16_t ports[3];
    find_free_ports(3, &options.ports);
    ck_assert_int_eq(store_server_start(&options, &bounded, NULL), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(store_server_open(bounded, "127.0.0.1", 0, &space, &ports[i], NULL), 0);
        store_space_close(space);
    }
    ck_assert(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]);
    store_server_stop(bounded);
}
END_TEST

/* Servers begin at different ports of the range, so some of them come to the held port first. */
START_TEST(test_a_held_port_of_a_range_is_left_alone) {
    struct store_server_options options = {0};
    uint16_t held, port;
    find_free_ports(3, &options.ports);
    int fd = cr_hold_port(options.ports, &held);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < 16; i++) {
        struct store_server *bounded;
        struct store_space *space;
        ck_assert_int_eq(store_server_start(&options, &bounded, NULL), 0);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(store_server_open(bounded, "", 0, &space, &port, NULL), 0);
            ck_assert_uint_ne(port, held);
        }
        store_server_stop(bounded);
    }
    (void) close(fd);
}
END_TEST

/* ---- connections that the server hands to other rooms ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct store_handoff got;
    char bytes[64];
    int count;
} handed = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_handoff(void *arg, const struct store_handoff *handoff) {
    ck_assert_ptr_eq(arg, &handed);
    (void) pthread_mutex_lock(&handed.lock);
    handed.got = *handoff;
    memcpy(handed.bytes, handoff->data, handoff->len);
    handed.count++;
    (void) pthread_cond_signal(&handed.changed);
    (void) pthread_mutex_unlock(&handed.lock);
}

START_TEST(test_a_registered_magic_gets_the_connection) {
    uint16_t port;
    struct store_space *space = open_space(&port);
    handed.count = 0;
    ck_assert_int_eq(store_server_register_magic(server, "RDZ1", on_handoff, &handed), 0);
    ck_assert_int_eq(store_server_register_magic(server, "RDZ1", on_handoff, &handed), -EEXIST);
    ck_assert_int_eq(store_server_register_magic(server, STORE_ADMIN_MAGIC, on_handoff, NULL),
                     -EEXIST);
    ck_assert_int_eq(store_server_register_magic(server, "\x08xyz", on_handoff, NULL), -EINVAL);
    int fd = dial(port);
    say(fd, "RD", 2);
    say(fd, "Z1hello", 7);
    (void) pthread_mutex_lock(&handed.lock);
    while (handed.count == 0) (void) pthread_cond_wait(&handed.changed, &handed.lock);
    (void) pthread_mutex_unlock(&handed.lock);
    ck_assert_ptr_eq(handed.got.space, space);
    ck_assert_uint_ge(handed.got.len, 4);
    ck_assert_mem_eq(handed.bytes, "RDZ1hello", handed.got.len);
    char rest[16];
    size_t left = 9 - handed.got.len;
    if (left > 0) {
        struct pollfd ready = {.fd = handed.got.fd, .events = POLLIN};
        ck_assert_int_eq(poll(&ready, 1, -1), 1);
        ck_assert_int_gt(recv(handed.got.fd, rest, sizeof(rest), 0), 0);
    }
    /* the server no longer uses the connection; only this test does */
    say(handed.got.fd, "welcome", 7);
    hear(fd, rest, 7);
    ck_assert_mem_eq(rest, "welcome", 7);
    store_space_close(space);
    say(handed.got.fd, "still", 5);
    hear(fd, rest, 5);
    (void) close(handed.got.fd);
    (void) close(fd);
}
END_TEST

/* ---- many keys, with a server whose loop runs only when the test calls turn() ---- */

static int turning;

static void setup_stepped(void) {
    struct store_server_options options = {.no_thread = 1};
    ck_assert_int_eq(store_server_start(&options, &server, NULL), 0);
    turning = eventfd(1, EFD_CLOEXEC);
    ck_assert_int_ge(turning, 0);
}

static void teardown_stepped(void) {
    teardown();
    (void) close(turning);
}

/* Runs one or two turns of the loop: the eventfd that ends the loop is always readable, so the loop
 * ends after its first poll. */
static void turn(void) { ck_assert_int_eq(store_server_run(server, turning), 0); }

static void fill(struct store_space *space, int count) {
    struct peer p;
    struct cr_buffer out = {0};
    const struct store_encoder e = {&out, STORE_DIALECT_MODERN, {"/", 1}};
    peer_open(&p, &space->keys, &peer_limits);
    (void) store_encode_validate(&out);
    for (int i = 0; i < count; i++) {
        char key[16];
        (void) snprintf(key, sizeof(key), "%d", i);
        (void) store_encode_value_head(&e, STORE_OP_SET, STORE_BYTES(key), 1);
        (void) cr_buffer_append(&out, "v", 1);
    }
    peer_send(&p, out.data, out.len);
    ck_assert_uint_eq(space->keys.key_count, (size_t) count);
    peer_close(&p);
    cr_buffer_done(&out);
}

/* Sends GETNUMKEYS and runs the loop until the reply has arrived. Returns the number of keys. */
static uint64_t count_keys_stepped(int fd) {
    uint8_t raw[8];
    say(fd, "\x06", 1);
    while (recv(fd, raw, sizeof(raw), MSG_DONTWAIT) < 0) turn();
    return store_load_u64(raw);
}

START_TEST(test_clients_are_served_between_two_pieces) {
    uint16_t port, other;
    struct store_space *space = open_space(&port);
    (void) open_space(&other);
    fill(space, 200000);
    size_t all = space->keys.memory;
    store_space_clear(space);
    ck_assert_uint_eq(space->keys.memory, all); /* no memory is freed yet */
    int elsewhere = dial(other), here = dial(port), served = 0;
    while (space->keys.remains != NULL) {
        ck_assert_uint_eq(count_keys_stepped(elsewhere), 0);
        ck_assert_uint_eq(count_keys_stepped(here), 0);
        served++;
    }
    ck_assert_int_gt(served, 10);
    ck_assert_uint_eq(space->keys.memory, 0);
    /* no work is left, so the loop may sleep */
    ck_assert(!uv_is_active((uv_handle_t *) &server->clearing));
    (void) close(elsewhere);
    (void) close(here);
}
END_TEST

START_TEST(test_clearing_again_before_all_is_freed) {
    uint16_t port;
    struct store_space *space = open_space(&port), *next = open_space(&port);
    for (int i = 0; i < 3; i++) {
        fill(space, 5000);
        fill(next, 5000);
        store_space_clear(space);
        store_space_clear(next);
        turn();
        ck_assert_ptr_nonnull(space->keys.remains);
    }
    while (!STAILQ_EMPTY(&server->cleared)) turn();
    ck_assert_uint_eq(space->keys.memory + next->keys.memory, 0);
}
END_TEST

/* When a key space is closed, its port is free at once. Its memory is freed piece by piece; or, if
 * _i is 0, all at once when the server stops. */
START_TEST(test_a_closed_space_is_gone_before_its_keys) {
    uint16_t port, again;
    struct store_space *space = open_space(&port), *second = NULL;
    fill(space, 5000);
    store_space_close(space);
    ck_assert_ptr_eq(STAILQ_FIRST(&server->cleared), space);
    ck_assert_int_eq(store_server_open(server, "127.0.0.1", port, &second, &again, NULL), 0);
    if (_i == 0) return; /* teardown stops the server */
    while (!STAILQ_EMPTY(&server->cleared)) turn();
    int fd = dial(port);
    ck_assert_uint_eq(count_keys_stepped(fd), 0);
    (void) close(fd);
}
END_TEST

START_TEST(test_many_clients_take_leave_in_pieces) {
    enum { CLIENTS = 400 };
    uint16_t port, other;
    struct store_space *space = open_space(&port);
    (void) open_space(&other);
    int fds[CLIENTS], elsewhere = dial(other), turns = 0;
    for (int i = 0; i < CLIENTS; i++) fds[i] = dial(port);
    while (space->connection_count < CLIENTS) turn();
    /* The server must close with FIN, not RST, although it has not read these bytes. */
    say(fds[0], "\x06\x06\x06", 3);
    store_space_clear(space);
    ck_assert_uint_eq(space->connection_count, 0);
    for (; !LIST_EMPTY(&server->left); turns++) turn();
    ck_assert_int_ge(turns, 2);
    ck_assert_uint_eq(count_keys_stepped(elsewhere), 0);
    for (int i = 0; i < CLIENTS; i++) {
        char byte;
        ck_assert_int_eq(recv(fds[i], &byte, 1, 0), 0);
        (void) close(fds[i]);
    }
    ck_assert(!uv_is_active((uv_handle_t *) &server->freeing));
    int fresh = dial(port);
    ck_assert_uint_eq(count_keys_stepped(fresh), 0);
    (void) close(fresh);
    (void) close(elsewhere);
}
END_TEST

/* ---- calls from several threads ---- */

static void *open_clear_close(void *arg) {
    (void) arg;
    for (int i = 0; i < 50; i++) {
        uint16_t port;
        struct store_space *space = open_space(&port);
        int fd = client_with_key(port);
        store_space_clear(space);
        ck_assert_uint_eq(count_keys(port), 0);
        store_space_close(space);
        (void) close(fd);
    }
    return NULL;
}

START_TEST(test_calls_from_many_threads) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, open_clear_close, NULL), 0);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

static void *wait_for_go(void *arg) {
    struct store *s = arg;
    struct store_bytes key = STORE_BYTES("go");
    return store_wait(s, &key, 1, CR_FOREVER, NULL) == 0 ? arg : NULL;
}

static struct store_client *connect_to(uint16_t port) {
    struct store_client *c = NULL;
    ck_assert_int_eq(
        store_client_connect("127.0.0.1", port, STORE_PROTOCOL_MODERN, 30000, &c, NULL), 0);
    return c;
}

/* One thread waits for a key on its connection. While it waits, the server serves requests of a
 * second thread. The last of these requests sets the key. */
START_TEST(test_a_wait_holds_up_nobody_else) {
    uint16_t port;
    struct store_space *space = open_space(&port);
    struct store_client *waiter = connect_to(port), *other = connect_to(port);
    struct store *s = store_client_store(other);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_go, store_client_store(waiter)), 0);
    for (int i = 1; i <= 200; i++) {
        int64_t total = 0;
        ck_assert_int_eq(store_add(s, STORE_BYTES("n"), 1, 30000, &total, NULL), 0);
        ck_assert_int_eq(total, i);
    }
    ck_assert_int_eq(store_set(s, STORE_BYTES("go"), STORE_BYTES("1"), 30000, NULL), 0);
    void *done = NULL;
    ck_assert_int_eq(pthread_join(thread, &done), 0);
    ck_assert_ptr_eq(done, store_client_store(waiter));
    store_client_close(waiter);
    store_client_close(other);
    store_space_close(space);
}
END_TEST

/* ---- values that were lent to the kernel ---- */

#define BIG (256 << 10) /* bytes; values of this size are lent */

/* Sets /k to BIG times `byte`, and waits until the server has set it. */
static void set_big(int fd, char byte) {
    static char request[19 + BIG + 1] = "\0\x02\0\0\0\0\0\0\0/k";
    uint8_t raw[8];
    store_put_u64(request + 11, BIG);
    memset(request + 19, byte, BIG);
    request[19 + BIG] = 6;
    say(fd, request, sizeof(request));
    hear(fd, raw, 8);
}

/* A client does not read its reply, whose pages are lent to the kernel, while the key gets other
 * values. All memory of this process is locked, so the kernel takes no pages back; only the
 * sanitizers let no memory be locked, and the pages are given up as usual. */
START_TEST(test_a_lent_reply_does_not_change_when_memory_is_locked) {
    static char reply[8 + BIG];
    uint16_t port;
    struct store_space *space = open_space(&port);
    int fd = dial(port), reader = dial(port);
    if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0) {
        (void) printf("note: the memory cannot be locked here; not tested: %s\n", strerror(errno));
        return;
    }
    /* after these, the allocator takes and frees values without mapping memory */
    for (int i = 0; i < 4; i++) set_big(fd, 'x');
    set_big(fd, 'a');
    say(reader, "\x02\x02\0\0\0\0\0\0\0/k", 11);
    struct pollfd readable = {.fd = reader, .events = POLLIN};
    ck_assert_int_eq(poll(&readable, 1, 60000), 1);
    for (int i = 0; i < 20; i++) set_big(fd, 'b');
    hear(reader, reply, sizeof(reply));
    for (size_t i = 8; i < sizeof(reply); i++) ck_assert_int_eq(reply[i], 'a');
    (void) close(fd);
    (void) close(reader);
    store_space_close(space);
}
END_TEST

START_TEST(test_stop_with_everything_open) {
    uint16_t port;
    struct store_space *space = open_space(&port);
    (void) space;
    for (int i = 0; i < 20; i++) (void) client_with_key(port);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("store_server");
    TCase *t = tcase_create("server");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, test_spaces_share_nothing);
    tcase_add_test(t, test_clear_forgets_and_goes_on);
    tcase_add_test(t, test_clearing_while_a_child_has_all_open);
    tcase_add_test(t, test_port_in_use);
    tcase_add_test(t, test_ports_of_a_range);
    tcase_add_test(t, test_a_port_of_a_range_is_reused_last);
    tcase_add_test(t, test_a_held_port_of_a_range_is_left_alone);
    tcase_add_test(t, test_a_registered_magic_gets_the_connection);
    tcase_add_test(t, test_calls_from_many_threads);
    tcase_add_test(t, test_a_wait_holds_up_nobody_else);
    tcase_add_test(t, test_a_lent_reply_does_not_change_when_memory_is_locked);
    tcase_add_test(t, test_stop_with_everything_open);
    suite_add_tcase(suite, t);
    t = tcase_create("turn by turn");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup_stepped, teardown_stepped);
    tcase_add_test(t, test_clients_are_served_between_two_pieces);
    tcase_add_test(t, test_clearing_again_before_all_is_freed);
    tcase_add_test(t, test_many_clients_take_leave_in_pieces);
    tcase_add_loop_test(t, test_a_closed_space_is_gone_before_its_keys, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
