/* Tests of jobs on several hosts: lists of hosts, the tree, messages, the commands that start a
 * deputy, host names in front of lines, and when a job begins and ends. */
#include "base/memory.h"
#include "base/time/clock.h"
#include "launcher/hosts/hosts.h"
#include "launcher/hosts/lead_internal.h"
#include "launcher/hosts/lines_internal.h"
#include "launcher/hosts/message_internal.h"
#include "launcher/hosts/tree_internal.h"
#include "launcher/hosts/way_internal.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct cr_error err;

/* ---- lists of hosts ---- */

static void expect_host(const struct hosts_list *list, size_t i, const char *name, unsigned slots) {
    ck_assert_uint_lt(i, list->count);
    ck_assert_str_eq(list->items[i].name, name);
    ck_assert_uint_eq(list->items[i].slots, slots);
}

START_TEST(a_list_has_hosts_with_and_without_slots) {
    struct hosts_list list = {0};
    ck_assert_int_eq(hosts_read_list("a:8,me@b.example,[fd77::1]:4,fd77::2,a:2", &list, &err), 0);
    ck_assert_uint_eq(list.count, 4);
    expect_host(&list, 0, "a", 10);
    expect_host(&list, 1, "me@b.example", 0);
    expect_host(&list, 2, "fd77::1", 4);
    expect_host(&list, 3, "fd77::2", 0);
    hosts_list_done(&list);
    ck_assert_int_eq(hosts_read_list("me@[fe80::1%eth0]:2,fe80::2%ib0,[::1]", &list, &err), 0);
    ck_assert_uint_eq(list.count, 3);
    expect_host(&list, 0, "me@fe80::1%eth0", 2);
    expect_host(&list, 1, "fe80::2%ib0", 0);
    expect_host(&list, 2, "::1", 0);
    ck_assert_int_eq(hosts_refuse_users(&list, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "write 'fe80::1%eth0'") != NULL, "%s", err.text);
    hosts_list_done(&list);
}
END_TEST

START_TEST(a_hostfile_may_have_either_form) {
    struct hosts_list list = {0};
    const char *text = "\xef\xbb\xbf# nodes\n"
                       "a slots=8 max_slots=16\r\n"
                       "\n"
                       "b:4 # four\n"
                       "  c\n"
                       "c\n"
                       "d:2 ifhn=ib0";
    ck_assert_int_eq(hosts_read_file(text, &list, &err), 0);
    ck_assert_uint_eq(list.count, 4);
    expect_host(&list, 0, "a", 8);
    expect_host(&list, 1, "b", 4);
    expect_host(&list, 2, "c", 2);
    expect_host(&list, 3, "d", 2);
    hosts_list_done(&list);
}
END_TEST

START_TEST(words_that_are_no_hosts_are_quoted) {
    static const struct {
        const char *text, *needle;
    } mistakes[] = {{"a:0", "'0' is not a number of workers"},
                    {"a:x", "'x' is not a number"},
                    {"a,,b", "'' is not the name of a host"},
                    {"-oProxyCommand=x", "is not the name of a host"},
                    {"a b", "is not the name of a host"},
                    {"me@", "is not the name of a host"},
                    {"@a", "is not the name of a host"},
                    {"me@-oProxyCommand", "is not the name of a host"},
                    {"a:2:3", "is not the name of a host"},
                    {"[::1", "is not the name of a host"},
                    {"[::1:2", "is not the name of a host"},
                    {"::1]", "is not the name of a host"},
                    {"[::1]x:2", "is not the name of a host"},
                    {"x[::1]", "is not the name of a host"},
                    {"[a]:2", "is not the name of a host"},
                    {"me@[a]", "is not the name of a host"},
                    {"me:x@a", "'x@a' is not a number"},
                    {"[]", "is not the name of a host"},
                    {"a;reboot", "is not the name of a host"}};
    for (size_t i = 0; i < CR_ARRAY_LEN(mistakes); i++) {
        struct hosts_list list = {0};
        ck_assert_int_eq(hosts_read_list(mistakes[i].text, &list, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, mistakes[i].needle) != NULL, "%s", err.text);
        hosts_list_done(&list);
    }
    struct hosts_list list = {0};
    ck_assert_int_eq(hosts_read_file("a\nb sluts=8\n", &list, &err), -EINVAL);
    ck_assert_msg(strncmp(err.text, "line 2: 'sluts=8' is not known", 30) == 0, "%s", err.text);
    hosts_list_done(&list);
}
END_TEST

/* ---- the tree ---- */

START_TEST(each_host_has_one_parent) {
    for (uint32_t count = 1; count < 200; count++) {
        struct hosts_range all = {.first = 3, .count = count};
        uint32_t parts = hosts_range_parts(all, 32), next = 3;
        ck_assert_uint_eq(parts, count < 32 ? count : 32);
        for (uint32_t i = 0; i < parts; i++) {
            struct hosts_range part = hosts_range_part(all, 32, i);
            ck_assert_uint_eq(part.first, next);
            ck_assert_uint_ge(part.count, count / parts);
            ck_assert_uint_le(part.count, count / parts + 1);
            next += part.count;
        }
        ck_assert_uint_eq(next, 3 + count);
    }
}
END_TEST

/* ---- messages ---- */

static const char *const names[] = {"a", "b", "c", NULL};
static const char *const workers[] = {"8", "", "gpu", NULL};
static const char *const rsh[] = {"ssh", "-x", NULL};
static const char *const words[] = {"--nnodes=3", "--role=a b", NULL};
static const char *const program[] = {"--", "train.py", "", NULL};
static const char *const variables[] = {"A=1\n2", NULL};
static const struct hosts_plan plan = {.range = {5, 3}, .names = names, .workers = workers,
                                       .max_nodes = 3, .input_host = 5, .fan_out = 2,
                                       .copies_crun = 1, .has_pty = 1,
                                       .pty_size = 24 << 16 | 100, .folder = "/x",
                                       .crun = "/bin/crun", .conf = "", .rsh = rsh,
                                       .options = words,
                                       .program = program, .variables = variables,
                                       .secret = "s\0t", .secret_len = 3};

START_TEST(a_plan_arrives_as_it_was_sent) {
    struct cr_buffer out = {0};
    struct hosts_frame frame;
    struct hosts_plan got;
    ck_assert_int_eq(hosts_put_plan(&out, &plan, (struct hosts_range){6, 2}), 0);
    ck_assert_int_eq(hosts_get_frame(out.data, out.len, &frame), (int64_t) out.len);
    ck_assert_int_eq(frame.type, HOSTS_PLAN);
    ck_assert_int_eq(hosts_get_plan(&frame, &got), 0);
    ck_assert_uint_eq(got.range.first, 6);
    ck_assert_uint_eq(got.range.count, 2);
    ck_assert_uint_eq(got.has_pty, 1);
    ck_assert_uint_eq(got.pty_size, 24 << 16 | 100);
    ck_assert_str_eq(got.names[0], "b");
    ck_assert_str_eq(got.workers[1], "gpu");
    ck_assert_str_eq(got.options[1], "--role=a b");
    ck_assert_str_eq(got.program[2], "");
    ck_assert_ptr_null(got.program[3]);
    ck_assert_str_eq(got.variables[0], "A=1\n2");
    ck_assert_uint_eq(got.secret_len, 3);
    ck_assert_mem_eq(got.secret, "s\0t", 3);
    hosts_plan_done(&got);
    cr_buffer_done(&out);
}
END_TEST

/* Cuts an encoded plan at each byte, and changes each byte. The decoder must refuse or decode the
 * result, and must not read beyond its end, which the sanitizers would detect. */
START_TEST(a_broken_plan_is_refused) {
    struct cr_buffer out = {0};
    struct hosts_frame frame;
    struct hosts_plan got;
    ck_assert_int_eq(hosts_put_plan(&out, &plan, plan.range), 0);
    for (size_t cut = 0; cut < out.len; cut++) {
        char *copy = malloc(cut + 1);
        memcpy(copy, out.data, cut);
        ck_assert_int_eq(hosts_get_frame(copy, cut, &frame), 0);
        frame = (struct hosts_frame){.type = HOSTS_PLAN, .data = copy,
                                     .len = cut < HOSTS_HEADER ? 0 : cut - HOSTS_HEADER};
        if (cut >= HOSTS_HEADER) frame.data += HOSTS_HEADER;
        ck_assert_int_eq(hosts_get_plan(&frame, &got), -EPROTO);
        free(copy);
    }
    for (size_t i = HOSTS_HEADER; i < out.len; i++) {
        out.data[i] ^= (char) 0x81;
        (void) hosts_get_frame(out.data, out.len, &frame);
        if (hosts_get_plan(&frame, &got) == 0) hosts_plan_done(&got);
        out.data[i] ^= (char) 0x81;
    }
    cr_buffer_done(&out);
}
END_TEST

START_TEST(frames_have_limits) {
    struct hosts_frame frame;
    ck_assert_int_eq(hosts_get_frame("\xff\xff\xff\xff\1\0\0\0\0", 9, &frame), -EPROTO);
    ck_assert_int_eq(hosts_get_frame("\0\0\0\4\1\0\0\0", 8, &frame), -EPROTO);
    ck_assert_int_eq(hosts_get_frame("\0\0\0\5\x63\0\0\0\0", 9, &frame), -EPROTO);
    ck_assert_int_eq(hosts_get_frame("\0\0\0\5\1\xff\0\0\0", 9, &frame), -EPROTO);
    ck_assert_int_eq(hosts_get_frame("\0\0\0\5\1\0\0\0\0", 9, &frame), 9);
}
END_TEST

START_TEST(small_messages_arrive) {
    struct cr_buffer out = {0};
    struct hosts_frame frame;
    struct hosts_go go = {.hosting = 7, .endpoint = "[fd77::1]:4711"}, got;
    char address[CR_HOST_MAX];
    uint32_t port = 0, number = 0;
    ck_assert_int_eq(hosts_put_go(&out, &go), 0);
    ck_assert_int_gt(hosts_get_frame(out.data, out.len, &frame), 0);
    ck_assert_int_eq(hosts_get_go(&frame, &got), 0);
    ck_assert_uint_eq(got.hosting, 7);
    ck_assert_str_eq(got.endpoint, go.endpoint);
    cr_buffer_clear(&out);
    ck_assert_int_eq(hosts_put_ready(&out, 2, "10.0.0.1", 65535), 0);
    ck_assert_int_gt(hosts_get_frame(out.data, out.len, &frame), 0);
    ck_assert_int_eq(hosts_get_ready(&frame, address, &port), 0);
    ck_assert_str_eq(address, "10.0.0.1");
    ck_assert_uint_eq(port, 65535);
    cr_buffer_clear(&out);
    ck_assert_int_eq(hosts_put_number(&out, HOSTS_ENDED, 2, 137), 0);
    ck_assert_int_gt(hosts_get_frame(out.data, out.len, &frame), 0);
    ck_assert_int_eq(hosts_get_number(&frame, &number), 0);
    ck_assert_uint_eq(number, 137);
    cr_buffer_done(&out);
}
END_TEST

START_TEST(a_greeting_is_told_from_what_a_shell_prints) {
    uint32_t protocol = 0;
    const char *version = NULL;
    ck_assert_int_eq(hosts_read_greeting("Welcome to node7", &protocol, &version),
                     HOSTS_NO_GREETING);
    ck_assert_int_eq(hosts_read_greeting("crun-deputy x 1.0", &protocol, &version),
                     HOSTS_NO_GREETING);
    ck_assert_int_eq(hosts_read_greeting("crun-deputy-missing", &protocol, &version),
                     HOSTS_NEEDS_CRUN);
    ck_assert_int_eq(hosts_read_greeting("crun-deputy-found", &protocol, &version),
                     HOSTS_HAS_CRUN);
    ck_assert_int_eq(hosts_read_greeting("crun-deputy 3 1.2-rc", &protocol, &version),
                     HOSTS_GREETS);
    ck_assert_uint_eq(protocol, 3);
    ck_assert_str_eq(version, "1.2-rc");
}
END_TEST

/* ---- how a deputy is started ---- */

START_TEST(a_shell_that_finds_no_crun_is_asked_again) {
    ck_assert_int_eq(hosts_way_next(HOSTS_SAME_PATH, 127, false), HOSTS_BY_NAME);
    ck_assert_int_eq(hosts_way_next(HOSTS_BY_NAME, 127, false), HOSTS_NO_WAY);
    ck_assert_int_eq(hosts_way_next(HOSTS_SAME_PATH, 126, true), HOSTS_COPY);
    ck_assert_int_eq(hosts_way_next(HOSTS_COPY, 127, true), HOSTS_NO_WAY);
    ck_assert_int_eq(hosts_way_next(HOSTS_SAME_PATH, 255, true), HOSTS_NO_WAY); /* ssh failed */
    ck_assert_int_eq(hosts_way_next(HOSTS_SAME_PATH, HOSTS_OTHER_VERSION, false), HOSTS_NO_WAY);
    ck_assert_int_eq(hosts_way_next(HOSTS_BY_NAME, HOSTS_OTHER_VERSION, true), HOSTS_COPY);
    ck_assert_int_eq(hosts_way_next(HOSTS_COPY, HOSTS_OTHER_VERSION, true), HOSTS_NO_WAY);
}
END_TEST

START_TEST(the_command_is_quoted_for_the_shell) {
    struct cr_buffer out = {0};
    ck_assert_int_eq(hosts_way_command(HOSTS_SAME_PATH, "/opt/c-1/crun", 0, 0, &out), 0);
    ck_assert_str_eq(out.data, "/opt/c-1/crun --deputy");
    cr_buffer_clear(&out);
    ck_assert_int_eq(hosts_way_command(HOSTS_SAME_PATH, "/my 'x'/crun", 0, 0, &out), 0);
    ck_assert_str_eq(out.data, "'/my '\\''x'\\''/crun' --deputy");
    cr_buffer_clear(&out);
    ck_assert_int_eq(hosts_way_command(HOSTS_COPY, "/x", 0xabc, 77, &out), 0);
    ck_assert_ptr_nonnull(strstr(out.data, "crun-0000000000000abc"));
    ck_assert_ptr_nonnull(strstr(out.data, "head -c 77 "));
    cr_buffer_done(&out);
}
END_TEST

START_TEST(the_last_line_of_ssh_is_its_reason) {
    char line[64];
    const char *text = "Warning: x\r\nssh: connect to host b port 22: No route to host\r\n";
    hosts_last_line(text, strlen(text), line, sizeof(line));
    ck_assert_str_eq(line, "ssh: connect to host b port 22: No route to host");
    hosts_last_line("\n", 1, line, sizeof(line));
    ck_assert_str_eq(line, "");
}
END_TEST

/* ---- lines ---- */

static const char *const prefixes[] = {"[a] ", "[b] "};
static struct hosts_stream streams[2];
static struct hosts_lines lines;
static struct cr_buffer shown;

static void open_lines(void) {
    lines = (struct hosts_lines){.streams = streams, .prefixes = prefixes, .open = -1};
}

static void close_lines(void) {
    cr_buffer_done(&streams[0].kept);
    cr_buffer_done(&streams[1].kept);
    cr_buffer_done(&shown);
}

static void add(uint32_t host, const char *text) {
    ck_assert_int_eq(hosts_lines_add(&lines, host, text, strlen(text), &shown), 0);
}

static void expect_shown(const char *text) {
    ck_assert_uint_eq(shown.len, strlen(text));
    ck_assert_mem_eq(shown.data, text, shown.len);
    cr_buffer_clear(&shown);
}

START_TEST(lines_stay_whole) {
    add(0, "on");
    add(1, "two\nthr");
    expect_shown("[b] two\n");
    add(0, "e\n");
    add(1, "ee\n");
    expect_shown("[a] one\n[b] three\n");
}
END_TEST

START_TEST(a_prompt_is_shown_and_then_continued) {
    add(0, "name? ");
    ck_assert_int_eq(hosts_lines_flush(&lines, 0, &shown), 0);
    expect_shown("[a] name? ");
    add(0, "ok\n");
    expect_shown("ok\n");
    add(0, "more? ");
    ck_assert_int_eq(hosts_lines_flush(&lines, 0, &shown), 0);
    add(1, "x\n");
    expect_shown("[a] more? \n[b] x\n");
    add(1, "end");
    ck_assert_int_eq(hosts_lines_flush(&lines, 1, &shown), 0);
    ck_assert_int_eq(hosts_lines_end(&lines, &shown), 0);
    expect_shown("[b] end\n");
}
END_TEST

/* ---- when a job begins and ends ---- */

static uint8_t states[4];
static struct lead lead;

static void open_lead(uint32_t hosts, uint32_t min) {
    memset(states, 0, sizeof(states));
    lead_init(&lead, states, hosts, min, 1000);
}

static void go(int64_t now_ms) {
    ck_assert_int_eq(lead_next(&lead, now_ms), LEAD_GO);
    lead_went(&lead);
}

START_TEST(all_hosts_are_needed) {
    open_lead(2, 2);
    lead_ready(&lead, 1, 10);
    ck_assert_int_eq(lead_next(&lead, 10), LEAD_WAIT); /* host 0 shall host the rendezvous */
    ck_assert_int_eq(lead_deadline(&lead), CR_FOREVER);
    lead_ready(&lead, 0, 20);
    ck_assert_uint_eq(lead_hosting(&lead), 0);
    go(20);
    lead_ended(&lead, 0, 0, 30);
    ck_assert_int_eq(lead_next(&lead, 30), LEAD_WAIT);
    lead_ended(&lead, 1, 0, 30);
    ck_assert_int_eq(lead_next(&lead, 30), LEAD_FINISH);
    ck_assert_int_eq(lead_status(&lead), 0);
}
END_TEST

START_TEST(a_host_that_is_needed_and_lost_ends_the_start) {
    open_lead(3, 3);
    lead_ready(&lead, 0, 10);
    go(10);
    lead_lost(&lead, 2, 20);
    ck_assert_int_eq(lead_next(&lead, 20), LEAD_GIVE_UP);
    ck_assert_int_eq(lead_status(&lead), 1);
}
END_TEST

START_TEST(an_elastic_job_goes_on_without_a_host) {
    open_lead(3, 2);
    lead_lost(&lead, 0, 5);
    lead_ready(&lead, 1, 10);
    ck_assert_int_eq(lead_next(&lead, 10), LEAD_WAIT);
    lead_ready(&lead, 2, 20);
    ck_assert_uint_eq(lead_hosting(&lead), 1);
    go(20);
    lead_ended(&lead, 1, 0, 30);
    lead_ended(&lead, 2, 0, 30);
    ck_assert_int_eq(lead_next(&lead, 30), LEAD_FINISH);
    ck_assert_int_eq(lead_status(&lead), 0);
}
END_TEST

START_TEST(a_slow_host_is_waited_for_until_the_last_call) {
    open_lead(3, 1);
    lead_ready(&lead, 1, 10);
    ck_assert_int_eq(lead_next(&lead, 1009), LEAD_WAIT);
    ck_assert_int_eq(lead_deadline(&lead), 1010);
    go(1010);
    ck_assert_int_eq(lead_next(&lead, 1010), LEAD_WAIT);
    lead_ready(&lead, 0, 2000); /* joins the running job */
    go(2000);
    lead_ended(&lead, 1, 0, 3000);
    lead_ended(&lead, 0, 0, 3000);
    /* host 2 has never answered */
    ck_assert_int_eq(lead_next(&lead, 3000), LEAD_FINISH);
    ck_assert_int_eq(lead_status(&lead), 0);
}
END_TEST

START_TEST(a_failed_launcher_leaves_the_others_time_to_end) {
    open_lead(2, 2);
    lead_ready(&lead, 0, 0);
    lead_ready(&lead, 1, 0);
    go(0);
    lead_ended(&lead, 1, 1, 100);
    ck_assert_int_eq(lead_next(&lead, 100), LEAD_WAIT);
    ck_assert_int_eq(lead_deadline(&lead), 100 + LEAD_GRACE_MS);
    ck_assert_int_eq(lead_next(&lead, 100 + LEAD_GRACE_MS), LEAD_STOP);
    lead_stopped(&lead);
    ck_assert_int_eq(lead_next(&lead, 100 + LEAD_GRACE_MS), LEAD_WAIT);
    lead_ended(&lead, 0, 143, 9000);
    ck_assert_int_eq(lead_next(&lead, 9000), LEAD_FINISH);
    ck_assert_int_eq(lead_status(&lead), 1);
}
END_TEST

START_TEST(a_wrong_command_line_ends_the_others_at_once) {
    open_lead(2, 2);
    lead_ready(&lead, 0, 0);
    lead_ready(&lead, 1, 0);
    go(0);
    lead_ended(&lead, 0, LEAD_USAGE, 100);
    ck_assert_int_eq(lead_next(&lead, 100), LEAD_STOP);
    lead_stopped(&lead);
    lead_lost(&lead, 1, 200);
    lead_lost(&lead, 1, 300); /* a second report has no effect */
    ck_assert_int_eq(lead_next(&lead, 300), LEAD_FINISH);
    ck_assert_int_eq(lead_status(&lead), LEAD_USAGE);
}
END_TEST

START_TEST(a_host_that_is_lost_while_workers_run_ends_the_others_in_order) {
    open_lead(2, 2);
    lead_ready(&lead, 0, 0);
    lead_ready(&lead, 1, 0);
    go(0);
    lead_lost(&lead, 1, 100);
    ck_assert_int_eq(lead_next(&lead, 100), LEAD_STOP);
    lead_ended(&lead, 0, 143, 200);
    ck_assert_int_eq(lead_status(&lead), 1);
    open_lead(3, 2);
    for (uint32_t i = 0; i < 3; i++) lead_ready(&lead, i, 0);
    go(0);
    lead_lost(&lead, 0, 100);
    ck_assert_int_eq(lead_next(&lead, 100), LEAD_WAIT);
    lead_ended(&lead, 1, 1, 200);
    ck_assert_int_eq(lead_next(&lead, 200), LEAD_WAIT);
    ck_assert_int_eq(lead_next(&lead, 200 + LEAD_GRACE_MS), LEAD_STOP);
}
END_TEST

int main(void) {
    Suite *s = suite_create("hosts");
    TCase *t = tcase_create("hosts");
    tcase_add_test(t, a_list_has_hosts_with_and_without_slots);
    tcase_add_test(t, a_hostfile_may_have_either_form);
    tcase_add_test(t, words_that_are_no_hosts_are_quoted);
    tcase_add_test(t, each_host_has_one_parent);
    tcase_add_test(t, a_plan_arrives_as_it_was_sent);
    tcase_add_test(t, a_broken_plan_is_refused);
    tcase_add_test(t, frames_have_limits);
    tcase_add_test(t, small_messages_arrive);
    tcase_add_test(t, a_greeting_is_told_from_what_a_shell_prints);
    tcase_add_test(t, a_shell_that_finds_no_crun_is_asked_again);
    tcase_add_test(t, the_command_is_quoted_for_the_shell);
    tcase_add_test(t, the_last_line_of_ssh_is_its_reason);
    tcase_add_test(t, all_hosts_are_needed);
    tcase_add_test(t, a_host_that_is_needed_and_lost_ends_the_start);
    tcase_add_test(t, an_elastic_job_goes_on_without_a_host);
    tcase_add_test(t, a_slow_host_is_waited_for_until_the_last_call);
    tcase_add_test(t, a_failed_launcher_leaves_the_others_time_to_end);
    tcase_add_test(t, a_wrong_command_line_ends_the_others_at_once);
    tcase_add_test(t, a_host_that_is_lost_while_workers_run_ends_the_others_in_order);
    suite_add_tcase(s, t);
    TCase *l = tcase_create("lines");
    tcase_add_checked_fixture(l, open_lines, close_lines);
    tcase_add_test(l, lines_stay_whole);
    tcase_add_test(l, a_prompt_is_shown_and_then_continued);
    suite_add_tcase(s, l);
    return run_suite(s);
}
