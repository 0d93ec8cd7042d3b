/* Tests of base/: strict parsing, growing buffers, splitting bytes into frames, and error texts to
 * which callers prepend context. */
#include "base/buffer.h"
#include "base/error.h"
#include "base/log/log.h"
#include "base/network/address.h"
#include "base/network/network.h"
#include "base/network/port_range.h"
#include "base/process/memory_limit.h"
#include "base/text/parse.h"
#include "base/time/clock.h"
#include "base/time/standstill.h"
#include "base/time/suspension.h"
#include "base/time/waiting.h"
#include "tests/lib/run_suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(test_parse_i64) {
    int64_t v = -1;
    ck_assert_int_eq(cr_parse_i64("42", 0, 100, &v), 0);
    ck_assert_int_eq(v, 42);
    ck_assert_int_eq(cr_parse_i64("101", 0, 100, &v), -ERANGE);
    ck_assert_int_eq(cr_parse_i64("99999999999999999999", 0, INT64_MAX, &v), -ERANGE);
    const char *const bad[] = {"", " 1", "1 ", "x", "1x", "0x10", "1.5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(cr_parse_i64(bad[i], 0, 100, &v), -EINVAL);
    }
    ck_assert_int_eq(cr_parse_i64(NULL, 0, 100, &v), -EINVAL);
    ck_assert_int_eq(v, 42);
}
END_TEST

START_TEST(test_parse_bool) {
    int v = -1;
    ck_assert_int_eq(cr_parse_bool("Yes", &v), 0);
    ck_assert_int_eq(v, 1);
    ck_assert_int_eq(cr_parse_bool("F", &v), 0);
    ck_assert_int_eq(v, 0);
    ck_assert_int_eq(cr_parse_bool("maybe", &v), -EINVAL);
}
END_TEST

START_TEST(test_error_text) {
    struct cr_error err;
    cr_error_clear(&err);
    errno = ENOENT;
    ck_assert_int_eq(cr_fail_errno(&err, "cannot open '%s'", "/x"), -ENOENT);
    ck_assert_int_eq(cr_wrap(&err, "start worker %d", 3), -ENOENT);
    ck_assert_str_eq(err.text, "start worker 3: cannot open '/x': No such file or directory");
    ck_assert_int_eq(cr_fail(NULL, -EIO, "unseen"), -EIO);
}
END_TEST

START_TEST(test_buffer) {
    struct cr_buffer b = {0};
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(cr_buffer_printf(&b, "%03d", i), 0);
    ck_assert_uint_eq(b.len, 3000);
    cr_buffer_consume(&b, 2997);
    ck_assert_int_eq(memcmp(b.data, "999", 3), 0);
    cr_buffer_done(&b);
    ck_assert_ptr_null(b.data);
}
END_TEST

/* Handles a frame of the test's own format: one digit n, then n bytes. It records the bytes; a
 * frame that begins with 'x' makes it return an error, which stops the loop. */
static int64_t take_frame(void *arg, const char *data, size_t len) {
    size_t n = (size_t) (data[0] - '0');
    if (len < n + 1) return 0;
    if (data[1] == 'x') return -EPROTO;
    ck_assert_int_eq(cr_buffer_append(arg, data + 1, n), 0);
    return (int64_t) n + 1;
}

START_TEST(test_take_frames) {
    struct cr_buffer b = {0}, got = {0};
    ck_assert_int_eq(cr_buffer_take_frames(&b, take_frame, &got), 0);
    ck_assert_int_eq(cr_buffer_append(&b, "2ab1c3de", 8), 0);
    ck_assert_int_eq(cr_buffer_take_frames(&b, take_frame, &got), 0);
    ck_assert_int_eq(memcmp(got.data, "abc", got.len), 0);
    ck_assert_int_eq(memcmp(b.data, "3de", b.len), 0); /* the incomplete frame stays */
    ck_assert_int_eq(cr_buffer_append(&b, "f1x1g", 5), 0);
    ck_assert_int_eq(cr_buffer_take_frames(&b, take_frame, &got), -EPROTO);
    ck_assert_int_eq(memcmp(got.data, "abcdef", got.len), 0);
    ck_assert_uint_eq(b.len, 0); /* the buffer keeps no bytes after a frame that caused an error */
    cr_buffer_done(&got);
}
END_TEST

/* A frame handler for a connection that is replaced while a frame is handled: the handler puts the
 * first bytes of the new connection into the buffer. They must still be there when
 * cr_buffer_take_frames() returns. */
static int64_t take_and_reconnect(void *arg, const char *data, size_t len) {
    (void) data, (void) len;
    ck_assert_int_eq(cr_buffer_append(arg, "new", 3), 0);
    return -ECANCELED;
}

START_TEST(test_take_frames_reentered) {
    struct cr_buffer b = {0};
    ck_assert_int_eq(cr_buffer_append(&b, "old", 3), 0);
    ck_assert_int_eq(cr_buffer_take_frames(&b, take_and_reconnect, &b), -ECANCELED);
    ck_assert_int_eq(memcmp(b.data, "new", b.len), 0);
    cr_buffer_done(&b);
}
END_TEST

START_TEST(test_endpoint) {
    struct cr_endpoint e;
    struct cr_error err;
    ck_assert_int_eq(cr_endpoint_parse("node1:1234", 29400, &e, &err), 0);
    ck_assert_str_eq(e.host, "node1");
    ck_assert_uint_eq(e.port, 1234);
    ck_assert_int_eq(cr_endpoint_parse(" node1 ", 29400, &e, &err), 0);
    ck_assert_uint_eq(e.port, 29400);
    ck_assert_int_eq(cr_endpoint_parse("[::1]:80", 1, &e, &err), 0);
    ck_assert_str_eq(e.host, "::1");
    ck_assert_uint_eq(e.port, 80);
    ck_assert_int_eq(cr_endpoint_parse("[fe80::1]", 7, &e, &err), 0);
    ck_assert_str_eq(e.host, "fe80::1");
    ck_assert_uint_eq(e.port, 7);
    ck_assert_int_eq(cr_endpoint_parse("", 7, &e, &err), 0);
    ck_assert_str_eq(e.host, "localhost");
    const char *const bad[] = {"h:99999", "h:",   "h:x", "a b:1",   "h:123456", ":80",
                               "h:-1",    "h:+1", "::1", "fe80::1", "a:b:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(cr_endpoint_parse(bad[i], 7, &e, &err), -EINVAL);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
    }
    ck_assert_int_eq(cr_endpoint_parse("fd00::abcd", 7, &e, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "IPv6 stands in brackets"));
    /* As in torchrun, the port is what follows the last colon, also after an IPv6 address. */
    ck_assert_int_eq(cr_endpoint_parse("fe80::1%eth0:80", 7, &e, &err), 0);
    ck_assert_str_eq(e.host, "fe80::1%eth0");
    ck_assert_uint_eq(e.port, 80);
}
END_TEST

START_TEST(test_port_range) {
    static const char *const wrong[] = {"", "5", "-", "5-", "-5", "0-5", "6-5", "1-65536", "1-2-3",
                                        "+1-2", "1- 2", "a-b", "000001-2"};
    struct cr_port_range r = {0};
    struct cr_error err = {0};
    ck_assert_uint_eq(cr_port_range_count(r), 0);
    ck_assert_int_eq(cr_port_range_parse("29500-29600", &r, &err), 0);
    ck_assert_uint_eq(r.first, 29500);
    ck_assert_uint_eq(r.last, 29600);
    ck_assert_uint_eq(cr_port_range_count(r), 101);
    ck_assert_int_eq(cr_port_range_parse("1-65535", &r, &err), 0);
    ck_assert_uint_eq(cr_port_range_count(r), 65535);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        err = (struct cr_error){0};
        ck_assert_msg(cr_port_range_parse(wrong[i], &r, &err) == -EINVAL, "'%s'", wrong[i]);
        ck_assert_ptr_nonnull(strstr(err.text, "write LO-HI"));
    }
}
END_TEST

static struct cr_ip ip_of(const char *text) {
    struct cr_ip ip;
    ck_assert_msg(cr_ip_parse(text, &ip) == 0, "%s", text);
    return ip;
}

static bool has(const struct cr_network_list *l, const char *text) {
    struct cr_ip ip = ip_of(text);
    return cr_network_list_has(l, &ip);
}

START_TEST(test_networks) {
    static const char *const wrong[] = {"", "10", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129", "/8",
                                        "10.0.0.0/", "10.0.0.0/8x", "host", "1.2.3.4,5.6.7.8"};
    static const char *const right[] = {"10.0.0.0/8", "192.168.1.77/25", "fd00::/9", "1.2.3.4"};
    struct cr_network_list l = {0}, copy;
    struct cr_network n;
    struct cr_error err = {0};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_msg(cr_network_parse(wrong[i], &n, &err) == -EINVAL, "'%s'", wrong[i]);
        err = (struct cr_error){0};
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        ck_assert_msg(cr_network_parse(right[i], &n, &err) == 0, "'%s'", right[i]);
        ck_assert_int_eq(cr_network_list_add(&l, &n), 0);
        ck_assert_int_eq(cr_network_list_add(&l, &n), 0);
    }
    ck_assert_int_eq(cr_network_list_add_text(&l, " 5.6.7.8  nonsense fe80::1 "), 0);
    cr_network_list_sort(&l);
    ck_assert_uint_eq(l.cap, l.count); /* 100,000 nodes are a list of 1.7 MB without spare items */
    ck_assert_uint_eq(l.count, 6); /* without the duplicates */
    ck_assert_uint_eq(l.wide, 3);
    ck_assert(has(&l, "10.255.0.1") && !has(&l, "11.0.0.0") && !has(&l, "9.255.255.255"));
    ck_assert(has(&l, "192.168.1.1") && has(&l, "192.168.1.127") && !has(&l, "192.168.1.128"));
    ck_assert(has(&l, "fd7f::1") && !has(&l, "fd80::1"));
    ck_assert(has(&l, "1.2.3.4") && has(&l, "::ffff:1.2.3.4") && !has(&l, "1.2.3.5"));
    ck_assert(has(&l, "5.6.7.8") && has(&l, "fe80::1") && !has(&l, "fe80::2"));
    ck_assert_int_eq(cr_network_list_copy(&l, &copy), 0);
    cr_network_list_done(&l);
    ck_assert(has(&copy, "10.1.1.1") && !has(&l, "10.1.1.1"));
    cr_network_list_done(&copy);
}
END_TEST

START_TEST(test_addresses) {
    char text[CR_NETWORK_TEXT_MAX];
    struct cr_ip v4 = ip_of("127.1.2.3"), v6 = ip_of("::1"), far = ip_of("2001:db8::1");
    ck_assert(cr_ip_is_loopback(&v4) && cr_ip_is_loopback(&v6) && !cr_ip_is_loopback(&far));
    cr_ip_format(&v4, text);
    ck_assert_str_eq(text, "127.1.2.3");
    cr_ip_format(&far, text);
    ck_assert_str_eq(text, "2001:db8::1");
}
END_TEST

START_TEST(test_parts_of_a_socket_address) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(80)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(443),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr local = {.sa_family = AF_UNIX};
    struct cr_ip ip, v4 = ip_of("10.1.2.3"), v6 = ip_of("::1");
    ck_assert_int_eq(inet_pton(AF_INET, "10.1.2.3", &in.sin_addr), 1);
    ck_assert_uint_eq(cr_address_port((struct sockaddr *) &in), 80);
    ck_assert(cr_address_ip((struct sockaddr *) &in, &ip) && cr_ip_is_v4(&ip));
    ck_assert_mem_eq(&ip, &v4, sizeof(ip));
    ck_assert_uint_eq(cr_address_port((struct sockaddr *) &in6), 443);
    ck_assert(cr_address_ip((struct sockaddr *) &in6, &ip) && !cr_ip_is_v4(&ip));
    ck_assert_mem_eq(&ip, &v6, sizeof(ip));
    ck_assert_uint_eq(cr_address_port(&local), 0);
    ck_assert(!cr_address_ip(&local, &ip));
}
END_TEST

static void write_text(const char *folder, const char *name, const char *text) {
    char path[512], command[600];
    (void) snprintf(path, sizeof(path), "%s/%s", folder, name);
    (void) snprintf(command, sizeof(command), "mkdir -p $(dirname '%s')", path);
    ck_assert_int_eq(system(command), 0);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void remove_folder(const char *folder) {
    char command[600];
    (void) snprintf(command, sizeof(command), "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(test_memory_limit_of_cgroup_v2) {
    char dir[] = "/tmp/test_base_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert(cr_cgroup_memory_limit(dir) == UINT64_MAX);
    write_text(dir, "proc/self/cgroup", "0::/a/b\n");
    write_text(dir, "proc/self/mountinfo",
               "30 1 0:2 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    ck_assert(cr_cgroup_memory_limit(dir) == UINT64_MAX);
    write_text(dir, "sys/fs/cgroup/a/b/memory.max", "max\n");
    ck_assert(cr_cgroup_memory_limit(dir) == UINT64_MAX);
    write_text(dir, "sys/fs/cgroup/a/memory.max", "5000000\n"); /* the one above is smaller */
    ck_assert_uint_eq(cr_cgroup_memory_limit(dir), 5000000);
    write_text(dir, "sys/fs/cgroup/a/b/memory.max", "4000000\n");
    ck_assert_uint_eq(cr_cgroup_memory_limit(dir), 4000000);
    /* a container with the host's cgroup namespace: only the container's own cgroup is mounted */
    write_text(dir, "proc/self/mountinfo",
               "30 1 0:2 /a/b /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    write_text(dir, "sys/fs/cgroup/memory.max", "3000000\n");
    ck_assert_uint_eq(cr_cgroup_memory_limit(dir), 3000000);
    remove_folder(dir);
}
END_TEST

START_TEST(test_memory_limit_of_cgroup_v1) {
    char dir[] = "/tmp/test_base_XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    write_text(dir, "proc/self/cgroup", "9:cpu,memory:/job\n8:memoryless:/no\n0::/\n");
    write_text(dir, "proc/self/mountinfo",
               "31 1 0:3 / /cg/cpu rw - cgroup cgroup rw,cpu\n"
               "32 1 0:4 / /cg/memory rw shared:9 - cgroup cgroup rw,cpu,memory\n");
    write_text(dir, "cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_text(dir, "cg/memory/job/memory.limit_in_bytes", "314572800\n");
    ck_assert_uint_eq(cr_cgroup_memory_limit(dir), 314572800);
    remove_folder(dir);
}
END_TEST

START_TEST(test_clock) {
    ck_assert_int_eq(cr_poll_timeout(CR_FOREVER), -1);
    ck_assert_int_eq(cr_poll_timeout(cr_monotonic_ms() - 1), 0);
    ck_assert(cr_deadline_ms(CR_FOREVER) == CR_FOREVER);
    ck_assert_int_gt(cr_poll_timeout(cr_deadline_ms(1000)), 500);
}
END_TEST

START_TEST(test_utc_text) {
    char text[CR_UTC_TEXT_MAX];
    int64_t ns = INT64_C(1795339800) * CR_NS_PER_S + 12345678;
    cr_utc_text(text, ns, 3);
    ck_assert_str_eq(text, "2026-11-22T09:30:00.012Z");
    cr_utc_text(text, ns, 6);
    ck_assert_str_eq(text, "2026-11-22T09:30:00.012345Z");
    cr_utc_text(text, ns, 9);
    ck_assert_str_eq(text, "2026-11-22T09:30:00.012345678Z");
}
END_TEST

START_TEST(test_log_level) {
    ck_assert_int_eq(cr_log_parse_level("INFO", CR_LOG_WARN), CR_LOG_INFO);
    ck_assert_int_eq(cr_log_parse_level("10", CR_LOG_WARN), CR_LOG_DEBUG);
    ck_assert_int_eq(cr_log_parse_level("loud", CR_LOG_WARN), CR_LOG_WARN);
    ck_assert_int_eq(cr_log_parse_level(NULL, CR_LOG_WARN), CR_LOG_WARN);
}
END_TEST

START_TEST(test_standstill) {
    ck_assert_int_eq(cr_standstill_ms(-5), 0);
    ck_assert_int_eq(cr_standstill_ms(CR_STANDSTILL_LEAST_MS - 1), 0);
    ck_assert_int_eq(cr_standstill_ms(CR_STANDSTILL_LEAST_MS), 2 * CR_STANDSTILL_LEAST_MS);
    ck_assert_int_eq(cr_standstill_ms(60000), 60000 + CR_STANDSTILL_LEAST_MS);
}
END_TEST

/* A suspension is found by comparing two clocks: while the machine is suspended, the boot-time
 * clock runs, and the monotonic clock stands still. */
START_TEST(test_suspension) {
    struct cr_suspension s;
    const int64_t s_ns = CR_NS_PER_S, boot = 5000 * s_ns, mono = 4000 * s_ns;
    cr_suspension_init(&s, boot, mono); /* suspended for 1000 s before the start */
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 60 * s_ns, mono + 60 * s_ns), 0);
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 90 * s_ns, mono + 61 * s_ns), 29000);
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 91 * s_ns, mono + 62 * s_ns), 0);
    /* The clocks are read one after the other, here 50 ms apart. This difference is no suspension,
     * and it is not added up over several readings. */
    const int64_t late = 50 * CR_NS_PER_MS;
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 91 * s_ns + late, mono + 62 * s_ns), 0);
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 92 * s_ns + late, mono + 63 * s_ns), 0);
    ck_assert_int_eq(cr_suspension_passed_ms(&s, boot + 93 * s_ns, mono + 63 * s_ns + late), 950);
}
END_TEST

START_TEST(test_waiting) {
    static const int64_t seconds[] = {5, 15, 35, 75, 135, 195};
    for (uint32_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        ck_assert_int_eq(cr_waiting_line_ms(i), seconds[i] * 1000);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_add_test(t, test_parse_i64);
    tcase_add_test(t, test_parse_bool);
    tcase_add_test(t, test_error_text);
    tcase_add_test(t, test_buffer);
    tcase_add_test(t, test_take_frames);
    tcase_add_test(t, test_take_frames_reentered);
    tcase_add_test(t, test_endpoint);
    tcase_add_test(t, test_port_range);
    tcase_add_test(t, test_networks);
    tcase_add_test(t, test_addresses);
    tcase_add_test(t, test_parts_of_a_socket_address);
    tcase_add_test(t, test_memory_limit_of_cgroup_v2);
    tcase_add_test(t, test_memory_limit_of_cgroup_v1);
    tcase_add_test(t, test_clock);
    tcase_add_test(t, test_utc_text);
    tcase_add_test(t, test_standstill);
    tcase_add_test(t, test_suspension);
    tcase_add_test(t, test_waiting);
    tcase_add_test(t, test_log_level);
    suite_add_tcase(s, t);
    return run_suite(s);
}
